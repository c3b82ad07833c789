package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Interrupt stops the turn, ends the session's pending calls with CANCELLED and tells
// their providers. Prompts of the queue stay in it, and the first one begins. dropped are
// the first words of prompts that the host had just got and did not begin; the timeline
// names them, and their turns end. The error is INVALID_STATE if the host can't interrupt
// a turn: then only the calls end.
func (s *Session) Interrupt(ctx context.Context, reason string) (dropped []string, err error) {
	s.prompts.mu.Lock()
	s.prompts.lastTurn.Interrupted = shorten(reason)
	s.prompts.mu.Unlock()
	if !s.info.Interrupt {
		s.CancelCalls()
		s.note(adminapi.LogInfo, sourceGateway, "interrupted: "+reason)
		return nil, errorf(protocol.CodeInvalidState,
			"the turn goes on: sessions of host %s can't be interrupted; their calls were "+
				"cancelled", s.info.Kind)
	}
	s.note(adminapi.LogInfo, sourceGateway, "interrupted: "+reason)
	kept := s.prompts.kept()
	if s.info.StopsFirst {
		dropped, err = s.stopAndCancel(ctx, reason)
	} else {
		s.CancelCalls()
		dropped, err = s.host.Interrupt(ctx, reason)
	}
	kept = append(kept, s.prompts.kept()...)
	dropped = slices.DeleteFunc(dropped, func(text string) bool {
		return slices.Contains(kept, text)
	})
	if len(dropped) > 0 {
		s.show(adminapi.LogWarning, sourceGateway, droppedPrompts(dropped))
	}
	for i, text := range dropped {
		dropped[i] = firstWords(text)
	}
	if err != nil {
		return dropped, fmt.Errorf("interrupting the session: %w", err)
	}
	return dropped, nil
}

// kept returns the texts of the prompts that an interrupt does not lose: waiting prompts, and
// prompts that the host got while a turn runs, which come back to the queue. Interrupt calls it
// before and after, because the worker may give the host such a prompt again in between.
func (ps *prompts) kept() (texts []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, q := range ps.queue {
		texts = append(texts, q.prompt.Text)
	}
	for _, q := range ps.given {
		if q.steers && !q.hasBegun {
			texts = append(texts, q.prompt.Text)
		}
	}
	return texts
}

// stopTimeout is how long a host may take to stop a turn before its calls end anyway.
const stopTimeout = 5 * time.Second

// stopAndCancel stops the turn and then ends its calls. In the other order the model
// would go on with the calls' outcomes, and its words on them would be the turn's
// answer.
func (s *Session) stopAndCancel(ctx context.Context, reason string) (dropped []string, err error) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		dropped, err = s.host.Interrupt(ctx, reason)
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
	}
	s.CancelCalls()
	<-stopped
	return dropped, err
}

// maxNamedPrompts is how many dropped prompts [droppedPrompts] names.
const maxNamedPrompts = 5

// droppedPrompts is the line for the timeline that names the prompts that were dropped, at
// least one, by the first words of their texts. It names five and counts the others.
func droppedPrompts(texts []string) string {
	var names []string
	for _, text := range texts[:min(len(texts), maxNamedPrompts)] {
		names = append(names, strconv.Quote(firstWords(text)))
	}
	if more := len(texts) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s that waited %s dropped: %s",
		visible.Count(len(texts), "prompt"), visible.IsAre(len(texts)), strings.Join(names, ", "))
}

// firstWords is the beginning of a text in one line of at most 60 characters.
func firstWords(text string) string {
	const maxLength = 60
	line := []rune(strings.Join(strings.Fields(stripEscapes(text)), " "))
	if len(line) > maxLength {
		return string(line[:maxLength-1]) + "…"
	}
	return string(line)
}

// CancelCalls ends the session's pending calls with CANCELLED and tells their providers
// that they were interrupted. It also withdraws the session's questions and cancels the
// calls whose gates are asked or that wait for a required provider. The turn goes on.
func (s *Session) CancelCalls() {
	g := s.g
	g.questions.withdraw(s, protocol.QuestionWithdrawn)
	s.interruptWaits()
	isOwn := func(c *call) bool { return c.session == s }
	g.mu.Lock()
	var cancelled []*call
	conns := g.connsWhere(isAnyConn)
	for _, c := range conns {
		cancelled = append(cancelled, c.provider.cancelCalls(isOwn, protocol.ReasonInterrupted)...)
	}
	g.mu.Unlock()
	flush(conns)
	finishAll(cancelled, cancelledOutcome("the session was interrupted"))
	s.mu.Lock()
	askingGates := slices.Collect(maps.Keys(s.askingGates))
	s.mu.Unlock()
	for _, p := range askingGates {
		p.Cancel(protocol.ReasonInterrupted)
	}
}
