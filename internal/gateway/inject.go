package gateway

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// pusher is the state of one provider's pushes in a session. Guarded by Session.mu.
type pusher struct {
	name         string
	limit        *rate.Limiter
	dropped      uint64 // pushes over the limits
	queued       int    // injects that wait
	injectStreak int    // delivered without a word from the user and without a quiet time between
	lastInject   time.Time
	isWarned     bool // that its injects are paused
}

// pusherOf finds or adds the pusher of a source. Call with Session.mu held.
func (s *Session) pusherOf(source pushSource) *pusher {
	p := s.pushers[source.id]
	if p == nil {
		p = &pusher{limit: rate.NewLimiter(protocol.PushRate, protocol.PushRate), name: source.name}
		s.pushers[source.id] = p
	}
	return p
}

// isPaused reports whether the provider's injects are only shown: it injected too
// often in a row. This is the guard against loops (docs/adr/0007-push-levels-and-budgets.md).
func (p *pusher) isPaused() bool { return p.injectStreak > protocol.MaxInjectCycles }

// recordInject notes the time of an inject. After a quiet time a new streak begins: a job
// that injects once an hour is no loop.
func (p *pusher) recordInject(quiet time.Duration) {
	now := time.Now()
	if now.Sub(p.lastInject) >= quiet {
		p.resetStreak()
	}
	p.lastInject = now
}

func (p *pusher) resetStreak() { p.injectStreak, p.isWarned = 0, false }

// inject is a push that waits to become a prompt.
type inject struct {
	seq         uint64
	source      pushSource
	stream      string
	text        string // for the timeline
	isShown     bool   // in the timeline, when it came
	prompt      string
	traceparent string // of the push
	report      func(Receipt)
}

// queueInject queues an inject for the worker. Call with Session.mu held.
func (s *Session) queueInject(p *pusher, in *inject) {
	if in.source.isPerson {
		s.resetStreaks()
	}
	p.recordInject(s.g.InjectQuiet())
	p.queued++
	s.injects = append(s.injects, in)
}

// deliver gives the host the queued injects, one at a time while the session is idle.
// The worker calls it.
func (s *Session) deliver() {
	for {
		s.mu.Lock()
		if len(s.injects) == 0 || s.isBusy {
			s.mu.Unlock()
			return
		}
		in := s.injects[0]
		s.injects = s.injects[1:]
		p := s.pushers[in.source.id]
		p.queued--
		isPaused, needsWarning := p.isPaused(), !p.isWarned
		switch {
		case isPaused:
			p.isWarned = true
		case !in.source.isPerson:
			p.injectStreak++
		}
		injectStreak, endedTurns := p.injectStreak, s.endedTurns
		s.mu.Unlock()
		if isPaused {
			s.pauseInject(in, injectStreak, needsWarning)
			continue
		}
		s.publish(Event{Callback: OnGeneratedUserPrompt, Content: in.prompt})
		err := s.send(Prompt{Text: stripEscapes(in.prompt), Mode: adminapi.ModeEnqueue,
			Source: SourceProvider + in.source.name, Traceparent: in.traceparent}, nil)
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

// pauseInject shows an inject of a paused provider instead of delivering it.
func (s *Session) pauseInject(in *inject, injectStreak int, warn bool) {
	s.g.stats.PausedInjects.Add(1)
	until := fmt.Sprintf("until the user speaks or it has injected nothing for %s", s.g.InjectQuiet())
	s.showInject(in)
	if warn {
		s.show(
			adminapi.LogWarning,
			sourceGateway,
			fmt.Sprintf("provider %s injected %d times without a word from the user: "+
				"its injects are only shown %s", in.source.name, injectStreak, until),
		)
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
func (s *Session) resumeInjects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetStreaks()
}

// resetStreaks is [Session.resumeInjects] for callers with Session.mu held.
func (s *Session) resetStreaks() {
	for _, p := range s.pushers {
		p.resetStreak()
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
