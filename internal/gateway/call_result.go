package gateway

import (
	"cmp"
	"fmt"
	"mime"
	"slices"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Messages of providers about the calls that they run: results, progress and errors.

// toolResult finishes the call that a provider answers. An answer to a call that has
// ended is ignored; one to a call that never was is a protocol error, see failFast.
func (c *Conn) toolResult(m *protocol.ToolResult) {
	id, pending := c.pendingCall(m.ID)
	if pending == nil {
		if !c.isLateAnswer(m.ID) {
			err := errorf(protocol.CodeUnknownCallID, "tool.result.id: no call has the id %q", m.ID)
			c.failFast(err, "", Outcome{ErrorCode: protocol.CodeInternal,
				Error: fmt.Sprintf("protocol error: the provider answered a call that nobody "+
					"made (%q)", m.ID)})
		}
		return
	}
	p := c.provider
	p.mu.Lock()
	answered := p.removePending(id)
	p.mu.Unlock()
	if answered == nil { // its timeout was faster
		c.g.stats.Ignored.Add(1)
		return
	}
	if m.File != nil && !m.Failed() {
		c.g.finishWithFile(p, answered, *m.File)
		return
	}
	if !m.Failed() &&
		slices.ContainsFunc(m.Content, func(p protocol.Part) bool { return p.File != nil }) {
		c.g.finishWithParts(p, answered, m)
		return
	}
	o := newOutcome(m)
	// Providers give calls up when their session ends, and few say why.
	if s := answered.session; o.ErrorCode == protocol.CodeCancelled && s.isEnding() {
		o.Error = cancelledText(s.endReason)
	}
	o.Batch = c.opts.Batch
	answered.finish(o)
}

// newOutcome is the outcome that a result means. A result with both data and an error
// is an error.
func newOutcome(m *protocol.ToolResult) Outcome {
	if !m.Failed() {
		return Outcome{Data: m.Data, Content: m.Content}
	}
	o := Outcome{Error: m.Error, ErrorCode: m.ErrorCode.ResultCode(), Retryable: m.Retryable}
	if o.Error == "" {
		o.Error = string(m.ErrorCode)
	}
	return o
}

// finishWithFile finishes a call whose result is a file. It reads the file in a
// goroutine, which [Gateway.Drain] waits for.
func (g *Gateway) finishWithFile(p *Provider, answered *call, ref protocol.FileRef) {
	g.fileReads.Go(func() {
		f, err := g.readResult(p, "tool.result.file", ref)
		if err != nil {
			answered.finish(Outcome{Error: err.Message, ErrorCode: err.Code})
			return
		}
		answered.finish(Outcome{File: f})
	})
}

// finishWithParts finishes a call whose result has parts in files, as finishWithFile does.
func (g *Gateway) finishWithParts(p *Provider, answered *call, m *protocol.ToolResult) {
	g.fileReads.Go(func() {
		total := 0
		for i := range m.Content {
			part := &m.Content[i]
			if part.File == nil {
				continue
			}
			field := fmt.Sprintf("tool.result.content[%d].file", i)
			f, err := g.readResult(p, field, *part.File)
			if err == nil {
				if total += len(f.Content); total > protocol.MaxFile {
					err = errorf(protocol.CodePayloadTooLarge,
						"%s: the files of a result are over 64 MiB", field)
				}
			}
			if err != nil {
				answered.finish(Outcome{Error: err.Message, ErrorCode: err.Code})
				return
			}
			part.Data, part.MimeType = f.Content, cmp.Or(part.MimeType, f.MimeType)
		}
		answered.finish(newOutcome(m))
	})
}

// readResult reads a file that a result names in a field.
func (g *Gateway) readResult(
	p *Provider, field string, ref protocol.FileRef,
) (*File, *protocol.Error) {
	if g.o.ReadFile == nil || p.trust == TrustExternal || p.gateway != "" {
		return nil, errorf(protocol.CodeUnauthorized,
			"%s: a provider without a persistDir has no files to name", field)
	}
	f, err := g.o.ReadFile(p.name, ref)
	if err != nil {
		return nil, errorf(protocol.CodeInternal, "%s: %v", field, err)
	}
	if t, _, err := mime.ParseMediaType(f.MimeType); err == nil {
		f.MimeType = t
	}
	return f, nil
}

// toolProgress shows a provider's message about a running call in the session's timeline.
func (c *Conn) toolProgress(m *protocol.ToolProgress) {
	_, pending := c.pendingCall(m.ID)
	if pending == nil {
		c.g.stats.Ignored.Add(1)
		return
	}
	pending.session.showOf(pending.hostID, adminapi.LogInfo, c.provider.name,
		pending.tool.Name+": "+m.Message)
	if pending.progress != nil {
		pending.progress(m.Message)
	}
}

// pendingCall returns the provider's pending call with an id, or nil. Only the connection's reader
// may call it: c.provider changes only there.
func (c *Conn) pendingCall(id string) (uuid.UUID, *call) {
	p := c.provider
	key, err := uuid.Parse(id)
	if p == nil || err != nil {
		return key, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return key, p.pending[key]
}

// pendingCall returns the session's pending call with an id, of any provider, or nil. Call it
// without holding a lock.
func (s *Session) pendingCall(id string) *call {
	key, err := uuid.Parse(id)
	if err != nil {
		return nil
	}
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	for _, b := range s.bindings {
		p := b.provider
		p.mu.Lock()
		c := p.pending[key]
		p.mu.Unlock()
		if c != nil && c.session == s {
			return c
		}
	}
	return nil
}

// isLateAnswer reports whether an id is that of a call that has ended, and counts the
// ignored answer. A slot that the call kept is freed.
func (c *Conn) isLateAnswer(id string) bool {
	p := c.provider
	key, err := uuid.Parse(id)
	if p == nil || err != nil {
		return false
	}
	p.mu.Lock()
	ended := p.ended.has(key)
	p.mu.Unlock()
	if ended {
		p.releaseKeptSlot(key)
		c.g.stats.Ignored.Add(1)
	}
	return ended
}

// failFast reports err about a message that can't be understood. It also ends the call that the
// message may have answered, so that no caller waits for its timeout: the pending call with the id,
// or else the only call that the provider was sent. If the provider was sent several, failFast
// closes the connection, and all of them end with DISCONNECTED. See docs/protocol.md, "Calls".
//
// It chooses the call before the provider reads the error, so it never ends a call that begins
// after that.
func (c *Conn) failFast(err *protocol.Error, id string, o Outcome) {
	failed, several := c.maybeAnswered(id)
	c.reportError(err)
	switch {
	case failed != nil:
		failed.finish(o)
	case several:
		c.close(protocol.CloseFailedFast, "cannot tell which call was answered")
	}
}

// maybeAnswered removes and returns the pending call that a message with that id may answer.
// several says that it may be one of several calls.
func (c *Conn) maybeAnswered(id string) (answered *call, several bool) {
	p := c.provider
	if p == nil {
		return nil, false
	}
	key, err := uuid.Parse(id)
	named := id != "" && err == nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if named && p.ended.has(key) {
		return nil, false
	}
	if named {
		if answered = p.removePending(key); answered != nil {
			return answered, false
		}
	}
	var sent []uuid.UUID // a call that waits for a slot can't have been answered
	for id, pending := range p.pending {
		if pending.isSent {
			sent = append(sent, id)
		}
	}
	if len(sent) == 1 {
		answered = p.removePending(sent[0])
	}
	return answered, len(sent) > 1
}

// tombstones are the ids of the last [protocol.MaxFinishedCalls] calls that ended. They
// tell a late answer from an answer to a call that never was.
//
// A late answer is rare, and so the ids are searched: a map would cost each call an entry.
type tombstones struct {
	ring []uuid.UUID
	next int
}

func (t *tombstones) add(id uuid.UUID) {
	if len(t.ring) < protocol.MaxFinishedCalls {
		t.ring = append(t.ring, id)
		return
	}
	t.ring[t.next] = id
	t.next = (t.next + 1) % len(t.ring)
}

func (t *tombstones) has(id uuid.UUID) bool { return slices.Contains(t.ring, id) }
