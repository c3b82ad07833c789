package gateway

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// pusher is the state of one provider's pushes in a session. Guarded by prompts.mu.
type pusher struct {
	name    string
	limit   *rate.Limiter
	dropped uint64  // pushes over the limits
	queued  int     // injects that wait
	streak  *streak // its own, or that of all providers of the session's model
}

// streak counts injects that were delivered without a word from the user and without a quiet time
// between. Guarded by prompts.mu.
type streak struct {
	count      int
	lastInject time.Time
	isWarned   bool // that the injects are paused
}

// pusherOf finds or adds the pusher of a source. Call with mu held.
func (ps *prompts) pusherOf(source pushSource) *pusher {
	p := ps.pushers[source.id]
	if p == nil {
		p = &pusher{limit: rate.NewLimiter(protocol.PushRate, protocol.PushRate), name: source.name,
			streak: &streak{}}
		if source.isModel() { // else a model that starts another one would begin a new streak
			p.streak = &ps.modelStreak
		}
		ps.pushers[source.id] = p
	}
	return p
}

// isPaused reports whether the injects are only shown: there were too many in a row.
// This is the guard against loops (docs/adr/0007-push-levels-and-budgets.md).
func (k *streak) isPaused() bool { return k.count > protocol.MaxInjectCycles }

// recordInject notes the time of an inject. After a quiet time a new streak begins: a job
// that injects once an hour is no loop.
func (k *streak) recordInject(quiet time.Duration) {
	now := time.Now()
	if now.Sub(k.lastInject) >= quiet {
		k.reset()
	}
	k.lastInject = now
}

func (k *streak) reset() { k.count, k.isWarned = 0, false }

// inject is a push that waits to become a prompt.
type inject struct {
	id          string // as a prompt
	queuedAt    time.Time
	seq         uint64
	source      pushSource
	stream      string
	text        string // for the timeline
	isShown     bool   // in the timeline, when it came
	prompt      string
	traceparent string // of the push
	report      func(Receipt)
}

// queueInject queues an inject for the worker. quiet is as in recordInject. Call with mu held.
func (ps *prompts) queueInject(p *pusher, in *inject, quiet time.Duration) {
	if in.source.isPerson {
		ps.resetStreaks()
	}
	p.streak.recordInject(quiet)
	p.queued++
	in.id, in.queuedAt = ps.nextID(), time.Now().UTC()
	ps.injects = append(ps.injects, in)
	ps.touch()
}

// takeInject takes a queued inject, by its place. Call with mu held.
func (ps *prompts) takeInject(at int) *inject {
	in := ps.injects[at]
	ps.injects = slices.Delete(ps.injects, at, at+1)
	ps.pushers[in.source.id].queued--
	ps.touch()
	return in
}

// deliver gives the host the queued injects, one at a time while the session is idle.
// The worker calls it.
func (s *Session) deliver() {
	for s.whyNotNow() == "" {
		in, endedTurns := s.nextInject(true)
		if in == nil {
			return
		}
		err := s.send(in.asPrompt())
		if err != nil {
			s.showInject(in)
			s.show(adminapi.LogWarning, sourceGateway,
				fmt.Sprintf("an inject of provider %s was not taken: %v", in.source.name, err))
			in.report(Receipt{Seq: in.seq, Fate: adminapi.FateSurfaced, Reason: err.Error()})
			continue
		}
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDelivered, turn: endedTurns})
	}
}

// nextInject takes the oldest inject whose provider is not paused from the queue, and announces it.
// It returns nil without such an inject, and with whenIdle also while the session is busy.
// endedTurns is for the inject's receipt.
func (s *Session) nextInject(whenIdle bool) (in *inject, endedTurns uint64) {
	ps := s.prompts
	for {
		ps.mu.Lock()
		if len(ps.injects) == 0 || whenIdle && ps.isBusy {
			ps.mu.Unlock()
			return nil, 0
		}
		in := ps.takeInject(0)
		p := ps.pushers[in.source.id]
		isPaused, needsWarning := p.streak.isPaused(), !p.streak.isWarned
		switch {
		case isPaused:
			p.streak.isWarned = true
		case !in.source.isPerson && !in.source.isBudgeted():
			p.streak.count++
		}
		count, endedTurns := p.streak.count, ps.endedTurns.value()
		ps.mu.Unlock()
		if !isPaused {
			s.publish(Event{Callback: OnGeneratedUserPrompt, Content: in.prompt})
			return in, endedTurns
		}
		s.pauseInject(in, count, needsWarning)
	}
}

func (in *inject) asPrompt() Prompt {
	return Prompt{ID: in.id, Text: stripEscapes(in.prompt), Mode: adminapi.ModeEnqueue,
		Source: SourceProvider + in.source.name, Traceparent: in.traceparent}
}

// whyNotNow says why the host would not take an inject now; "" if it would.
func (s *Session) whyNotNow() string {
	if s.info.WhyNotNow != nil {
		return s.info.WhyNotNow()
	}
	return ""
}

// RetryInjects delivers the queued injects, after the answer of [HostInfo].WhyNotNow has changed.
func (s *Session) RetryInjects() { s.wake() }

// TakeInject takes the oldest queued inject, for a host that gives it to its agent in its own way,
// in a running turn too. The prompt's text has no escapes. It counts as delivered. ok is false if
// the queue is empty or has only injects of paused providers, which the session shows as always.
func (s *Session) TakeInject() (p Prompt, ok bool) {
	in, endedTurns := s.nextInject(false)
	if in == nil {
		return Prompt{}, false
	}
	in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDelivered, turn: endedTurns})
	return in.asPrompt(), true
}

// WithdrawInjects takes back the injects of a pass's providers that wait for the session to be
// idle. They stay in their streams.
func (s *Session) WithdrawInjects(p *Pass) {
	var withdrawn []*inject
	ps := s.prompts
	ps.mu.Lock()
	ps.injects = slices.DeleteFunc(ps.injects, func(in *inject) bool {
		isOf := in.source.pass == p.identity
		if isOf {
			withdrawn = append(withdrawn, in)
			ps.pushers[in.source.id].queued--
		}
		return isOf
	})
	ps.mu.Unlock()
	s.g.touch()
	for _, in := range withdrawn {
		in.report(Receipt{Seq: in.seq, Fate: adminapi.FateDropped,
			Reason: "its provider has withdrawn it"})
	}
}

// pauseInject shows an inject of a paused provider instead of delivering it.
func (s *Session) pauseInject(in *inject, count int, warn bool) {
	s.g.stats.PausedInjects.Add(1)
	who, whose, they := "provider "+in.source.name, "its", "it has"
	if in.source.isModel() {
		who, whose, they = "the model's emitters", "their", "they have"
	}
	until := fmt.Sprintf("until the user speaks or %s injected nothing for %s", they,
		s.g.InjectQuiet())
	s.showInject(in)
	if warn {
		s.show(adminapi.LogWarning, sourceGateway,
			fmt.Sprintf("%s injected %d times without a word from the user: "+
				"%s injects are only shown %s", who, count, whose, until))
	}
	in.report(Receipt{Seq: in.seq, Fate: adminapi.FateSurfaced,
		Reason: "paused: too many injects without the user; they are only shown " + until})
}

// showInject shows an inject that is not delivered, unless it was shown when it came.
func (s *Session) showInject(in *inject) {
	if !in.isShown {
		s.show(adminapi.LogInfo, streamLabel(in.source.name, in.stream), in.text)
	}
}

// resumeInjects ends the pauses of all providers: the user spoke.
func (ps *prompts) resumeInjects() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.resetStreaks()
}

// UserSpokeAt is when the session's user last said something, in this gateway. It is zero before
// that.
func (s *Session) UserSpokeAt() time.Time {
	s.prompts.mu.Lock()
	defer s.prompts.mu.Unlock()
	return s.prompts.userSpokeAt
}

// resetStreaks is resumeInjects for callers with mu held.
func (ps *prompts) resetStreaks() {
	ps.userSpokeAt = time.Now()
	for _, p := range ps.pushers {
		p.streak.reset()
	}
}

// DefaultInjectQuiet is how long a provider must inject nothing until its injects count as
// a new streak, unless [Gateway.SetInjectQuiet] says another time. See docs/protocol.md,
// "Pushes".
const DefaultInjectQuiet = 10 * time.Minute

// InjectQuiet is how long a provider must inject nothing in this gateway until its injects
// count as a new streak; always more than 0.
func (g *Gateway) InjectQuiet() time.Duration {
	if d := g.injectQuiet.Load(); d > 0 {
		return time.Duration(d)
	}
	return DefaultInjectQuiet
}

// SetInjectQuiet changes [Gateway.InjectQuiet], also for streaks that have begun; 0 or less
// sets [DefaultInjectQuiet].
func (g *Gateway) SetInjectQuiet(d time.Duration) { g.injectQuiet.Store(int64(d)) }
