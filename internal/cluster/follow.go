package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/time/rate"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

const (
	// roomAgain is when a session is tried again that had no room for an event, and a gateway whose
	// budget is used up.
	roomAgain = 250 * time.Millisecond
	// followRate bounds the events of one gateway that sessions get in a second, with a burst for
	// those that come back.
	followRate  = 200
	followBurst = 2000
	// saveEvery is how many events are handed out at most between two saves of the places.
	saveEvery = 64
	// maxMisses is how often a server may not have an event that the stream has: one that was
	// frozen, or cut off, may take itself for the leader of the stream for some seconds.
	maxMisses = 20
)

// follower hands the events of one gateway's streams that last to the sessions here, each in the
// order in which they were kept. It looks when it is woken: the other gateway says that it has kept
// events, a session has come, or the connection to NATS has.
type follower struct {
	c         *Cluster
	origin    string        // the gateway; this one's own name for its own
	trust     gateway.Trust // of the other gateway's providers here
	js        jetstream.JetStream
	positions *positions
	limit     *rate.Limiter
	wakes     chan struct{}
	misses    int    // of events that the stream should have; only the follower's goroutine uses it
	fault     string // guarded by Cluster.mu
}

// follow returns the follower of a gateway, and starts it at first. It returns nil if the gateway
// is not admitted, or if this gateway has left the cluster.
func (c *Cluster) follow(name string) *follower {
	tr := c.trunks[name]
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.followers[name]
	if f != nil || c.js == nil || c.isClosed || tr == nil && (name != c.name || c.o.Keeper == nil) {
		return f
	}
	f = &follower{c: c, origin: name, js: c.js, positions: c.positions,
		limit: rate.NewLimiter(followRate, followBurst), wakes: make(chan struct{}, 1)}
	if tr != nil {
		f.trust = tr.admission
	}
	c.followers[name] = f
	c.work.Go(func() { f.run(c.ctx) })
	f.wake()
	return f
}

// wakeFollowers makes all followers look, and the keeper: NATS is within reach, or a session has
// come.
func (c *Cluster) wakeFollowers() {
	if c.o.Keeper != nil {
		c.o.Keeper.hurry()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.followers {
		f.wake()
	}
}

// followSessions wakes the followers when a session has come, until the gateway leaves the cluster.
func (c *Cluster) followSessions() {
	var before []string
	for {
		n := c.gateway.ToolChanges()
		var now []string
		for _, s := range c.gateway.Sessions() {
			now = append(now, s.ID, s.Label)
		}
		if !slices.Equal(before, now) {
			before = now
			c.wakeFollowers()
		}
		if c.gateway.WaitToolChange(c.ctx, n) != nil {
			return
		}
	}
}

// tellKept tells everybody who follows this gateway that it has kept events.
func (c *Cluster) tellKept() {
	c.follow(c.name).wake()
	for _, tr := range c.trunks {
		if tr.push(opKept, 0, nil) {
			tr.flush()
		}
	}
}

func (f *follower) wake() {
	if f == nil {
		return
	}
	chans.Wake(f.wakes)
}

func (f *follower) run(ctx context.Context) {
	for {
		var again <-chan time.Time
		if wait := f.catchUp(ctx); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-f.wakes:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// look finds out how far the stream goes.
func (f *follower) look(ctx context.Context) error {
	_, _, err := f.info(ctx)
	return err
}

// info returns the stream and the number of its last event; nil and 0 if there is no stream.
func (f *follower) info(ctx context.Context) (s jetstream.Stream, last uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	s, err = f.open(ctx)
	f.positions.mu.Lock()
	defer f.positions.mu.Unlock()
	if errors.Is(err, jetstream.ErrStreamNotFound) { // the gateway has not made it yet
		f.positions.origin(f.origin).lookInVain()
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info := s.CachedInfo()
	f.positions.isDirty = f.positions.origin(f.origin).look(info.Created, info.State.LastSeq) ||
		f.positions.isDirty
	return s, info.State.LastSeq, nil
}

// open opens the gateway's stream. Its leader answers, also where an operator lets replicas do so:
// they may be late, and asking them needs one more right.
func (f *follower) open(ctx context.Context) (jetstream.Stream, error) {
	s, err := f.js.Stream(ctx, keptStream(f.origin))
	if err == nil {
		s.CachedInfo().Config.AllowDirect = false
	}
	return s, err
}

// catchUp gives the sessions the events that they have missed. It returns when to look again if
// nothing wakes it, 0 for never.
func (f *follower) catchUp(ctx context.Context) (again time.Duration) {
	stream, last, err := f.info(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0
		}
		return f.failed(err)
	}
	sessions := f.arrive(last)
	f.tellAnew(sessions)
	defer f.save()
	for n := 1; ; n++ {
		seq, wait, isDone := f.next(sessions, last)
		if isDone {
			return max(wait, f.failed(nil))
		}
		// this gateway's own had their budget when they were pushed
		isOver := f.foreign() != "" && f.limit.Tokens() < 1
		if isOver || n%saveEvery == 0 {
			f.save()
			sessions = f.arrive(last)
		}
		if isOver { // and no word of the other gateway makes it look before
			if chans.Sleep(ctx, roomAgain) != nil {
				return 0
			}
			continue
		}
		m, err := f.get(ctx, stream, seq+1)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			// The limits have dropped all that was left, or the server that answers is late.
			if f.misses++; f.misses < maxMisses {
				return keepAgain
			}
			f.misses = 0
			for id, s := range sessions {
				f.pass(id, s, seq, last+1)
			}
		case err != nil && ctx.Err() == nil:
			return f.failed(err)
		case err != nil:
			return 0
		default:
			f.misses = 0
			// else sessions without room would use up the events that others get
			if f.deliver(sessions, seq, m) {
				f.limit.Allow()
			}
		}
	}
}

// failed notes that events do not come, or for nil that they do. It returns when to look again.
func (f *follower) failed(err error) (again time.Duration) {
	fault := ""
	if err != nil {
		fault, again = faultText(err), time.Second
	}
	f.c.mu.Lock()
	f.fault = fault
	f.c.mu.Unlock()
	return again
}

func (f *follower) get(
	ctx context.Context, stream jetstream.Stream, seq uint64,
) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(keptSubjects(f.origin)+".>"))
}

// arrive returns the sessions that may have the events, by id, and gives the new ones of them a
// place. last is the stream's last event at a time before.
func (f *follower) arrive(last uint64) map[string]*gateway.Session {
	sessions, ids := map[string]*gateway.Session{}, []string{}
	for _, view := range f.c.gateway.Sessions() {
		if f.origin != f.c.name && !f.c.isSharedSession(view) {
			continue
		}
		if s, ok := f.c.gateway.Session(view.ID); ok {
			sessions[view.ID] = s
			ids = append(ids, view.ID)
		}
	}
	f.positions.mu.Lock()
	defer f.positions.mu.Unlock()
	f.positions.isDirty = f.positions.origin(f.origin).arrive(ids, last, time.Now()) ||
		f.positions.isDirty
	return sessions
}

// tellAnew tells sessions that the stream is another one than before.
func (f *follower) tellAnew(sessions map[string]*gateway.Session) {
	for id, s := range sessions {
		f.positions.mu.Lock()
		p := f.positions.origin(f.origin).Places[id]
		isAnew := p != nil && p.isAnew
		if isAnew {
			p.isAnew = false
		}
		f.positions.mu.Unlock()
		if isAnew {
			s.NoteAnew(f.foreign())
		}
	}
}

// next returns the place of the session that is furthest behind and has room. isDone says that no
// session is behind last; wait is how long until one has room again.
func (f *follower) next(
	sessions map[string]*gateway.Session, last uint64,
) (seq uint64, wait time.Duration, isDone bool) {
	f.positions.mu.Lock()
	defer f.positions.mu.Unlock()
	o, now := f.positions.origin(f.origin), time.Now()
	isDone = true
	for id := range sessions {
		p := o.Places[id]
		switch {
		case p == nil || p.Seq >= last:
		case p.notBefore.After(now):
			if left := p.notBefore.Sub(now); wait == 0 || left < wait {
				wait = left
			}
		case isDone || p.Seq < seq:
			seq, isDone = p.Seq, false
		}
	}
	return seq, wait, isDone
}

// pass moves a session to the place before the event next, which is the first one after seq that
// JetStream still has. The session's timeline gets a line about the events in between, which are
// lost. pass reports whether next is the event that the session gets now.
func (f *follower) pass(id string, s *gateway.Session, seq, next uint64) bool {
	f.positions.mu.Lock()
	p := f.positions.origin(f.origin).Places[id]
	if p == nil || p.Seq < seq || p.Seq >= next || p.notBefore.After(time.Now()) {
		f.positions.mu.Unlock()
		return false
	}
	missing := next - 1 - p.Seq
	p.Seq = next - 1
	f.positions.isDirty = f.positions.isDirty || missing > 0
	f.positions.mu.Unlock()
	if missing > 0 {
		s.NoteMissing(f.foreign(), missing)
	}
	return true
}

// foreign is the name of the gateway, "" for this one.
func (f *follower) foreign() string {
	if f.origin == f.c.name {
		return ""
	}
	return f.origin
}

// deliver gives an event to the sessions that have not got it. It is the first one after the event
// seq. It reports whether a session has gone on.
func (f *follower) deliver(
	sessions map[string]*gateway.Session, seq uint64, m *jetstream.RawStreamMsg,
) (isTaken bool) {
	e, why := f.read(m)
	if why != "" {
		f.c.count(f.origin, why)
	}
	for id, s := range sessions {
		if !f.pass(id, s, seq, m.Sequence) {
			continue
		}
		var err *protocol.Error
		if e != nil && e.IsFor(id) {
			var isRenamed bool
			if isRenamed, err = s.Deliver(e); isRenamed && err == nil {
				f.c.count(f.origin, "names of events that are somebody else's")
			}
		}
		if err != nil && err.Code != protocol.CodeRateLimited &&
			err.Code != protocol.CodeInvalidSession {
			f.c.count(f.origin, "events: "+string(err.Code))
			f.refused(id, s, err)
			err = nil
		}
		f.positions.mu.Lock()
		if p := f.positions.origin(f.origin).Places[id]; p != nil && err != nil {
			p.notBefore = time.Now().Add(roomAgain)
		} else if p != nil {
			p.Seq, f.positions.isDirty, isTaken = m.Sequence, true, true
		}
		f.positions.mu.Unlock()
	}
	return isTaken
}

// refused tells a session that it has refused events for ever: of the first, the second, the fourth
// …
func (f *follower) refused(id string, s *gateway.Session, why *protocol.Error) {
	f.positions.mu.Lock()
	n := uint64(0)
	if p := f.positions.origin(f.origin).Places[id]; p != nil {
		p.refused++
		n = p.refused
	}
	f.positions.mu.Unlock()
	if n&(n-1) == 0 {
		s.NoteRefused(f.foreign(), n, why)
	}
}

// read reads an event. If the message is not an event, e is nil and why says so.
func (f *follower) read(m *jetstream.RawStreamMsg) (e *gateway.KeptEvent, why string) {
	if !strings.HasPrefix(m.Subject, keptSubjects(f.origin)+".") {
		return nil, "events in the name of another gateway"
	}
	e = &gateway.KeptEvent{}
	if json.Unmarshal(m.Data, e) != nil || !protocol.ValidName(e.Provider) ||
		protocol.Validate(e.Push()) != nil {
		return nil, "malformed events"
	}
	id := m.Header.Get(jetstream.MsgIDHeader)
	if id == "" || len(id) > 100 {
		return nil, "malformed events"
	}
	e.Provider = protocol.NormalName(e.Provider)
	e.ID, e.Gateway, e.Trust, e.TS = f.origin+"/"+id, f.foreign(), f.trust, m.Time.UTC()
	return e, ""
}

// save writes the places down, once the records of the events are.
func (f *follower) save() {
	err := f.positions.save(func() error {
		if f.c.o.Flush == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), keepTimeout)
		defer cancel()
		f.c.o.Flush(ctx)
		return ctx.Err()
	})
	if err != nil {
		f.c.log.Warn("after a restart, sessions may get events again that they have", "error", err)
	}
}
