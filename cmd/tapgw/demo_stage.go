package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/gateway"
	"tapgw/internal/scriptmodel"
)

// stage is where the demo looks for what it shows.
type stage interface {
	// ask gives the session a prompt.
	ask(ctx context.Context, prompt string) error
	// listed waits until a tool is in the list that the model has.
	listed(ctx context.Context, tool string) (string, error)
	// called waits until the model has called a tool.
	called(ctx context.Context, tool string) (string, error)
	// result waits until the model has a tool's result, which holds a text.
	result(ctx context.Context, text string) (string, error)
	// woken waits until an event has started a turn.
	woken(ctx context.Context, event string) (string, error)
	// changed gives the session a prompt, and waits until the model that gets
	// it has those of the demo's tools and no others.
	changed(ctx context.Context, prompt string, tools ...string) (string, error)
}

// demoTools are those of the demo's tools that a list has, in the list's order.
func demoTools(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(t string) bool { return t != demoTool && t != demoMore })
}

func toolsAre(tools []string) string {
	if len(tools) == 0 {
		return "no tool of the provider is left"
	}
	return "the provider's tools are " + strings.Join(tools, " and ")
}

// copilotStage looks at what the model endpoint received.
type copilotStage struct {
	session *gateway.Session
	model   *scriptmodel.Server
	seen    int    // model requests that were looked at
	prompt  string // the last one asked
}

func (s *copilotStage) ask(ctx context.Context, prompt string) error {
	s.prompt = prompt
	_, err := s.session.Prompt(ctx, gateway.Prompt{Text: prompt})
	return err
}

// request waits for the first request, from the last one looked at on, that is
// the one.
func (s *copilotStage) request(ctx context.Context, what string, is func(*scriptmodel.Request) bool) (*scriptmodel.Request, error) {
	for n := max(s.seen, 1); ; n++ {
		r, err := s.model.WaitRequest(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("no model request %s: %w", what, err)
		}
		if is(r) {
			s.seen = n
			return r, nil
		}
	}
}

func (s *copilotStage) listed(ctx context.Context, tool string) (string, error) {
	r, err := s.request(ctx, "lists "+tool, func(r *scriptmodel.Request) bool { return r.HasTool(tool) && s.hasPrompt(r) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("model request %d offers %s among %d tools", r.N, tool, len(r.Tools)), nil
}

// hasPrompt reports whether a request brings the last prompt to the model.
func (s *copilotStage) hasPrompt(r *scriptmodel.Request) bool { return says(r, "user", s.prompt) }

// says reports whether a message of a role holds a text.
func says(r *scriptmodel.Request, role, text string) bool {
	return slices.ContainsFunc(r.Messages, func(m scriptmodel.Message) bool {
		return m.Role == role && strings.Contains(m.Text, text)
	})
}

func (s *copilotStage) called(ctx context.Context, tool string) (string, error) {
	var call scriptmodel.ToolCall
	r, err := s.request(ctx, "holds a call of "+tool, func(r *scriptmodel.Request) bool {
		for _, m := range r.Messages {
			for _, c := range m.ToolCalls {
				if c.Name == tool {
					call = c
					return true
				}
			}
		}
		return false
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the model called %s %s, says model request %d", tool, call.Args, r.N), nil
}

func (s *copilotStage) result(ctx context.Context, text string) (string, error) {
	r, err := s.request(ctx, "holds the result", func(r *scriptmodel.Request) bool { return says(r, "tool", text) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("model request %d brings %q", r.N, r.LastResult()), nil
}

func (s *copilotStage) woken(ctx context.Context, event string) (string, error) {
	r, err := s.request(ctx, "holds the event", func(r *scriptmodel.Request) bool { return says(r, "user", event) })
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(s.model.Requests(), func(r *scriptmodel.Request) bool { return says(r, "user", demoNews) }) {
		return "", fmt.Errorf("the model heard of %q, which was for the timeline alone", demoNews)
	}
	return fmt.Sprintf("the provider's event woke the session: model request %d says %q, and nothing of what was for the timeline", r.N, event), nil
}

func (s *copilotStage) changed(ctx context.Context, prompt string, tools ...string) (string, error) {
	if err := s.ask(ctx, prompt); err != nil {
		return "", err
	}
	r, err := s.request(ctx, "holds the prompt", s.hasPrompt)
	if err != nil {
		return "", err
	}
	if got := demoTools(r.ToolNames()); !same(got, tools) {
		return "", fmt.Errorf("model request %d has %v, want %v", r.N, got, tools)
	}
	return fmt.Sprintf("model request %d: %s", r.N, toolsAre(tools)), nil
}

func same(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// localStage looks at a session without a model: at its tools and its callbacks.
type localStage struct {
	session *gateway.Session
	cursor  uint64 // of the live feed
}

func (s *localStage) ask(ctx context.Context, prompt string) error {
	_, err := s.session.Prompt(ctx, gateway.Prompt{Text: prompt})
	return err
}

// event waits for the next callback of the session that is the one.
func (s *localStage) event(ctx context.Context, what string, is func(gateway.Event) bool) (gateway.Event, error) {
	for {
		lines, _ := s.session.Live(s.cursor)
		for _, l := range lines {
			s.cursor = l.Seq
			if is(l.Event) {
				return l.Event, nil
			}
		}
		if err := s.session.WaitLive(ctx, s.cursor); err != nil {
			return gateway.Event{}, fmt.Errorf("the session did not say %s: %w", what, err)
		}
	}
}

func (s *localStage) tools() []string {
	var names []string
	for _, t := range s.session.Tools() {
		names = append(names, t.Name)
	}
	return names
}

func (s *localStage) listed(_ context.Context, tool string) (string, error) {
	if !slices.Contains(s.tools(), tool) {
		return "", fmt.Errorf("the session has %v", s.tools())
	}
	return "the session offers " + tool, nil
}

func (s *localStage) called(ctx context.Context, tool string) (string, error) {
	e, err := s.event(ctx, gateway.OnStartToolExecution, func(e gateway.Event) bool {
		return e.Callback == gateway.OnStartToolExecution && e.Tool == tool
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the session called %s %s", tool, e.Args), nil
}

func (s *localStage) result(ctx context.Context, text string) (string, error) {
	e, err := s.event(ctx, gateway.OnEndToolExecution, func(e gateway.Event) bool { return e.Callback == gateway.OnEndToolExecution })
	switch {
	case err != nil:
		return "", err
	case e.Error != nil:
		return "", errors.New(e.Error.Message)
	case e.Result == nil || !strings.Contains(e.Result.Content, text):
		return "", fmt.Errorf("the result does not hold %q", text)
	}
	return fmt.Sprintf("the session got %q", e.Result.Content), nil
}

func (s *localStage) woken(ctx context.Context, event string) (string, error) {
	_, err := s.event(ctx, gateway.OnGeneratedUserPrompt, func(e gateway.Event) bool {
		return e.Callback == gateway.OnGeneratedUserPrompt && strings.Contains(e.Content, event)
	})
	if err != nil {
		return "", err
	}
	if _, err := s.event(ctx, gateway.OnAgentStart, func(e gateway.Event) bool { return e.Callback == gateway.OnAgentStart }); err != nil {
		return "", err
	}
	return fmt.Sprintf("the provider's event woke the session: %q", event), nil
}

func (s *localStage) changed(_ context.Context, _ string, tools ...string) (string, error) {
	if got := demoTools(s.tools()); !same(got, tools) {
		return "", fmt.Errorf("the session has %v, want %v", got, tools)
	}
	return "in the session " + toolsAre(tools), nil
}
