package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Stop ends the session: its providers are told and have until their deadline
// to answer, then its calls end, and its host is closed. It returns when all
// that is done; a second call waits for the first. ctx bounds the wait for the
// providers and the host.
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
	close(s.stopping)
	s.allReady = make(chan struct{})
	told := make([]Peer, 0, len(s.bindings))
	for _, b := range s.bindings {
		b.isUnanswered = true
		b.provider.peer.Send(&protocol.SessionLifecycle{SessionID: s.id, State: protocol.LifecycleShutdownPending, Deadline: protocol.ShutdownDeadline.Milliseconds()})
		told = append(told, b.provider.peer)
	}
	if s.unanswered = len(s.bindings); s.unanswered == 0 {
		close(s.allReady)
	}
	g.touch()
	g.mu.Unlock()
	for _, p := range told {
		p.Flush()
	}
	s.note(LogInfo, sourceGateway, "session is ending: "+reason)
	hooked := s.askEndHooks(ctx, reason)

	deadline := time.NewTimer(protocol.ShutdownDeadline)
	defer deadline.Stop()
	select {
	case <-s.allReady:
	case <-deadline.C:
		g.log.Warn("some providers did not answer the end of the session", "session", s.id)
	case <-ctx.Done():
	}
	s.tearDown()

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.host.Close(closing, reason)
	<-hooked
	s.waitForHooks()
	s.endTurnSpans(nil, "the session has ended")
	s.closeLive()
	s.timeline.close()
	s.pushed.close()
	s.runtime.close()
	g.log.Info("session ended", "session", s.id, "reason", reason)
	if err != nil {
		return fmt.Errorf("closing the session's host: %w", err)
	}
	return nil
}

// tearDown takes the session out of everything and ends its calls.
func (s *Session) tearDown() {
	g := s.g
	s.cancel() // its host need not hear of the tools that go now
	g.mu.Lock()
	var ended []*call
	var told []*Conn
	for _, b := range slices.Clone(s.bindings) {
		s.unbind(b)
		delete(b.provider.records, s.id)
	}
	mine := func(k *call) bool { return k.session == s }
	for c := range g.conns {
		p := c.provider
		if p == nil {
			continue
		}
		// Also calls to tools that were removed since.
		ended = append(ended, p.cancelCalls(mine, protocol.ReasonInterrupted)...)
		// One that has ended has calls of other sessions to answer still.
		if c.is(bound) && len(p.bindings) == 0 && !p.all && !c.identity.ended {
			c.state.Store(int32(unbound))
			c.needsSessionList = true
		}
		told = append(told, c)
	}
	delete(g.sessions, s.id)
	g.order = slices.DeleteFunc(g.order, func(x *Session) bool { return x == s })
	g.endSessionTokens(s.id)
	told = append(told, g.announce()...)
	g.mu.Unlock()
	flush(told)
	finishAll(ended, Outcome{Error: "Cancelled: the session has ended", ErrorCode: protocol.CodeCancelled})
	close(s.quit)
	s.worker.Wait()
	s.failQueued()
	s.signalTurnEnd()
}

// Ended implements [HostCalls]. It does not wait for the end.
func (s *Session) Ended(reason string) {
	if !s.isEnding() {
		gone := "the session's host is gone: " + reason
		s.g.diag.noteError(s.id, "", adminapi.CodeSession, gone)
		s.publish(Event{SessionError: gone})
	}
	go func() {
		if err := s.Stop(context.Background(), reason); err != nil {
			s.g.log.Warn("ending a session", "session", s.id, "error", err)
		}
	}()
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.stopped }
