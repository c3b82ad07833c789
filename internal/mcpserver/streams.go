package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// This file offers a session's streams to MCP clients as resources.

const (
	streamURI      = "tapgw://stream/"
	streamTemplate = streamURI + "{+stream}"
	maxCompleted   = 100     // names in one answer, by the protocol
	readEvents     = 50      // newest events in a resource
	maxTextBytes   = 1 << 20 // of the events in one answer
)

// eventList is the result of reading a stream.
type eventList struct {
	Events []adminapi.StreamRow `json:"events"`
	// for wait_for_event, which goes on after these events
	Cursor string `json:"cursor"`
	Lost   uint64 `json:"lost,omitzero"`  // events of the session that are not kept any more
	Note   string `json:"note,omitempty"` // for the reader
}

// follow makes s the session whose streams are resources. Call with mu held.
func (e *endpoint) follow(s *gateway.Session) {
	if e.endStream != nil {
		e.endStream()
		e.endStream = nil
	}
	e.current = s
	var gone []string
	for uri := range e.streams {
		gone = append(gone, uri)
	}
	clear(e.streams)
	if len(gone) > 0 {
		e.server.RemoveResources(gone...)
	}
	if s == nil || e.ctx.Err() != nil {
		return
	}
	after := s.HistoryCursor() // before the streams are read
	for _, row := range s.History(nil, 1, time.Time{}) {
		e.addStream(row)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	e.endStream = cancel
	e.h.running.Go(func() { e.watchStreams(ctx, s, after) })
}

// addStream makes the stream of an event a resource. Call with mu held.
func (e *endpoint) addStream(row gateway.HistoryRow) {
	name := row.Stream + "@" + row.Provider
	if uri := streamURI + name; !e.streams[uri] {
		e.streams[uri] = true
		e.server.AddResource(&mcp.Resource{URI: uri, Name: name, MIMEType: "application/json",
			Description: fmt.Sprintf("The newest %d events of the stream %s.", readEvents, name)},
			e.readStream)
	}
}

// watchStreams tells the clients that subscribed to a stream of s of its new events, until ctx or s
// ends.
func (e *endpoint) watchStreams(ctx context.Context, s *gateway.Session, after uint64) {
	for s.WaitHistory(ctx, after) == nil {
		rows := s.HistoryAfter(after, nil)
		changed := map[string]bool{}
		e.mu.Lock()
		if ctx.Err() != nil {
			e.mu.Unlock()
			return
		}
		for _, row := range rows {
			after = row.Seq
			e.addStream(row)
			// A subscription may leave the provider out.
			changed[streamURI+row.Stream], changed[streamURI+row.Stream+"@"+row.Provider] = true,
				true
		}
		e.mu.Unlock()
		for uri := range changed {
			_ = e.server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
		}
		if chans.Sleep(ctx, syncPause) != nil { // a fast stream gives one update for many events
			return
		}
	}
}

// complete completes the name of a stream in the template of streams. There is nothing else to
// complete.
func (e *endpoint) complete(
	_ context.Context, r *mcp.CompleteRequest,
) (*mcp.CompleteResult, error) {
	result := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	if ref := r.Params.Ref; ref == nil || ref.URI != streamTemplate ||
		r.Params.Argument.Name != "stream" {
		return result, nil
	}
	e.mu.Lock()
	uris := slices.Sorted(maps.Keys(e.streams))
	e.mu.Unlock()
	c := &result.Completion
	for _, uri := range uris {
		name := strings.TrimPrefix(uri, streamURI)
		if !strings.HasPrefix(name, r.Params.Argument.Value) {
			continue
		}
		if c.Total++; c.Total <= maxCompleted {
			c.Values = append(c.Values, name)
		}
	}
	c.HasMore = c.Total > maxCompleted
	return result, nil
}

// readStream reads a stream as a resource. One without events is empty: it may get some.
func (e *endpoint) readStream(
	_ context.Context, r *mcp.ReadResourceRequest,
) (*mcp.ReadResourceResult, error) {
	name, ok := strings.CutPrefix(r.Params.URI, streamURI)
	s := e.session()
	stream, err := streamName(name)
	if !ok || name == "" || s == nil || err != nil {
		return nil, mcp.ResourceNotFoundError(r.Params.URI)
	}
	text, err := json.Marshal(newest(s, stream, readEvents))
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", r.Params.URI, err)
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{
		URI: r.Params.URI, MIMEType: "application/json", Text: string(text)}}}, nil
}

// streamName checks STREAM or STREAM@PROVIDER, and returns its normal form as a list for
// [gateway.Session.History]; nil for "", all streams.
func streamName(name string) ([]string, error) {
	if name == "" {
		return nil, nil
	}
	stream, provider, isOwned := protocol.SplitStream(name)
	if !protocol.ValidName(stream) || isOwned && !protocol.ValidName(provider) {
		return nil, fmt.Errorf("stream: %q must be STREAM or STREAM@PROVIDER", name)
	}
	name = protocol.NormalName(stream)
	if isOwned {
		name += "@" + protocol.NormalName(provider)
	}
	return []string{name}, nil
}

// newest returns the last events of a stream, oldest first, and the cursor after them.
func newest(s *gateway.Session, stream []string, last int) eventList {
	cursor := s.HistoryCursor() // first: an event that comes meanwhile is not lost
	rows := slices.DeleteFunc(s.History(stream, last, time.Time{}),
		func(r gateway.HistoryRow) bool {
			return r.Seq > cursor
		})
	rows = rows[:min(len(rows), last)]
	list := eventList{Events: []adminapi.StreamRow{}, Cursor: cursorText(s, cursor)}
	for size, i := 0, 0; i < len(rows); i++ {
		if size += textSize(rows[i]); size > maxTextBytes && i > 0 {
			list.Note = "older events are left out, because these are long"
			break
		}
		list.Events = append(list.Events, rows[i].StreamRow)
	}
	slices.Reverse(list.Events)
	return list
}

func textSize(r gateway.HistoryRow) int { return len(r.Event) + len(r.Prompt) + len(r.Metadata) }

// eventsAfter returns the events of a stream after a number, oldest first, at most limit and
// maxTextBytes, and the number of the last one that it looked at. lost counts the events of all
// streams that left the session's memory before.
func eventsAfter(s *gateway.Session, after uint64, stream []string, limit int,
) (events []adminapi.StreamRow, cursor, lost uint64) {
	rows := s.HistoryAfter(after, nil)
	if len(rows) == 0 {
		return nil, after, 0
	}
	lost = rows[0].Seq - after - 1
	size := 0
	for _, row := range rows {
		if !isOf(stream, row) {
			after = row.Seq
			continue
		}
		if size += textSize(row); len(events) == limit || size > maxTextBytes && len(events) > 0 {
			break
		}
		events, after = append(events, row.StreamRow), row.Seq
	}
	return events, after, lost
}

// isOf reports whether an event is of a stream that streamName returned.
func isOf(stream []string, row gateway.HistoryRow) bool {
	return len(stream) == 0 || stream[0] == row.Stream || stream[0] == row.Stream+"@"+row.Provider
}

// cursorText is the number of an event in a session for a client: it tells numbers of other
// sessions apart.
func cursorText(s *gateway.Session, n uint64) string {
	return strconv.FormatUint(n, 10) + "@" + s.ID()
}

// readCursor reads a cursor. One of another session, or of an earlier one with the same id, is the
// beginning: nothing of this session was seen.
func readCursor(s *gateway.Session, text string) (after uint64, err error) {
	number, session, _ := strings.Cut(text, "@")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("after: %q is no cursor; give the cursor of an earlier answer", text)
	}
	if session != s.ID() || n > s.HistoryCursor() {
		return 0, nil
	}
	return n, nil
}
