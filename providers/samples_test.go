package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tapgw/providers"
)

// The samples of testdata/sdk/README.md in Go.

// sample makes a sample by its name. before runs before Run: the sample "paired" pairs.
func sample(name, url, token string) (p *providers.Provider, before func(context.Context) error) {
	o := &providers.Options{URL: url, Token: token, Logger: quiet}
	s := &sampleTools{}
	before = func(context.Context) error { return nil }
	switch name {
	case "echo", "listener":
	case "all":
		o.Session = providers.AllSessions
		o.OnBound = func(ctx context.Context, b providers.Binding) {
			_, _ = p.Push(
				ctx,
				providers.Event{Text: "bound to " + b.Session, Session: b.Session,
					Level: providers.Keep},
			)
		}
	case "answerer":
		s.questions = map[string]providers.Question{}
		o.OnQuestion = s.onQuestion
	case "instance":
		o.Instance, o.Metadata = "tab-1", map[string]any{"title": "Tab 1"}
		o.Concurrency = providers.Concurrency{Max: 2, Scope: providers.PerProvider}
		o.StartupContext, o.Context = "At first.", "Always."
	case "paired":
		o.Token, before = "", func(ctx context.Context) error {
			_, err := p.Pair(ctx, func(context.Context, string) (string, error) {
				return "123456", nil
			})
			return err
		}
	}
	p = providers.New(name, o)
	s.p = p
	s.add()
	if name == "listener" {
		listen(p)
	}
	return p, before
}

// listen pushes the events that it hears.
func listen(p *providers.Provider) {
	say := func(ctx context.Context, session, format string, args ...any) {
		_, _ = p.Push(context.WithoutCancel(ctx),
			providers.Event{Text: fmt.Sprintf(format, args...), Session: session,
				Level: providers.Keep})
	}
	providers.Subscribe(
		p,
		func(ctx context.Context, e providers.UserMessage) {
			say(ctx, e.Session, "user: %s", e.Content)
		},
	)
	providers.Subscribe(p, func(ctx context.Context, e providers.AssistantMessage) {
		say(ctx, e.Session, "assistant: %s (%d)", e.Content, len(e.ToolRequests))
	})
	providers.Subscribe(p, func(ctx context.Context, e providers.ToolExecution) {
		failed := strings.TrimSpace(fmt.Sprintf("failed=%t %s", e.Failed, e.Code))
		say(ctx, e.Session, "tool: %s by %s: %s: %s", e.Tool, e.Provider, failed, e.Output)
	})
	providers.Subscribe(
		p,
		func(ctx context.Context, e providers.AssistantIntent) {
			say(ctx, e.Session, "intent: %s", e.Intent)
		},
	)
	providers.Subscribe(
		p,
		func(ctx context.Context, e providers.SessionError) {
			say(ctx, e.Session, "error: %s", e.Message)
		},
	)
	providers.Subscribe(p, func(ctx context.Context, e providers.Pushed) {
		say(ctx, e.Session, "pushed: %s@%s %s: %s", e.Stream, e.Provider, e.Level, e.Text)
	})
}

// sampleTools are the tools of each sample: they make the provider act as a scenario demands.
type sampleTools struct {
	p *providers.Provider

	mu        sync.Mutex
	rules     []*providers.Rule
	questions map[string]providers.Question // that came, by id
}

type (
	sampleArgs struct {
		Text     string           `json:"text,omitempty"`
		Value    any              `json:"value,omitempty"`
		Size     int              `json:"size,omitempty"`
		Lines    []string         `json:"lines,omitempty"`
		Code     string           `json:"code,omitempty"`
		Retry    bool             `json:"retryable,omitempty"`
		Name     string           `json:"name,omitempty"`
		Names    []string         `json:"names,omitempty"`
		Match    *matchArgs       `json:"match,omitempty"`
		FailOpen bool             `json:"failOpen,omitempty"`
		Section  string           `json:"section,omitempty"`
		Action   string           `json:"action,omitempty"`
		Stream   string           `json:"stream,omitempty"`
		Rules    []filterRuleArgs `json:"rules,omitempty"`
		Streams  []string         `json:"streams,omitempty"`
		Last     int              `json:"last,omitempty"`
		Session  string           `json:"session,omitempty"`
		pushArgs
		answerArgs
	}
	pushArgs struct {
		Event     string         `json:"event,omitempty"`
		Prompt    string         `json:"prompt,omitempty"`
		Level     string         `json:"level,omitempty"`
		Metadata  map[string]any `json:"metadata,omitempty"`
		Broadcast bool           `json:"broadcast,omitempty"`
		Wait      bool           `json:"wait,omitempty"`
	}
	answerArgs struct {
		Question string         `json:"question,omitempty"`
		Decision string         `json:"decision,omitempty"`
		Content  map[string]any `json:"content,omitempty"`
		Person   string         `json:"person,omitempty"`
	}
	matchArgs struct {
		Tool, Args, File, Provider string
	}
	filterRuleArgs struct{ Match, Outcome string }
)

func (a sampleArgs) sessions() []string {
	if a.Session == "" {
		return nil
	}
	return []string{a.Session}
}

// add adds the tools. Their schemas allow anything: each scenario has arguments of its own.
func (s *sampleTools) add() {
	for name, f := range map[string]func(context.Context, sampleArgs) (any, error){
		"echo":  func(_ context.Context, a sampleArgs) (any, error) { return a.Text, nil },
		"value": func(_ context.Context, a sampleArgs) (any, error) { return a.Value, nil },
		"large": func(_ context.Context, a sampleArgs) (any, error) {
			return strings.Repeat("x", a.Size), nil
		},
		"parts": func(context.Context, sampleArgs) (any, error) {
			return providers.Content{Data: map[string]int{"n": 1}, Parts: []providers.Part{
				{Type: "text", Text: "look"},
				{Type: "image", MimeType: "image/png", Data: []byte("png")},
				{Type: "resource", URI: "mem://a", Name: "a"}}}, nil
		},
		"image": func(context.Context, sampleArgs) (any, error) {
			return providers.Image{Data: []byte("png")}, nil
		},
		"slow": func(ctx context.Context, _ sampleArgs) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"fail": func(_ context.Context, a sampleArgs) (any, error) {
			return nil, &providers.Error{Code: providers.Code(a.Code), Message: a.Text,
				Retryable: a.Retry}
		},
		"crash": func(context.Context, sampleArgs) (any, error) {
			return nil, errors.New("it broke")
		},
		"progress": func(ctx context.Context, a sampleArgs) (any, error) {
			for _, line := range a.Lines {
				providers.Progress(ctx, line)
			}
			return "done", nil
		},
		"file": func(ctx context.Context, a sampleArgs) (any, error) {
			call, _ := providers.CallFrom(ctx)
			name := filepath.Join(call.PersistDir, "report.txt")
			return providers.File{Path: name, MIMEType: "text/plain"}, os.WriteFile(name,
				[]byte(a.Text), 0o600)
		},
		"push": s.push, "filter": s.filter, "query": s.query, "context": s.context,
		"add_tool":    s.addTool,
		"remove_tool": s.removeTool, "set_tools": s.setTools, "deny": s.deny, "explain": s.explain,
		"gate": s.gate, "remove_rules": s.removeRules, "section": s.section, "answer": s.answer,
	} {
		providers.AddTool(s.p, name, "The sample tool "+name, f)
	}
}

func (s *sampleTools) push(ctx context.Context, a sampleArgs) (any, error) {
	var opts []providers.PushOption
	if a.Wait {
		opts = append(opts, providers.WaitDelivered)
	}
	r, err := s.p.Push(ctx, providers.Event{Text: a.Event, Prompt: a.Prompt,
		Level:  providers.Level(a.Level),
		Stream: a.Stream, Metadata: a.Metadata, Session: a.Session, Broadcast: a.Broadcast},
		opts...)
	if err != nil {
		return nil, err
	}
	show := func(r providers.Receipt) object {
		return object{"session": r.Session, "seq": r.Seq, "fate": r.Fate, "reason": r.Reason}
	}
	if !a.Broadcast {
		return show(r), nil
	}
	each := []object{}
	for _, r := range r.Each {
		each = append(each, show(r))
	}
	return each, nil
}

// onQuestion pushes a question, and its end.
func (s *sampleTools) onQuestion(ctx context.Context, q providers.Question) {
	s.mu.Lock()
	s.questions[q.ID] = q
	s.mu.Unlock()
	say := func(format string, args ...any) {
		e := providers.Event{Text: fmt.Sprintf(format, args...), Session: q.Session,
			Level: providers.Keep}
		_, _ = s.p.Push(context.WithoutCancel(ctx), e)
	}
	var schema bytes.Buffer
	if q.Schema != nil {
		_ = json.Compact(&schema, q.Schema)
	}
	say("asked: %s: %s: %s: [%s] free=%t schema=%s until %s", q.Kind, q.Message, q.Detail,
		strings.Join(q.Choices, ", "), q.Freeform, &schema, q.ExpiresAt.UTC().Format(time.RFC3339))
	if q.Message == "Answer it." {
		if err := q.Answer(ctx, providers.Answer{Text: "by itself"}); err != nil {
			say("not answered: %v", err)
			return
		}
		say("answered by itself")
		return
	}
	<-ctx.Done()
	if end, ok := errors.AsType[*providers.QuestionEnd](context.Cause(ctx)); ok {
		say("ended: %s by %s: %s", end.Reason, end.By, end.Person)
	}
}

func (s *sampleTools) answer(ctx context.Context, a sampleArgs) (any, error) {
	s.mu.Lock()
	q := s.questions[a.Question]
	s.mu.Unlock()
	answer := providers.Answer{Decision: a.Decision, Text: a.Text, Person: a.Person}
	if a.Content != nil {
		answer.Content = a.Content
	}
	if err := q.Answer(ctx, answer); err != nil {
		if coded, ok := errors.AsType[*providers.Error](err); ok {
			return "refused: " + coded.Error(), nil
		}
		return nil, err
	}
	return "answered", nil
}

func (s *sampleTools) filter(ctx context.Context, a sampleArgs) (any, error) {
	var rules []providers.FilterRule
	for _, r := range a.Rules {
		rules = append(rules,
			providers.FilterRule{Match: r.Match, Outcome: providers.Level(r.Outcome)})
	}
	return s.p.SetFilter(ctx, a.Stream, rules...)
}

func (s *sampleTools) query(ctx context.Context, a sampleArgs) (any, error) {
	found, err := s.p.Query(ctx, providers.Query{Streams: a.Streams, Last: a.Last,
		Session: a.Session})
	if err != nil {
		return nil, err
	}
	lines := []string{}
	for _, e := range found {
		var metadata bytes.Buffer
		if e.Metadata != nil {
			if err := json.Compact(&metadata, e.Metadata); err != nil {
				return nil, err
			}
		}
		lines = append(
			lines,
			fmt.Sprintf("%s@%s %s %s %s %s", e.Stream, e.Provider, e.Level, e.Text, e.Prompt,
				&metadata),
		)
	}
	return lines, nil
}

func (s *sampleTools) context(ctx context.Context, a sampleArgs) (any, error) {
	return s.p.SetContext(ctx, a.Text, a.sessions()...)
}

// named is a tool that says its name. That of the name described says more of itself.
func named(name string) providers.Tool {
	t := providers.Tool{Name: name, Description: "Says its name",
		Handler: func(context.Context, json.RawMessage) (any, error) { return name, nil }}
	if name == "described" {
		t.Title, t.OutputSchema = "The title", json.RawMessage(`{"type":"object"}`)
		t.Annotations = &providers.Annotations{ReadOnlyHint: new(true), OpenWorldHint: new(false)}
	}
	return t
}

func (s *sampleTools) addTool(ctx context.Context, a sampleArgs) (any, error) {
	return s.p.AddTool(ctx, named(a.Name), a.sessions()...)
}

func (s *sampleTools) removeTool(ctx context.Context, a sampleArgs) (any, error) {
	return s.p.RemoveTool(ctx, a.Name, a.sessions()...)
}

func (s *sampleTools) setTools(ctx context.Context, a sampleArgs) (any, error) {
	var tools []providers.Tool
	for _, name := range a.Names {
		tools = append(tools, named(name))
	}
	return s.p.SetTools(ctx, tools, a.sessions()...)
}

func (s *sampleTools) added(r *providers.Rule, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return r.Revision, nil
}

func (a sampleArgs) match() providers.Match {
	if a.Match == nil {
		return providers.Match{}
	}
	return providers.Match(*a.Match)
}

func (s *sampleTools) deny(ctx context.Context, a sampleArgs) (any, error) {
	return s.added(s.p.Deny(ctx, a.match(), a.Text))
}

func (s *sampleTools) explain(ctx context.Context, a sampleArgs) (any, error) {
	return s.added(s.p.AddContext(ctx, a.match(), a.Text))
}

// gate decides as the arguments of each call say.
func (s *sampleTools) gate(ctx context.Context, a sampleArgs) (any, error) {
	var opts []func(*providers.Rule)
	if a.FailOpen {
		opts = append(opts, providers.FailOpen)
	}
	return s.added(s.p.Gate(ctx, a.match(),
		func(_ context.Context, c providers.GateCall) (providers.Decision, error) {
			var args struct{ Decide, Text string }
			if err := json.Unmarshal(c.Args, &args); err != nil {
				return providers.Decision{}, err
			}
			switch args.Decide {
			case "allow":
				return providers.Allow(), nil
			case "explain":
				return providers.AllowWith(args.Text), nil
			case "deny":
				return providers.Deny(args.Text), nil
			case "fail":
				return providers.Decision{}, errors.New(args.Text)
			}
			return providers.Decision{}, nil
		}, opts...))
}

// removeRules removes every rule, and returns the last revision.
func (s *sampleTools) removeRules(ctx context.Context, _ sampleArgs) (revision any, err error) {
	s.mu.Lock()
	rules := s.rules
	s.rules = nil
	s.mu.Unlock()
	for _, r := range rules {
		if revision, err = r.Remove(ctx); err != nil {
			return nil, err
		}
	}
	return revision, nil
}

func (s *sampleTools) section(ctx context.Context, a sampleArgs) (any, error) {
	switch a.Action {
	case "append":
		return s.p.Append(ctx, a.Section, a.Text)
	case "prepend":
		return s.p.Prepend(ctx, a.Section, a.Text)
	case "replace":
		return s.p.Replace(ctx, a.Section, a.Text)
	case "remove":
		return s.p.RemoveTransform(ctx, a.Section)
	}
	return s.p.Transform(ctx, a.Section, func(_ context.Context, sec providers.Section) (string,
		error) {
		if sec.Current == "fail" {
			return "", errors.New("no text for this")
		}
		return strings.ToUpper(sec.Current), nil
	})
}
