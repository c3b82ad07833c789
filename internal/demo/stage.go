package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/gateway"
	"tapgw/internal/scriptmodel"
)

// stage observes the session for the demo. Its methods return a line about their observation.
type stage interface {
	// ask sends the session a prompt.
	ask(ctx context.Context, prompt string) error
	// listed waits until the model's list of tools has a tool.
	listed(ctx context.Context, tool string) (string, error)
	// called waits until the model has called a tool.
	called(ctx context.Context, tool string) (string, error)
	// result waits until the model has a tool's result that contains a text.
	result(ctx context.Context, text string) (string, error)
	// woken waits until an event has started a turn.
	woken(ctx context.Context, event string) (string, error)
	// changed sends the session a prompt, and checks that the model then has exactly these of the
	// demo's tools.
	changed(ctx context.Context, prompt string, tools ...string) (string, error)
}

// sampleTools returns the demo's tools that are in a list, in the list's order.
func sampleTools(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(t string) bool {
		return t != sampleTool && t != sampleMore
	})
}

func toolsAre(tools []string) string {
	if len(tools) == 0 {
		return "no tool of the provider is left"
	}
	return "the provider's tools are " + strings.Join(tools, " and ")
}

// copilotStage observes the requests that the model endpoint receives.
type copilotStage struct {
	session *gateway.Session
	model   *scriptmodel.Server
	seen    int    // number of the last request that was examined
	prompt  string // the last one
}

func (s *copilotStage) ask(ctx context.Context, prompt string) error {
	s.prompt = prompt
	_, err := s.session.Prompt(ctx, gateway.Prompt{Text: prompt})
	return err
}

// request waits for the first request that match accepts, beginning with the last one that was
// examined. The word what describes the request in an error.
func (s *copilotStage) request(
	ctx context.Context, what string, match func(*scriptmodel.Request) bool,
) (*scriptmodel.Request, error) {
	for n := max(s.seen, 1); ; n++ {
		r, err := s.model.WaitRequest(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("no model request that %s: %w", what, err)
		}
		if match(r) {
			s.seen = n
			return r, nil
		}
	}
}

func (s *copilotStage) listed(ctx context.Context, tool string) (string, error) {
	match := func(r *scriptmodel.Request) bool { return r.HasTool(tool) && s.hasPrompt(r) }
	r, err := s.request(ctx, "lists "+tool, match)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("model request %d offers %s among %d tools", r.N, tool, len(r.Tools)), nil
}

// hasPrompt reports whether a request contains the last prompt.
func (s *copilotStage) hasPrompt(r *scriptmodel.Request) bool {
	return contains(r, "user", s.prompt)
}

// contains reports whether a message of a role contains a text.
func contains(r *scriptmodel.Request, role, text string) bool {
	return slices.ContainsFunc(r.Messages, func(m scriptmodel.Message) bool {
		return m.Role == role && strings.Contains(m.Text, text)
	})
}

func (s *copilotStage) called(ctx context.Context, tool string) (string, error) {
	var call scriptmodel.ToolCall
	r, err := s.request(ctx, "contains a call of "+tool, func(r *scriptmodel.Request) bool {
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
	r, err := s.request(ctx,
		"contains the result", func(r *scriptmodel.Request) bool {
			return contains(r, "tool", text)
		})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("model request %d brings %q", r.N, r.LastResult()), nil
}

func (s *copilotStage) woken(ctx context.Context, event string) (string, error) {
	r, err := s.request(ctx,
		"contains the event", func(r *scriptmodel.Request) bool {
			return contains(r, "user", event)
		})
	if err != nil {
		return "", err
	}
	hasNews := func(r *scriptmodel.Request) bool { return contains(r, "user", sampleNews) }
	if slices.ContainsFunc(s.model.Requests(), hasNews) {
		return "", fmt.Errorf("the model got %q, which was for the timeline only", sampleNews)
	}
	return fmt.Sprintf(
		"the provider's event woke the session: model request %d says %q, and not the "+
			"timeline's event",
		r.N, event), nil
}

func (s *copilotStage) changed(
	ctx context.Context, prompt string, tools ...string,
) (string, error) {
	if err := s.ask(ctx, prompt); err != nil {
		return "", err
	}
	r, err := s.request(ctx, "contains the prompt", s.hasPrompt)
	if err != nil {
		return "", err
	}
	if got := sampleTools(r.ToolNames()); !isSameSet(got, tools) {
		return "", fmt.Errorf("model request %d has %v, want %v", r.N, got, tools)
	}
	return fmt.Sprintf("model request %d: %s", r.N, toolsAre(tools)), nil
}

func isSameSet(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.Equal(a, b)
}

// localStage observes the tools and events of a session without a model.
type localStage struct {
	session *gateway.Session
	cursor  uint64 // of the live feed
}

func (s *localStage) ask(ctx context.Context, prompt string) error {
	_, err := s.session.Prompt(ctx, gateway.Prompt{Text: prompt})
	return err
}

// event waits for the session's next event that match accepts. The word what describes the event in
// an error.
func (s *localStage) event(
	ctx context.Context, what string, match func(gateway.Event) bool,
) (gateway.Event, error) {
	for {
		lines, _ := s.session.Live(s.cursor)
		for _, l := range lines {
			s.cursor = l.Seq
			if match(l.Event) {
				return l.Event, nil
			}
		}
		if err := s.session.WaitLive(ctx, s.cursor); err != nil {
			return gateway.Event{}, fmt.Errorf("the session sent no %s: %w", what, err)
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
	isEnd := func(e gateway.Event) bool { return e.Callback == gateway.OnEndToolExecution }
	e, err := s.event(ctx, gateway.OnEndToolExecution, isEnd)
	switch {
	case err != nil:
		return "", err
	case e.Error != nil:
		return "", errors.New(e.Error.Message)
	case e.Result == nil || !strings.Contains(e.Result.Content, text):
		return "", fmt.Errorf("the result does not contain %q", text)
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
	isStart := func(e gateway.Event) bool { return e.Callback == gateway.OnAgentStart }
	if _, err := s.event(ctx, gateway.OnAgentStart, isStart); err != nil {
		return "", err
	}
	return fmt.Sprintf("the provider's event woke the session: %q", event), nil
}

func (s *localStage) changed(_ context.Context, _ string, tools ...string) (string, error) {
	if got := sampleTools(s.tools()); !isSameSet(got, tools) {
		return "", fmt.Errorf("the session has %v, want %v", got, tools)
	}
	return "in the session " + toolsAre(tools), nil
}
