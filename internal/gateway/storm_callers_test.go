package gateway

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"tapgw/internal/protocol"
)

const (
	stormTools  = 7  // t0 to t6
	longestTool = 50 // the longest of their timeouts, in units
)

// stormArgs are a call's arguments: its number, and the instance that it is for.
// No gate about a frozen or thawing call is answered; a gate about a thawing call
// fails open.
type stormArgs struct {
	N       int64  `json:"n"`
	To      string `json:"to"`
	Frozen  bool   `json:"frozen"`
	Thawing bool   `json:"thawing"`
}

// runCaller makes calls and the requests that hosts make.
func (w *world) runCaller(r *rand.Rand) {
	for {
		pause(r, 16)
		n, ok := w.nextCall(r)
		if !ok {
			return
		}
		s := w.randomSession(r)
		if r.IntN(50) == 0 {
			w.runPrompt(s, r)
		}
		extra := ""
		if r.IntN(300) == 0 { // a slow call, in the calm session
			s = w.sessions[calmSession].Load()
			extra = []string{`,"frozen":true`, `,"thawing":true`}[r.IntN(2)]
		}
		c := w.newCall(n, s, extra, r)
		if s.info.Hooks && !c.AskGates && !w.askGatesAsHost(s, c, r) {
			continue
		}
		w.made.Add(1)
		way, most := r.IntN(8), longestDuration(s, c)
		patience := time.Duration(r.IntN(15)) * unit
		if way < 2 {
			most = min(most, patience)
		}
		var o Outcome
		done := make(chan struct{})
		e, begun := w.record(n), time.Now()
		end := func(got Outcome) {
			if e.ended.Add(1) != 1 {
				w.t.Errorf("call %d ended again, with %s", n, got.Text())
				return
			}
			if took := time.Since(begun); took > most+margin {
				w.t.Errorf("call %d to %s took %s, %s is the most: %s", n, c.Name, took, most,
					got.Text())
			}
			o, e.code = got, got.ErrorCode
			w.checkOutcome(n, c, o)
			w.ended.Add(1)
			close(done)
		}
		switch way {
		case 0: // gives up
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				end(s.CallTool(ctx, c))
			}()
		case 1:
			call := s.BeginCall(c, end)
			sleep(patience)
			call.Cancel("given up")
			call.Cancel("given up again")
		case 2, 3:
			go func() { end(s.CallTool(context.Background(), c)) }()
		case 4: // does not wait
			s.BeginCall(c, end)
			continue
		default:
			s.BeginCall(c, end)
		}
		stuck := time.NewTimer(most + margin + time.Second)
		select {
		case <-done:
			stuck.Stop()
		case <-stuck.C:
			w.t.Errorf("call %d to %s does not end", n, c.Name)
			return
		}
		switch o.ErrorCode {
		case protocol.CodeNotFound, protocol.CodeRateLimited, protocol.CodeDisconnected:
			// Until it is better.
			pause(r, 40)
		}
	}
}

// newCall makes call n; extra are more arguments of it.
func (w *world) newCall(n int64, s *Session, extra string, r *rand.Rand) Call {
	c := Call{Name: fmt.Sprintf("t%d", r.IntN(stormTools)), AskGates: s.info.Hooks &&
		r.IntN(4) == 0}
	if list := s.routes.Load().list; len(list) > 0 && r.IntN(30) != 0 {
		c.Name = list[r.IntN(len(list))].name
		if strings.HasPrefix(c.Name, "list_") && r.IntN(4) != 0 {
			c.Name = list[r.IntN(len(list))].name
		}
	}
	args := fmt.Sprintf(`"n":%d`, n) + extra
	if c.Name == "t0" && r.IntN(4) == 0 {
		to := r.IntN(5) // there is no instance 4
		args += fmt.Sprintf(`,"to":"%d","target":"%d"`, to, to)
	}
	switch {
	case extra != "":
	case r.IntN(3) == 0:
		c.Timeout = time.Duration(1+r.IntN(20)) * unit
	case r.IntN(30) == 0:
		args = `"n":"x"`
	}
	c.Args = protocol.Raw("{" + args + "}")
	return c
}

// longestDuration is the longest time that a call may take.
func longestDuration(s *Session, c Call) time.Duration {
	most := longestTool * unit
	if !s.info.Hooks || c.AskGates {
		// The time for the gates, and for a gate that is asked again at the end of it.
		most += 2 * protocol.GateTimeout
	}
	if c.Timeout > 0 {
		most = min(most, c.Timeout)
	}
	return most
}

// checkOutcome checks the outcome of call n.
func (w *world) checkOutcome(n int64, c Call, o Outcome) {
	w.tally.add(w.outcomeName(o))
	switch {
	case o.Failed():
	case strings.HasPrefix(c.Name, "list_"):
		w.tally.add("call: ok, of a meta-tool")
	case o.File != nil:
		if w.tally.add("call: ok, a file"); o.File.Name != fmt.Sprint(n) {
			w.t.Errorf("call %d was answered with file %s", n, o.File.Name)
		}
	case !bytes.Equal(o.Data, fmt.Appendf(nil, `{"n":%d}`, n)):
		w.t.Errorf("call %d was answered with %s", n, o.Data)
	}
}

// askGatesAsHost asks the gates as a host with hooks does; false if they deny.
func (w *world) askGatesAsHost(s *Session, c Call, r *rand.Rand) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	most := protocol.GateTimeout
	if c.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		most = c.Timeout
	}
	begun := time.Now()
	d := s.PreToolUse(ctx, c.Name, c.Args)
	if took := time.Since(begun); took > most+margin {
		w.t.Errorf("the gates took %s of a host that asked", took)
	}
	switch {
	case d.Deny:
		w.tally.add("host asks gates: denied")
	case d.Context != "":
		w.tally.add("host asks gates: allowed with context")
	default:
		w.tally.add("host asks gates: allowed")
	}
	return !d.Deny
}

// runPrompt asks for the context of a user's prompt.
func (w *world) runPrompt(s *Session, r *rand.Rand) {
	if s.UserPrompt(context.Background(), "x", "") != "" {
		w.tally.add("prompt: with context")
	}
	sections := map[string]string{"tone": "base", "safety": "base"}
	if r.IntN(20) == 0 {
		sections["frozen"] = "base"
	}
	ctx, cancel := context.WithCancel(context.Background())
	if r.IntN(4) == 0 {
		time.AfterFunc(time.Duration(r.IntN(10))*time.Millisecond, cancel)
	}
	begun := time.Now()
	changed := s.Transform(ctx, sections)
	cancel()
	if took, most := time.Since(begun), stormGuards*protocol.TransformTimeout+margin; took > most {
		w.t.Errorf("the sections took %s", took)
	}
	for name := range sections {
		switch text, ok := changed[name]; {
		case !ok || !strings.HasPrefix(text, "base"):
			w.t.Errorf("section %s became %q", name, text)
		case name != "safety" && text != "base":
			w.tally.add("prompt: rewritten")
		}
	}
}

// runDisturber interrupts, ends and registers sessions, pushes, and stops providers.
func (w *world) runDisturber(r *rand.Rand) {
	var ends sync.WaitGroup
	for !w.areCallersDone() {
		i := r.IntN(stormSessions)
		if i == calmSession && r.IntN(100) != 0 {
			continue
		}
		s := w.sessions[i].Load()
		switch n := r.IntN(100); {
		case n < 2:
			w.tally.add("session: ends")
			ends.Go(func() { _ = s.Stop(context.Background(), "the storm") })
			ends.Go(func() { _ = s.Stop(context.Background(), "the storm again") })
			w.register(i)
		case n < 5:
			w.tally.add("session: interrupted")
			_, _ = s.Interrupt(context.Background(), "the storm")
		case n < 30:
			w.tally.add("session: busy and idle")
			s.Busy()
			s.Idle()
		case n < 35:
			w.tally.add("session: pushed to")
			if _, err := s.Push(context.Background(), "admin",
				&protocol.Push{Level: protocol.LevelInject, Event: "e"}); err == nil {
				s.Idle()
			}
		case n < 38:
			w.tally.add("session: foreground")
			_ = w.g.SetForeground(s.ID())
		case n < 42:
			w.tally.add("session: a provider stopped")
			w.g.StopProvider(providerKinds[r.IntN(5)].name)
		}
		pause(r, 8)
	}
	ends.Wait()
	for i := range w.sessions {
		w.sessions[i].Load().Idle()
	}
}
