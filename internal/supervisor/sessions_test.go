package supervisor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/gateway"
)

// poll calls a session's tool over and over: no call may fail.
type poll struct {
	t        *testing.T
	answered chan struct{} // receives with each call
	end      chan struct{}
	ended    chan struct{}
}

func (r *rig) poll(s *gateway.Session) *poll {
	p := &poll{t: r.t, answered: make(chan struct{}), end: make(chan struct{}),
		ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		for {
			if o := call(s, "t"); o.Failed() {
				r.t.Errorf("a call in between: %s %s, want success", o.ErrorCode, o.Text())
				return
			}
			select {
			case <-p.end:
				return
			case p.answered <- struct{}{}:
			default:
			}
		}
	}()
	return p
}

// goesOn waits for some more calls.
func (p *poll) goesOn() {
	p.t.Helper()
	for range 3 {
		select {
		case <-p.answered:
		case <-p.ended:
			p.t.FailNow()
		case <-time.After(patience):
			p.t.Fatal("a call has no end, want one")
		}
	}
}

func (p *poll) stop() {
	close(p.end)
	<-p.ended
}

func (r *rig) about(h *host, about string) {
	r.t.Helper()
	r.until(h, about, func(_ []string, tools []gateway.Tool) bool {
		return len(tools) == 1 && tools[0].Description == about
	})
}

func (b *beat) goOn(t *testing.T) {
	t.Helper()
	if _, err := b.conn.Write([]byte("go on\n")); err != nil {
		t.Fatal(err)
	}
}

const (
	forEach  = `sessions = "each"`
	forAll   = `sessions = "all"`
	forOne   = `sessions = { label = "label-one" }`
	forTests = `sessions = { host = "test", cwd = "/w/*" }`
)

// serving is the text of a file for these sessions.
func (r *rig) serving(sessions, mode, version string) string {
	more := []string{sessions, "VERSION=" + version}
	if sessions == forAll {
		more = append(more, "ALL=1")
	}
	return r.file(mode, more...)
}

// changeOfSessions is a provider whose file changes the sessions that it is for, while a call runs
// on it.
type changeOfSessions struct {
	*rig
	h1, h2    *host
	old, next []*beat // the processes of the old file and of the new one
	busy      *beat   // the old process that runs the call
	result    chan gateway.Outcome
	polls     []*poll // of the sessions that have the tool all the time
	forTwo    bool    // the second session keeps the tool
}

// goOn checks that no session lost the tool.
func (c *changeOfSessions) goOn() {
	c.t.Helper()
	for _, p := range c.polls {
		p.goesOn()
	}
}

// begin runs the provider in two sessions and calls it in the first, so that one of its processes
// is busy.
func (c *changeOfSessions) begin(t *testing.T, from string, processes int) {
	t.Helper()
	one, h1 := c.session("one")
	two, h2 := c.session("two")
	c.h1, c.h2 = h1, h2
	c.put("a", c.serving(from, "once", "1"))
	c.about(h1, "a tool1")
	c.about(h2, "a tool1")
	c.result = make(chan gateway.Outcome, 1)
	go func() { c.result <- call(one, "t") }()
	for range processes {
		c.old = append(c.old, c.child())
	}
	c.busy = c.old[0]
	if processes == 1 {
		<-c.busy.said
	} else { // which of them is the session's
		select {
		case got := <-c.old[0].said:
			if got != "called" {
				t.Fatalf("the child said %q, want %q", got, "called")
			}
		case <-c.old[1].said:
			c.busy = c.old[1]
		}
		go call(two, "t") // so that the calls that follow are answered
		other := c.old[0]
		if c.busy == c.old[0] {
			other = c.old[1]
		}
		<-other.said
		other.goOn(t)
	}
	c.polls = []*poll{c.poll(one)}
	if c.forTwo {
		c.polls = append(c.polls, c.poll(two))
	}
	c.goOn()
}

// change writes the new file: first a version that never starts, which leaves the running one
// alone, and then one whose processes take over when the test lets them.
func (c *changeOfSessions) change(t *testing.T, to string, processes int) {
	t.Helper()
	c.put("a", c.serving(to, "start", "2"))
	for range 2 {
		c.ended(c.child())
	}
	c.goOn()
	c.put("a", c.serving(to, "late", "3"))
	for len(c.next) < processes {
		if b := c.child(); b.mode == "late" {
			c.next = append(c.next, b)
		}
	}
	c.goOn()
	for _, b := range c.old {
		if c.forTwo && !b.isAlive() {
			t.Error(
				"an old process ended before another took its place, want it to live until then")
		}
	}
	for _, b := range c.next {
		b.goOn(t)
		c.goOn()
	}
	c.about(c.h1, "a tool3")
	if c.forTwo {
		c.about(c.h2, "a tool3")
	} else {
		c.has(c.h2)
	}
	c.goOn()
}

// finish checks that the running call ends on the old process, and that the first session had the
// tool all the time.
func (c *changeOfSessions) finish(t *testing.T) {
	t.Helper()
	for _, b := range c.old {
		if b != c.busy {
			c.ended(b)
		}
	}
	if !c.busy.isAlive() {
		t.Error("the old process ended in a call, want the call's end first")
	}
	c.busy.goOn(t)
	if o := <-c.result; o.Failed() || !strings.HasPrefix(o.Text(), c.busy.pid+" ") {
		t.Errorf("the running call returned %q, want an answer of process %s", o.Text(), c.busy.pid)
	}
	c.ended(c.busy)
	for _, p := range c.polls {
		p.stop()
	}
	for _, b := range c.next {
		if !b.isAlive() {
			t.Error("a new process has ended, want it to live")
		}
	}
	c.h1.mu.Lock()
	defer c.h1.mu.Unlock()
	for i, list := range c.h1.lists {
		if i > 0 && !slices.Equal(list, []string{"t"}) {
			t.Errorf("the session's lists of tools were %v, want [t] after the first", c.h1.lists)
			break
		}
	}
}

// Which sessions a provider is for changes as everything else does: a session that keeps it has its
// tool all the time, and never twice. A call that is running ends on the old process.
func TestChangeOfSessions(t *testing.T) {
	for _, tt := range []struct {
		name, from, to string
		old, next      int  // processes
		forTwo         bool // the second session keeps the tool
	}{
		{"each to all", forEach, forAll, 2, 1, true},
		{"all to each", forAll, forEach, 1, 2, true},
		{"all to a filter", forAll, forOne, 1, 1, false},
		{"each to a filter", forEach, forOne, 2, 1, false},
		{"a filter to another", forTests, forOne, 2, 1, false},
		{"a filter to all", forTests, forAll, 2, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := &changeOfSessions{rig: newRig(t), forTwo: tt.forTwo}
			c.begin(t, tt.from, tt.old)
			c.change(t, tt.to, tt.next)
			c.finish(t)
		})
	}
}

// A change that is taken back has no effect: sessions that it had not reached keep their process,
// and the others get a process of the old version.
func TestChangeOfSessionsTakenBack(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	r := newRig(t)
	one, h1 := r.session("one")
	two, h2 := r.session("two")
	r.put("a", r.serving(forAll, "plain", "1"))
	r.about(h1, "a tool1")
	r.about(h2, "a tool1")
	first := r.child()
	p1, p2 := r.poll(one), r.poll(two)
	p1.goesOn()

	r.put("a", r.serving(forEach, "late", "2"))
	late := []*beat{r.child(), r.child()}
	r.put("a", r.serving(forAll, "plain", "1"))
	r.s.Reload()
	for _, b := range late {
		r.ended(b)
	}
	p1.goesOn()
	p2.goesOn()
	if !first.isAlive() || len(r.beats) > 0 {
		t.Error("what had lost nothing was started again, want the first process")
	}

	// One session is handed over, the other is not.
	r.put("a", r.serving(forEach, "late", "2"))
	late = []*beat{r.child(), r.child()}
	late[0].goOn(t)
	taken, left := h1, h2
	for is := false; !is; {
		select {
		case <-h1.came:
		case <-h2.came:
		case <-time.After(patience):
			t.Fatal("neither session is handed over, want both")
		}
		for _, h := range []*host{h1, h2} {
			h.mu.Lock()
			if len(h.last) == 1 && h.last[0].Description == "a tool2" {
				is, taken = true, h
			}
			h.mu.Unlock()
		}
	}
	if taken == h2 {
		left = h1
	}
	r.about(left, "a tool1")
	// A new session has it, too.
	_, h3 := r.session("three")
	r.child().goOn(t)
	r.about(h3, "a tool2")
	r.put("a", r.serving(forAll, "plain", "1"))
	r.s.Reload()
	next := r.child()
	for _, h := range []*host{h1, h2, h3} {
		r.about(h, "a tool1")
	}
	for _, b := range []*beat{first, late[0], late[1]} {
		r.ended(b)
	}
	p1.goesOn()
	p2.goesOn()
	p1.stop()
	p2.stop()
	for _, s := range []*gateway.Session{one, two} {
		if o := call(s, "t"); !strings.HasPrefix(o.Text(), next.pid+" ") {
			t.Errorf("the call: %s, want %q at its start", o.Text(), next.pid+" ")
		}
	}
	if f := r.s.Faults(); len(f) > 0 {
		t.Errorf("faults %v, want none", f)
	}
}

// A change that gives up leaves the old version running, and reports that. A session that ends
// meanwhile ends its processes, and a provider that starts itself waits for nothing.
func TestChangeOfSessionsGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	r := newRig(t)
	one, h1 := r.session("one")
	two, _ := r.session("two")
	r.put("a", r.serving(forEach, "plain", "1"))
	r.about(h1, "a tool1")
	old := []*beat{r.child(), r.child()}
	p := r.poll(one)
	r.put("a", r.serving(forAll, "start", "2"))
	for range maxFailures {
		r.ended(r.child())
	}
	var message string
	for deadline := time.Now().Add(patience); message == "" && time.Now().Before(deadline); {
		for _, f := range r.s.Faults() {
			message = f.Message
		}
	}
	if !strings.HasSuffix(message, "what ran before goes on") {
		t.Errorf(`the fault: %q, want "what ran before goes on" at its end`, message)
	}
	p.goesOn()
	p.stop()
	if err := two.Stop(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	o := call(one, "t")
	for _, b := range old {
		if !strings.HasPrefix(o.Text(), b.pid+" ") {
			r.ended(b)
		}
	}
	r.put("a", "kind = \"connect\"\n")
	for _, b := range old {
		r.ended(b)
	}
	r.has(h1)
}
