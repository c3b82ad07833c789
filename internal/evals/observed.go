package evals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/proc"
	"tapgw/internal/visible"
)

// The observation of a run, on which its verdict rests.

const (
	// followFrom is more than any session has buffered: a session is followed from its start.
	followFrom = 100_000
	// maxTranscript bounds the stored transcript of a run, in bytes.
	maxTranscript = 64 << 20
)

// Callbacks of a session that report its actions (docs/admin-api.md).
const (
	onGeneratedPrompt = "onGeneratedUserPrompt"
	onEndMessage      = "onEndMessage"
	onStartTool       = "onStartToolExecution"
	onEndTool         = "onEndToolExecution"
)

// observed is the observation of a run.
type observed struct {
	session    string
	turns      int
	duration   time.Duration
	calls      []call // in the order in which they began
	messages   []string
	events     []adminapi.StreamRow
	denied     int // questions that were answered with no
	usage      adminapi.Usage
	files      map[string]file // the files that the case has expectations of
	transcript []client.SessionEvent
}

// call is a tool call that the gateway reported.
type call struct {
	tool, args string
	outcome    string // of [configs.CallOK] and so on; "" while it runs
	reason     string
}

// file is the file, or its absence, at a path of the workspace.
type file struct {
	text   string
	exists bool
	err    error
}

// note notes an event of the session's feed.
func (s *session) note(e client.SessionEvent) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.Name {
	case adminapi.EventLive:
		var c adminapi.Callback
		if err := json.Unmarshal(e.Data, &c); err != nil {
			return fmt.Errorf("reading what the session did: %w", err)
		}
		if c.Delta != nil {
			return nil // the whole text comes at its end
		}
		s.noteCallback(&c)
	case adminapi.EventStream:
		var row adminapi.StreamRow
		if err := json.Unmarshal(e.Data, &row); err != nil {
			return fmt.Errorf("reading an event of a stream: %w", err)
		}
		if row.Stream == markStream {
			if reached := s.marks[row.Event]; reached != nil {
				delete(s.marks, row.Event)
				close(reached)
			}
			return nil
		}
		s.seen.events = append(s.seen.events, row)
	case adminapi.EventGap:
		return errors.New(
			"the session did more than the gateway buffers, so that a part of it was not seen")
	}
	if s.stored += len(e.Data); s.stored > maxTranscript {
		return &overBudget{fmt.Sprintf("it made more than %d bytes of events", maxTranscript)}
	}
	s.seen.transcript = append(s.seen.transcript, e)
	return nil
}

// noteCallback notes an action of the session. Call with mu held.
func (s *session) noteCallback(c *adminapi.Callback) {
	switch c.Name {
	case onGeneratedPrompt:
		if s.seen.turns++; s.seen.turns > s.c.Budget.Turns {
			s.stop(&overBudget{"it had more than " + visible.Count(s.c.Budget.Turns, "turn")})
		}
	case onEndMessage:
		if text := deref(c.CompleteContent); text != "" {
			s.seen.messages = append(s.seen.messages, text)
		}
	case onStartTool:
		s.open[deref(c.ToolCallID)] = len(s.seen.calls)
		s.seen.calls = append(s.seen.calls,
			call{tool: deref(c.ToolName), args: compact(deref(c.ToolArguments))})
		if len(s.seen.calls) > s.c.Budget.Calls {
			s.stop(&overBudget{"it made more than " + visible.Count(s.c.Budget.Calls, "call")})
		}
	case onEndTool:
		at, isOpen := s.open[deref(c.ToolCallID)]
		if !isOpen {
			return
		}
		delete(s.open, deref(c.ToolCallID))
		ended := &s.seen.calls[at]
		ended.outcome = callOutcome(c.Error)
		if c.Error != nil {
			ended.reason = c.Error.Message
		}
		s.pushes.called(ended.tool)
	}
}

// compact is a call's arguments as one line, as patterns of rules are tried on them.
func compact(args string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(args)) != nil {
		return args
	}
	return b.String()
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// write writes the observation of a run, and its result, into a file of a directory, and returns
// the file's path.
func (o *observed) write(dir string, r Result) (string, error) {
	name := r.Case
	if r.Variant != "" {
		name += "." + r.Variant
	}
	path := filepath.Join(dir, fmt.Sprintf("%s.%d.jsonl", name, r.Run))
	var text strings.Builder
	out := json.NewEncoder(&text)
	for _, e := range o.transcript {
		_ = out.Encode(struct {
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}{e.Name, e.Data}) // the data came as JSON
	}
	if err := out.Encode(struct {
		Event string `json:"event"`
		Data  Result `json:"data"`
	}{"result", r}); err != nil {
		return "", fmt.Errorf("writing the transcript: %w", err)
	}
	if err := proc.WritePrivate(path, []byte(text.String())); err != nil {
		return "", fmt.Errorf("writing the transcript: %w", err)
	}
	return path, nil
}
