package gateway

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/protocol"
)

// toolExecution is a tool execution that has begun.
type toolExecution struct {
	tool  string
	args  protocol.Raw
	start time.Time
}

// maxRunningTools bounds the remembered executions of a host that does not report their
// ends.
const maxRunningTools = 1000

// sendToSubscribers sends an event to the providers that subscribed to its kind
// (docs/protocol.md, "session.event").
func (s *Session) sendToSubscribers(e Event) {
	if name, data := s.sessionEvent(e); name != "" {
		s.tellSubscribers(name, data)
	}
}

// tellSubscribers sends an event with its data to the providers that subscribed to it.
func (s *Session) tellSubscribers(name string, data protocol.Raw) {
	if len(data) > protocol.MaxMessage {
		s.g.o.Log.Warn("an event is too long for its subscribers", "session", s.id, "event", name,
			"bytes", len(data))
		return
	}
	s.tellProviders(func(b *binding) bool {
		isSubscribed := slices.Contains(b.provider.subscribed, name)
		if isSubscribed {
			b.sendEvent(name, data)
		}
		return isSubscribed
	})
}

// tellProviders sends the session's providers the messages that tell queues for each. tell reports
// whether it queued anything, and is called with Gateway.mu held.
func (s *Session) tellProviders(tell func(b *binding) bool) {
	s.g.mu.Lock()
	var peers []Peer
	for _, b := range s.bindings {
		if tell(b) {
			peers = append(peers, b.provider.peer)
		}
	}
	s.g.mu.Unlock()
	flushPeers(peers)
}

func flushPeers(peers []Peer) {
	for _, p := range peers {
		p.Flush()
	}
}

// sessionEvent translates an event to the name and data of a session.event; "" if
// providers can't subscribe to it.
func (s *Session) sessionEvent(e Event) (string, protocol.Raw) {
	var name string
	var data any
	switch {
	case e.Forwarded != "":
		return e.Forwarded, e.Data
	case e.UserMessage != "":
		name, data = protocol.EventUserMessage, map[string]string{"content": e.UserMessage}
	case e.SessionError != "":
		name, data = protocol.EventSessionError, map[string]string{"message": e.SessionError}
	case e.Intent != "":
		name, data = protocol.EventAssistantIntent, map[string]string{"intent": e.Intent}
	case e.Callback == OnEndMessage:
		name, data = protocol.EventAssistantMessage, struct {
			Content      string        `json:"content"`
			ToolRequests []ToolRequest `json:"toolRequests,omitempty"`
		}{e.Content, e.Requests}
	case e.Callback == OnStartToolExecution:
		s.mu.Lock()
		if len(s.runningTools) < maxRunningTools {
			s.runningTools[e.ID] = toolExecution{e.Tool, protocol.Raw(e.Args), time.Now()}
		}
		s.mu.Unlock()
	case e.Callback == OnEndToolExecution:
		name, data = protocol.EventToolComplete, s.toolComplete(e)
	}
	if name == "" {
		return "", nil
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return "", nil
	}
	return name, raw
}

// tellPushed tells subscribers of an event that the timeline shows. Call under no lock.
func (s *Session) tellPushed(e *pushedEvent) {
	data, err := json.Marshal(struct {
		Provider string         `json:"provider"`
		Stream   string         `json:"stream"`
		Level    protocol.Level `json:"level"`
		Event    string         `json:"event"`
	}{e.source.name, e.key.stream, e.level, stripEscapes(e.text)})
	if err == nil {
		s.tellSubscribers(protocol.EventPushed, data)
	}
}

// toolComplete is the data of the event of a tool execution that ended.
func (s *Session) toolComplete(e Event) any {
	s.mu.Lock()
	run := s.runningTools[e.ID]
	delete(s.runningTools, e.ID)
	s.mu.Unlock()
	type result struct {
		Type   string `json:"type"`
		Code   string `json:"code,omitempty"`
		Output string `json:"output,omitempty"`
	}
	d := struct {
		Tool       string       `json:"tool"`
		Provider   string       `json:"provider,omitempty"`
		Args       protocol.Raw `json:"args"`
		Result     result       `json:"result"`
		DurationMs int64        `json:"durationMs"`
	}{Tool: e.Tool, Provider: e.Provider, Args: run.args, Result: result{Type: "success"}}
	if d.Tool == "" {
		d.Tool = run.tool
	}
	if to := s.routes.Load().find(d.Tool); d.Provider == "" && to != nil {
		d.Provider = to.owner()
	}
	if d.Args.Kind() != '{' || !d.Args.IsValid() {
		d.Args = protocol.Raw("{}")
	}
	switch {
	case e.Error != nil:
		d.Result.Type, d.Result.Code, d.Result.Output = "failure", e.Error.Code, e.Error.Message
	case e.Result != nil:
		d.Result.Output = e.Result.Content
	}
	if !run.start.IsZero() {
		d.DurationMs = time.Since(run.start).Milliseconds()
	}
	return d
}
