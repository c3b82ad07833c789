package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

const (
	// progressEvery is how often a call tells a client that asked for progress that it goes on.
	// Some clients give a call up after 60 s of silence.
	progressEvery = 20 * time.Second
	defaultWait   = 45 * time.Second // clients that ask for no progress wait longer
	maxWait       = time.Hour
	maxEvents     = 100 // in one answer
)

// ownTool is a tool of the endpoint itself. add adds it to the server under a name.
type ownTool struct {
	name string
	add  func(name string)
}

type pushInput struct {
	Event  string `json:"event"            jsonschema:"what happened, in plain words"`
	Stream string `json:"stream,omitempty" jsonschema:"the stream that stores it (default mcp)"`
	Level  string `json:"level,omitempty"  jsonschema:"keep stores it (default), surface also shows it to the person, inject gives it to the session's model as a prompt"`
}

type queryInput struct {
	Stream string `json:"stream,omitempty" jsonschema:"STREAM or STREAM@PROVIDER; without it all streams"`
	Last   int    `json:"last,omitempty"   jsonschema:"how many of the newest events, at most 100 (default 20)"`
}

type waitInput struct {
	Stream  string  `json:"stream,omitempty"         jsonschema:"STREAM or STREAM@PROVIDER; without it all streams"`
	After   string  `json:"after,omitempty"          jsonschema:"the cursor of an earlier answer: events after it count, so none is lost in between; without it only new events count"`
	Timeout float64 `json:"timeoutSeconds,omitempty" jsonschema:"how long to wait for an event, at most 3600 (default 45)"`
}

// ownTools are the endpoint's own tools: those for streams, and those to search tools where the
// session has too many.
func (e *endpoint) ownTools(many bool) []ownTool {
	own := []ownTool{
		{"push", func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Push an event",
				Description: "Store an event in a stream of the session, for its other agents " +
					"and people.",
				Annotations: &mcp.ToolAnnotations{DestructiveHint: new(false),
					OpenWorldHint: new(false)},
			}, e.push)
		}},
		{"query", func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Read streams",
				Description: "Read the newest events of the session's streams, oldest first, " +
					"with a cursor for wait_for_event.",
				Annotations: readOnly(),
			}, e.query)
		}},
		{"wait_for_event", func(name string) {
			mcp.AddTool(e.server, &mcp.Tool{Name: name, Title: "Wait for an event",
				Description: "Wait until a stream of the session gets an event, and return it. " +
					"When none comes in time, events is empty: call again with after, the " +
					"cursor, to go on waiting.",
				Annotations: readOnly(),
			}, e.waitForEvent)
		}},
	}
	if many {
		own = append(own, e.searchTools()...)
	}
	return own
}

func readOnly() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)}
}

// answer is a result with a structure, and the same as text.
func answer(v any) (*mcp.CallToolResult, any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the answer: %w", err)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}},
		StructuredContent: json.RawMessage(text)}, nil, nil
}

// refuse is a result with an error.
func refuse(code protocol.Code, text string) (*mcp.CallToolResult, any, error) {
	return failed(code, text), nil, nil
}

// push is the tool push. Its injects are not the user's words: they count as a provider's.
func (e *endpoint) push(
	ctx context.Context, _ *mcp.CallToolRequest, in pushInput,
) (*mcp.CallToolResult, any, error) {
	s := e.session()
	if s == nil {
		return refuse(protocol.CodeInvalidSession, errNoSession)
	}
	level := protocol.Level(cmp.Or(in.Level, string(protocol.LevelKeep)))
	receipt, err := s.PushForAgent(ctx, source, &protocol.Push{Stream: in.Stream, Event: in.Event,
		Level: level})
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return refuse(e.Code, e.Message)
	}
	if err != nil {
		return refuse(protocol.CodeInternal, err.Error())
	}
	return answer(struct {
		Seq    uint64 `json:"seq"`
		Fate   string `json:"fate"`
		Reason string `json:"reason,omitempty"`
	}{receipt.Seq, string(receipt.Fate), receipt.Reason})
}

// query is the tool query.
func (e *endpoint) query(
	_ context.Context, _ *mcp.CallToolRequest, in queryInput,
) (*mcp.CallToolResult, any, error) {
	s := e.session()
	stream, err := streamName(in.Stream)
	switch {
	case s == nil:
		return refuse(protocol.CodeInvalidSession, errNoSession)
	case err != nil:
		return refuse(protocol.CodeInvalidArguments, err.Error())
	case in.Last < 0 || in.Last > maxEvents:
		return refuse(protocol.CodeInvalidArguments, fmt.Sprintf("last: must be from 1 to %d",
			maxEvents))
	}
	return answer(newest(s, stream, cmp.Or(in.Last, protocol.DefaultQueryLast)))
}

// waitForEvent is the tool wait_for_event. It waits in the session in which it began.
func (e *endpoint) waitForEvent(ctx context.Context, r *mcp.CallToolRequest, in waitInput,
) (*mcp.CallToolResult, any, error) {
	s := e.session()
	if s == nil {
		return refuse(protocol.CodeInvalidSession, errNoSession)
	}
	stream, err := streamName(in.Stream)
	after := s.HistoryCursor()
	if err == nil && in.After != "" {
		after, err = readCursor(s, in.After)
	}
	wait := defaultWait
	if in.Timeout != 0 {
		wait = time.Duration(in.Timeout * float64(time.Second))
		if in.Timeout < 0 || in.Timeout > maxWait.Seconds() {
			err = fmt.Errorf("timeoutSeconds: must be more than 0, and at most %g",
				maxWait.Seconds())
		}
	}
	if err != nil {
		return refuse(protocol.CodeInvalidArguments, err.Error())
	}
	list, err := poll(ctx, s, after, stream, wait, func(n int) {
		progress(ctx, r, n, "waiting for an event")
	})
	if err != nil {
		return nil, nil, err
	}
	return answer(list)
}

// poll waits for events of a stream after a number. At the limit, and at the session's end, the
// list is empty and says why. The error is that of ctx.
func poll(ctx context.Context, s *gateway.Session, after uint64, stream []string,
	limit time.Duration, report func(n int)) (eventList, error) {
	end, due := time.Now().Add(limit), time.Now().Add(progressEvery)
	list := eventList{Events: []adminapi.StreamRow{}}
	for n := 1; ; {
		events, cursor, lost := eventsAfter(s, after, stream, maxEvents)
		after = cursor
		list.Lost += lost
		list.Cursor = cursorText(s, after)
		if len(events) > 0 {
			list.Events = events
			return list, nil
		}
		// Events of other streams end a wait, too.
		step, cancel := context.WithTimeout(ctx, max(min(time.Until(due), time.Until(end)), 0))
		err := s.WaitHistory(step, after)
		cancel()
		switch {
		case err == nil && time.Now().Before(due) && time.Now().Before(end):
		case ctx.Err() != nil:
			return list, ctx.Err()
		case errors.Is(err, gateway.ErrSessionEnded):
			list.Note = "the session has ended: no event will come"
			return list, nil
		case !time.Now().Before(end):
			list.Note = fmt.Sprintf(
				"no event came within %s; call again with after to go on waiting", limit)
			return list, nil
		default:
			report(n)
			n, due = n+1, time.Now().Add(progressEvery)
		}
	}
}
