package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"tapgw/internal/protocol"
)

// Subscribable are the types of events that [Subscribe] can listen to.
type Subscribable interface {
	UserMessage | AssistantMessage | ToolExecution | AssistantIntent | SessionError | Pushed
}

// UserMessage is a prompt that a session has got.
type UserMessage struct {
	Session string `json:"-"`
	Content string `json:"content"`
}

// AssistantMessage is a complete message of the model.
type AssistantMessage struct {
	Session      string        `json:"-"`
	Content      string        `json:"content"`
	ToolRequests []ToolRequest `json:"toolRequests"` // the tools that it asks for
}

// ToolRequest is a tool call that the model asks for.
type ToolRequest struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// ToolExecution is a tool call that has ended, of any tool in the session. It is the only event
// that an external provider may subscribe to.
type ToolExecution struct {
	Session  string
	Tool     string
	Provider string // the provider of the tool; empty for the session's own tools
	Args     json.RawMessage
	Failed   bool
	Code     string // of a failure, by the host: "denied" for a call that was denied
	Output   string // the result, or the error if it failed
	Duration time.Duration
}

// AssistantIntent is the model's announcement of its next step.
type AssistantIntent struct {
	Session string `json:"-"`
	Intent  string `json:"intent"`
}

// SessionError says that a turn or the session failed.
type SessionError struct {
	Session string `json:"-"`
	Message string `json:"message"`
}

// Pushed is an event of a provider that the session's timeline shows, also one of this provider. It
// takes an internal token or the grant questions.
type Pushed struct {
	Session  string `json:"-"`
	Provider string `json:"provider"`
	Stream   string `json:"stream"`
	Level    Level  `json:"level"`
	Text     string `json:"event"`
}

// Subscribe calls f with each event of one type in the sessions that the provider is bound to. The
// parameter of f says the type. Events of one session come one after the other, in order; those
// before the end of the binding still come, with a context that has ended.
//
// Call Subscribe before [Provider.Run]: on a running provider it has an effect from the next
// connection on. More than 1000 events that wait are dropped, and [Options.OnError] gets an error.
func Subscribe[E Subscribable](p *Provider, f func(ctx context.Context, e E)) {
	name := eventOf[E]()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners[name] = append(p.listeners[name],
		func(session string, data []byte) (func(context.Context), error) {
			e, err := payload[E](session, data)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) { f(ctx, e) }, nil
		})
}

// listener decodes an event and returns a call of the user's function with it.
type listener func(session string, data []byte) (func(context.Context), error)

// eventOf returns the name of the session event that E stands for.
func eventOf[E Subscribable]() string {
	switch any(*new(E)).(type) {
	case UserMessage:
		return protocol.EventUserMessage
	case AssistantMessage:
		return protocol.EventAssistantMessage
	case ToolExecution:
		return protocol.EventToolComplete
	case SessionError:
		return protocol.EventSessionError
	case Pushed:
		return protocol.EventPushed
	default:
		return protocol.EventAssistantIntent
	}
}

// payload decodes an event (docs/protocol.md, "Subscriptions").
func payload[E Subscribable](session string, data []byte) (e E, err error) {
	switch e := any(&e).(type) {
	case *UserMessage:
		e.Session = session
		err = json.Unmarshal(data, e)
	case *AssistantMessage:
		e.Session = session
		err = json.Unmarshal(data, e)
	case *ToolExecution:
		e.Session = session
		err = e.read(data)
	case *AssistantIntent:
		e.Session = session
		err = json.Unmarshal(data, e)
	case *SessionError:
		e.Session = session
		err = json.Unmarshal(data, e)
	case *Pushed:
		e.Session = session
		err = json.Unmarshal(data, e)
	}
	return e, err
}

func (e *ToolExecution) read(data []byte) error {
	var m struct {
		Tool     string          `json:"tool"`
		Provider string          `json:"provider"`
		Args     json.RawMessage `json:"args"`
		Result   struct {
			Type   string `json:"type"`
			Code   string `json:"code"`
			Output string `json:"output"`
		} `json:"result"`
		DurationMs float64 `json:"durationMs"`
	}
	err := json.Unmarshal(data, &m)
	e.Tool, e.Provider, e.Args, e.Output = m.Tool, m.Provider, m.Args, m.Result.Output
	e.Failed, e.Code = m.Result.Type != "success", m.Result.Code
	e.Duration = time.Duration(m.DurationMs * float64(time.Millisecond))
	return err
}

// handleEvent gives an event to its listeners.
func (c *conn) handleEvent(m *protocol.SessionEvent) {
	if c.handleQuestion(m) {
		return
	}
	p := c.run.p
	p.mu.Lock()
	listeners := p.listeners[m.Event]
	p.mu.Unlock()
	ctx := c.ctx
	if b := c.bindings[m.SessionID]; b != nil {
		ctx = b.ctx
	}
	for _, l := range listeners {
		call, err := l(m.SessionID, m.Data)
		if err != nil {
			c.log.Warn("ignoring a wrong event of the gateway", "event", m.Event, "error", err)
			continue
		}
		if !c.run.events.add(m.SessionID, func() {
			_ = guard(c.log, "callback", func() { call(ctx) })
		}) {
			c.reportRefusal(
				fmt.Errorf(
					"%s of session %s was dropped: %d events wait for the functions of Subscribe",
					m.Event, m.SessionID, maxEvents))
		}
	}
}

// maxEvents is how many events of one session wait for the listeners: one that hangs must not fill
// the memory.
const maxEvents = 1000
