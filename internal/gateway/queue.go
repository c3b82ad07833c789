package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Prompts that come while a turn runs wait here. See docs/adr/0036-queued-prompts.md.

// maxQueuedPrompts is how many prompts may wait in a session, injects aside.
const maxQueuedPrompts = 100

// prompts are the prompts of a session on their way to its host, injects included, and the
// turns that come of them.
type prompts struct {
	ctx   context.Context // ends when the session is torn down: nothing is queued then
	feed  *feed
	touch func() // see [Gateway.touch]

	// mu guards all that follows, with the prompts, pushers and streaks in it. Below it come
	// streams.mu and feed.mu.
	mu          sync.Mutex
	isBusy      bool
	isBetween   bool   // busy, but no turn runs: the next prompt of the queue begins one
	count       uint64 // the last prompt's id
	queue       []*queuedPrompt
	given       map[string]*queuedPrompt // the host has them, and their turns have not ended; by id
	injects     []*inject                // queued, oldest first
	pushers     map[string]*pusher       // by pushSource.id
	modelStreak streak                   // of all pushers that the model decides about
	userSpokeAt time.Time
	lastTurn    LastTurn
	turns       map[string]*Turn // that somebody reads, by the id of their prompt, until they end
	endedTurns  counter
	isTelling   bool // Idle tells of a turn's end: the worker begins nothing before all know of it
}

func newPrompts(ctx context.Context, f *feed, touch func()) *prompts {
	return &prompts{ctx: ctx, feed: f, touch: touch, given: map[string]*queuedPrompt{},
		pushers: map[string]*pusher{}, turns: map[string]*Turn{}}
}

// nextID returns the id of a new prompt. Call with mu held.
func (ps *prompts) nextID() string {
	ps.count++
	return strconv.FormatUint(ps.count, 10)
}

// queuedPrompt is a prompt on its way to the host. The session keeps prompts that come while a turn
// runs until it is idle: a prompt that the host has can be neither changed nor taken back
// (docs/adr/0036-queued-prompts.md). Guarded by prompts.mu.
type queuedPrompt struct {
	prompt   Prompt
	turn     *Turn     // nil if the prompt's turn is not read
	queuedAt time.Time // when somebody gave it to the session
	goesNow  bool      // the host gets it though a turn runs
	steers   bool      // the host got it while a turn ran
	hasBegun bool      // the host reported it

	cursor     uint64     // of the live feed when it was queued, or when the host got it
	done       chan error // holds one
	isReported bool       // done has it
}

// report tells the prompt's waiter once whether the host took it. Call with prompts.mu held.
func (q *queuedPrompt) report(err error) (isFirst bool) {
	if q.isReported {
		return false
	}
	q.isReported = true
	q.done <- err
	return true
}

// enqueuePrompt gives the worker a prompt, and waits until the host took it or it waits behind the
// turn that runs. t is nil for a caller that does not read the turn.
func (s *Session) enqueuePrompt(ctx context.Context, p Prompt, t *Turn) (*queuedPrompt, error) {
	if !s.info.Send {
		return nil, errorf(protocol.CodeInvalidState, "sessions of host %s take no prompts",
			s.info.Kind)
	}
	if err := s.checkPrompt(p); err != nil {
		return nil, err
	}
	p.Source = cmp.Or(p.Source, SourceUser)
	if p.Source == SourceUser {
		s.prompts.resumeInjects()
	}
	q := &queuedPrompt{
		prompt: p, turn: t, queuedAt: time.Now(), done: make(chan error, 1),
		// such a host says why it can't take it
		goesNow: p.Mode == adminapi.ModeImmediate || s.whyNotNow() != "",
	}
	ps := s.prompts
	ps.mu.Lock()
	switch {
	case s.isEnding():
		ps.mu.Unlock()
		return nil, noSession(s.id)
	case len(ps.queue) >= maxQueuedPrompts:
		ps.mu.Unlock()
		return nil, errorf(protocol.CodeRateLimited, "%d prompts wait in session %s already",
			maxQueuedPrompts, s.id)
	}
	q.prompt.ID = ps.nextID()
	q.cursor = s.feed.last().Live
	if t != nil {
		t.prompt = q.prompt.ID
		ps.turns[t.prompt] = t
		if s.info.Turns {
			t.eventPrompt = t.prompt
		}
	}
	ps.queue = append(ps.queue, q)
	ps.mu.Unlock()
	return q, s.awaitPrompt(ctx, q)
}

func (s *Session) awaitPrompt(ctx context.Context, q *queuedPrompt) error {
	s.wake()
	select {
	case err := <-q.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendQueuedPrompts gives the host the prompts that need not wait. The worker calls it.
func (s *Session) sendQueuedPrompts() {
	for {
		q := s.prompts.next()
		if q == nil {
			break
		}
		s.give(q)
	}
	s.prompts.mu.Lock()
	hasNone := s.prompts.isBetween && len(s.prompts.queue) == 0
	s.prompts.mu.Unlock()
	if hasNone { // the waiting prompt was taken back, or the host refused it
		s.becomeIdle()
	}
}

// isFree reports whether a turn can begin. Call with mu held.
func (ps *prompts) isFree() bool { return !ps.isBusy || ps.isBetween }

// next removes and returns the next prompt that the host should get, or nil.
func (ps *prompts) next() *queuedPrompt {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	isFree := ps.isFree()
	at := slices.IndexFunc(ps.queue, func(q *queuedPrompt) bool { return q.goesNow || isFree })
	if at < 0 {
		for _, q := range ps.queue {
			if q.report(nil) {
				ps.touch()
			}
		}
		return nil
	}
	q := ps.queue[at]
	ps.queue = slices.Delete(ps.queue, at, at+1)
	q.steers = !isFree
	q.cursor = ps.feed.last().Live
	ps.given[q.prompt.ID] = q
	ps.touch()
	return q
}

// give gives the host a prompt that was taken from the queue. The worker calls it.
func (s *Session) give(q *queuedPrompt) {
	q.turn.begin(q.cursor)
	err := s.send(q.prompt)
	s.prompts.mu.Lock()
	if err != nil {
		delete(s.prompts.given, q.prompt.ID)
	}
	isAwaited := q.report(err)
	s.prompts.mu.Unlock()
	if err != nil && !isAwaited {
		s.RemoveUploads(q.prompt.Attachments)
		s.show(adminapi.LogError, sourceGateway,
			fmt.Sprintf("a prompt that waited was not taken: %v: %q",
				err, firstWords(q.prompt.shown())))
		s.TurnEnded([]string{q.prompt.ID}, err.Error())
	}
}

// noteBegun notes that the host began a prompt: it no longer shows as waiting. A host that does not
// tell prompts apart is taken to begin them in order.
func (ps *prompts) noteBegun(e Event) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var oldest *queuedPrompt
	for id, q := range ps.given {
		switch {
		case q.hasBegun || !q.steers:
		case slices.Contains(e.Prompts, id):
			q.hasBegun = true
		case e.Prompts == nil && q.prompt.Text == e.UserMessage &&
			(oldest == nil || q.queuedAt.Before(oldest.queuedAt)):
			oldest = q
		}
	}
	if oldest != nil {
		oldest.hasBegun = true
	}
	ps.touch()
}

// requeue puts prompts back in the queue that the host got while a turn ran and dropped when the
// turn was interrupted. It returns the others.
func (s *Session) requeue(ids []string) (others []string) {
	ps := s.prompts
	ps.mu.Lock()
	var back []*queuedPrompt
	for _, id := range ids {
		q := ps.given[id]
		if q == nil || !q.steers || ps.ctx.Err() != nil {
			others = append(others, id)
			continue
		}
		delete(ps.given, id)
		q.goesNow, q.prompt.Mode = false, adminapi.ModeEnqueue
		back = append(back, q)
	}
	ps.queue = append(back, ps.queue...)
	ps.mu.Unlock()
	if len(back) > 0 {
		s.g.touch()
		s.wake()
	}
	return others
}

// failQueued ends the prompts and injects that the worker did not come to.
func (s *Session) failQueued() {
	ps := s.prompts
	ps.mu.Lock()
	queue, injects := ps.queue, ps.injects
	ps.queue, ps.injects = nil, nil
	var texts []string
	for _, q := range queue {
		if !q.report(noSession(s.id)) {
			texts = append(texts, q.prompt.shown())
		}
	}
	ps.mu.Unlock()
	if len(texts) > 0 {
		s.note(adminapi.LogWarning, sourceGateway, droppedPrompts(texts))
	}
	for _, in := range injects {
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDropped, Reason: "the session has ended"})
	}
}

// Queue lists the prompts that the session has not begun, in their order: first prompts that the
// host got while a turn runs, then waiting prompts, then injects.
func (s *Session) Queue() []adminapi.QueuedPrompt {
	ps := s.prompts
	ps.mu.Lock()
	defer ps.mu.Unlock()
	var list []adminapi.QueuedPrompt
	for _, q := range ps.given {
		if q.steers && !q.hasBegun {
			list = append(list, q.view(s.id, true))
		}
	}
	slices.SortFunc(list, func(a, b adminapi.QueuedPrompt) int {
		return cmp.Or(a.QueuedAt.Compare(b.QueuedAt), strings.Compare(a.ID, b.ID))
	})
	for _, q := range ps.queue {
		if q.isReported { // the others are about to be given to the host
			list = append(list, q.view(s.id, false))
		}
	}
	for _, in := range ps.injects {
		list = append(list, adminapi.QueuedPrompt{ID: in.id, Session: s.id,
			Prompt: stripEscapes(in.prompt), Source: SourceProvider + in.source.name,
			QueuedAt: in.queuedAt})
	}
	return list
}

// shown is the prompt's text as people see it.
func (p Prompt) shown() string { return cmp.Or(p.Shown, p.Text) }

func (q *queuedPrompt) view(session string, isSent bool) adminapi.QueuedPrompt {
	v := adminapi.QueuedPrompt{ID: q.prompt.ID, Session: session, Prompt: q.prompt.shown(),
		Source: q.prompt.Source, QueuedAt: q.queuedAt.UTC(), Sent: isSent}
	for _, a := range q.prompt.Attachments {
		v.Attachments = append(v.Attachments, cmp.Or(a.Name, a.Path))
	}
	return v
}

// Queue lists the queues of all sessions, those of older sessions first.
func (g *Gateway) Queue() []adminapi.QueuedPrompt {
	var list []adminapi.QueuedPrompt
	for _, s := range g.allSessions() {
		list = append(list, s.Queue()...)
	}
	return list
}

// notQueued is the error for a prompt that is not in the queue any more. Call with mu held.
func (ps *prompts) notQueued(id string) error {
	if q := ps.given[id]; q != nil {
		return errorf(protocol.CodeInvalidState,
			"prompt %s was given to the agent meanwhile; it can't be changed or "+
				"taken back: interrupt its turn", id)
	}
	return errorf(protocol.CodeNotFound, "prompt %s does not wait: it has begun, or was cancelled",
		id)
}

// find returns the index of a prompt in the queue of prompts, and of an inject in the queue of
// injects. Each is -1 if the id is not there. Call with mu held.
func (ps *prompts) find(id string) (prompt, injectAt int) {
	return slices.IndexFunc(ps.queue, func(q *queuedPrompt) bool {
			return q.prompt.ID == id && q.isReported
		}),
		slices.IndexFunc(ps.injects, func(in *inject) bool { return in.id == id })
}

// EditQueued changes the text of a prompt that waits. The error is NOT_FOUND or INVALID_STATE if
// the prompt does not wait any more, and INVALID_STATE for an inject: its words are its provider's.
func (s *Session) EditQueued(id, text string) error {
	ps := s.prompts
	ps.mu.Lock()
	defer ps.mu.Unlock()
	prompt, at := ps.find(id)
	switch {
	case at >= 0:
		return errorf(protocol.CodeInvalidState,
			"prompt %s is of provider %s: cancel it and send one of your own", id,
			ps.injects[at].source.name)
	case prompt < 0:
		return ps.notQueued(id)
	case ps.queue[prompt].prompt.Shown != "":
		return errorf(protocol.CodeInvalidState,
			"a command made prompt %s: cancel it and send one of your own", id)
	}
	ps.queue[prompt].prompt.Text = text
	ps.touch()
	return nil
}

// CancelQueued takes back a prompt or an inject that waits. The errors are those of
// [Session.EditQueued].
func (s *Session) CancelQueued(id string) error {
	const why = "cancelled before its turn"
	ps := s.prompts
	ps.mu.Lock()
	prompt, at := ps.find(id)
	switch {
	case at >= 0:
		in := ps.takeInject(at)
		ps.mu.Unlock()
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDropped, Reason: why})
	case prompt >= 0:
		attached := ps.queue[prompt].prompt.Attachments
		ps.queue = slices.Delete(ps.queue, prompt, prompt+1)
		ps.mu.Unlock()
		s.RemoveUploads(attached)
		s.TurnEnded([]string{id}, why)
	default:
		defer ps.mu.Unlock()
		return ps.notQueued(id)
	}
	s.g.touch()
	s.wake()
	return nil
}

// SendQueued gives the host a prompt or an inject that waits, into the turn that runs. The error is
// that of [Session.EditQueued], or the host's: then the prompt waits on.
func (s *Session) SendQueued(ctx context.Context, id string) error {
	if why := s.whyNotNow(); why != "" {
		return errorf(protocol.CodeInvalidState, "prompt %s waits on: %s", id, why)
	}
	ps := s.prompts
	ps.mu.Lock()
	prompt, at := ps.find(id)
	switch {
	case at >= 0:
		in := ps.takeInject(at)
		q := &queuedPrompt{prompt: in.asPrompt(), queuedAt: in.queuedAt, goesNow: true,
			done: make(chan error, 1)}
		q.prompt.Mode = adminapi.ModeImmediate
		ps.queue = slices.Insert(ps.queue, 0, q)
		endedTurns := ps.endedTurns.value()
		ps.mu.Unlock()
		s.publish(Event{Callback: OnGeneratedUserPrompt, Content: in.prompt})
		err := s.awaitPrompt(ctx, q)
		r := Receipt{Seq: in.seq, Fate: adminapi.FateDelivered, turn: endedTurns}
		if err != nil {
			s.showInject(in)
			r = Receipt{Seq: in.seq, Fate: adminapi.FateSurfaced, Reason: err.Error()}
		}
		in.report(r)
		return err
	case prompt >= 0:
		q := ps.queue[prompt]
		now := *q // of its own, so that it waits on if the host refuses it
		now.goesNow, now.isReported, now.done = true, false, make(chan error, 1)
		now.prompt.Mode = adminapi.ModeImmediate
		ps.queue = slices.Insert(slices.Delete(ps.queue, prompt, prompt+1), 0, &now)
		ps.mu.Unlock()
		err := s.awaitPrompt(ctx, &now)
		if err != nil && ctx.Err() == nil && s.ctx.Err() == nil {
			ps.mu.Lock()
			ps.queue = slices.Insert(ps.queue, 0, q)
			ps.mu.Unlock()
			s.g.touch()
			s.wake()
		}
		return err
	}
	defer ps.mu.Unlock()
	return ps.notQueued(id)
}
