package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"tapgw/internal/protocol"
)

// Subscribable is something that happens in a session and that [Subscribe] can
// hear of.
type Subscribable interface {
	UserMessage | AssistantMessage | ToolExecution | AssistantIntent
}

// UserMessage is a prompt that a session took.
type UserMessage struct {
	Session string `json:"-"`
	Content string `json:"content"`
}

// AssistantMessage is a message of the model's, complete.
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

// ToolExecution is a tool call that has ended, of any tool of the session. It
// is the only thing that an external provider may hear of.
type ToolExecution struct {
	Session  string
	Tool     string
	Provider string // that the tool belongs to; empty for the session's own
	Args     json.RawMessage
	Failed   bool
	Output   string // of a failure its error
	Duration time.Duration
}

// AssistantIntent is what the model says it is about to do.
type AssistantIntent struct {
	Session string `json:"-"`
	Intent  string `json:"intent"`
}

// Subscribe calls f with all that happens of one kind, which f's parameter
// says, in the sessions that the provider is bound to. Things of one session
// come one after the other, in order. The context ends with the binding; what
// happened before is still told.
//
// It is for the time before [Provider.Run]: on a running provider it begins
// with the next connection.
func Subscribe[E Subscribable](p *Provider, f func(ctx context.Context, e E)) {
	name := eventOf[E]()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[name] = append(p.heard[name], func(session string, data []byte) (func(context.Context), error) {
		e, err := payload[E](session, data)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) { f(ctx, e) }, nil
	})
}

// listener reads an event and returns the call of a function of the user's.
type listener func(session string, data []byte) (func(context.Context), error)

// eventOf is the session.event that an E tells of.
func eventOf[E Subscribable]() string {
	switch any(*new(E)).(type) {
	case UserMessage:
		return protocol.EventUserMessage
	case AssistantMessage:
		return protocol.EventAssistantMessage
	case ToolExecution:
		return protocol.EventToolComplete
	default:
		return protocol.EventAssistantIntent
	}
}

// payload reads an event (v2, "Event payload shapes").
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
			Output string `json:"output"`
		} `json:"result"`
		DurationMs float64 `json:"durationMs"`
	}
	err := json.Unmarshal(data, &m)
	e.Tool, e.Provider, e.Args, e.Output = m.Tool, m.Provider, m.Args, m.Result.Output
	e.Failed = m.Result.Type != "success"
	e.Duration = time.Duration(m.DurationMs * float64(time.Millisecond))
	return err
}

// happened gives an event to those that listen.
func (c *conn) happened(m *protocol.SessionEvent) {
	p := c.run.p
	p.mu.Lock()
	listeners := p.heard[m.Event]
	p.mu.Unlock()
	ctx := c.ctx
	if b := c.bindings[m.SessionID]; b != nil {
		ctx = b.ctx
	}
	for _, l := range listeners {
		call, err := l(m.SessionID, m.Data)
		if err != nil {
			c.log.Warn("gateway sent a wrong event; ignored", "event", m.Event, "error", err)
			continue
		}
		if !c.run.events.add(m.SessionID, func() { guard(c.log, func() { call(ctx) }) }) {
			c.complain(fmt.Errorf("%s of session %s: %d events wait for the functions of Subscribe; it was dropped",
				m.Event, m.SessionID, maxEvents))
		}
	}
}

// maxEvents is how many events of one session wait for the functions that
// listen: one that hangs must not take all memory.
const maxEvents = 1000

// sequences run functions of one key one after the other, of several side by
// side. A goroutine lives as long as its key has functions.
type sequences struct {
	spawn func(func()) // starts a goroutine

	mu   sync.Mutex
	next map[string][]func()
}

// add runs f after those of its key before it; false if too many wait.
func (s *sequences) add(key string, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, busy := s.next[key]
	if len(waiting) >= maxEvents {
		return false
	}
	s.next[key] = append(waiting, f)
	if !busy {
		s.spawn(func() { s.work(key) })
	}
	return true
}

// work runs one function and hands over to the next: one that ends its goroutine
// takes no other with it.
func (s *sequences) work(key string) {
	if f := s.take(key); f != nil {
		defer s.spawn(func() { s.work(key) })
		f()
	}
}

// take returns the next function of a key, nil for none.
func (s *sequences) take(key string) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.next[key]
	if len(waiting) == 0 {
		delete(s.next, key)
		return nil
	}
	s.next[key] = waiting[1:]
	return waiting[0]
}
