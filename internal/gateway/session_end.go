package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Stop ends the session (docs/protocol.md, "The end of a session"): its providers are
// notified and have [protocol.ShutdownDeadline] to answer, then its calls end and its
// host is closed. A second call waits for the first. ctx bounds the wait for the
// providers; the error is that of closing the host.
func (s *Session) Stop(ctx context.Context, reason string) error {
	if s.stopCalled.CompareAndSwap(false, true) {
		return s.stop(ctx, reason)
	}
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Session) stop(ctx context.Context, reason string) error {
	g := s.g
	defer close(s.stopped)
	g.mu.Lock()
	s.endReason = reason
	close(s.stopping)
	g.questions.withdraw(s, protocol.QuestionSessionEnded)
	s.allReady = make(chan struct{})
	peers := make([]Peer, 0, len(s.bindings))
	for _, b := range s.bindings {
		b.isUnanswered = true
		b.tellQuestions()
		b.provider.peer.Send(&protocol.SessionLifecycle{SessionID: s.id,
			State:    protocol.LifecycleShutdownPending,
			Deadline: protocol.ShutdownDeadline.Milliseconds()})
		peers = append(peers, b.provider.peer)
	}
	if s.unanswered = len(s.bindings); s.unanswered == 0 {
		close(s.allReady)
	}
	g.touch()
	g.mu.Unlock()
	flushPeers(peers)
	s.note(adminapi.LogInfo, sourceGateway, "session is ending: "+reason)
	hooksDone := s.askEndHooks(ctx, reason)

	deadline := time.NewTimer(protocol.ShutdownDeadline)
	defer deadline.Stop()
	select {
	case <-s.allReady:
	case <-deadline.C:
		g.o.Log.Warn("some providers did not answer the end of the session", "session", s.id)
	case <-ctx.Done():
	}
	s.tearDown()

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.host.Close(closing, reason)
	<-hooksDone
	s.waitForHooks()
	s.removeUploadDir()
	s.endTurns(nil, "the session has ended")
	s.feed.close()
	s.runtime.close()
	s.endRecordings(reason)
	s.recordState(adminapi.RecordEnd, reason)
	g.o.Log.Info("session ended", "session", s.id, "reason", reason)
	if err != nil {
		return fmt.Errorf("closing the session's host: %w", err)
	}
	return nil
}

// tearDown unbinds the session's providers, removes it from the gateway and ends its
// calls and its worker.
func (s *Session) tearDown() {
	g := s.g
	s.cancel() // first, so that the host gets no lists while the tools go
	g.mu.Lock()
	var ended []*call
	for _, b := range slices.Clone(s.bindings) {
		s.unbind(b)
		b.provider.forget(s.id)
	}
	isOwn := func(c *call) bool { return c.session == s }
	conns := g.connsWhere(isAnyConn)
	for _, c := range conns {
		p := c.provider
		// Providers without a binding have calls too, of tools that they removed since.
		ended = append(ended, p.cancelCalls(isOwn, protocol.ReasonInterrupted)...)
		// A provider whose identity has ended stays as it is: it still answers other sessions'
		// calls.
		if c.is(bound) && len(p.bindings) == 0 && !p.all && !c.identity.ended {
			c.state.Store(int32(unbound))
			c.needsSessionList = true
		}
	}
	delete(g.sessions, s.id)
	g.order = slices.DeleteFunc(g.order, func(x *Session) bool { return x == s })
	g.endSessionTokens(s.id)
	conns = append(conns, g.announce()...)
	g.mu.Unlock()
	flush(conns)
	finishAll(ended, cancelledOutcome("the session has ended"))
	close(s.quit)
	s.worker.Wait()
	s.failQueued()
}

// Ended implements [HostCalls]. It starts [Session.Stop] in a goroutine and returns at
// once. The reason becomes an error of the session in its live feed, unless the session is
// ending already.
func (s *Session) Ended(reason string) {
	if !s.isEnding() {
		gone := "the session's host is gone: " + reason
		s.g.diag.noteError(s.id, "", adminapi.CodeSession, gone)
		s.publish(Event{SessionError: gone})
	}
	go func() {
		if err := s.Stop(context.Background(), reason); err != nil {
			s.g.o.Log.Warn("ending a session", "session", s.id, "error", err)
		}
	}()
}

// Done is closed when the session has ended: its providers are unbound, its calls have
// their outcomes, and its host is closed.
func (s *Session) Done() <-chan struct{} { return s.stopped }
