package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

const (
	// maxWaiting is how many events wait for one session, or for one to come.
	maxWaiting = 100
	// pushRate is how many events a second a session gets: half of the rate that the gateway
	// accepts, so that it refuses no event.
	pushRate = protocol.PushRate / 2
	// refusedWait is how long an event waits that the gateway refused because of its rate or its
	// queue.
	refusedWait = time.Second
)

// event is a notification of a server, for all sessions that it serves.
type event struct {
	entry    *configs.MCPEvent
	uri      string // of the resource; "" for a log message
	text     string
	metadata map[string]any
}

// outbox holds events until they are pushed, for each session apart: a busy session holds up no
// other.
type outbox struct {
	p    *providers.Provider // set before it runs
	line func(line string)   // takes a message about an event that was lost

	mu       sync.Mutex // guards the fields that follow
	sessions map[*sessionBox]bool
	absent   *lane // events of level keep while there is no session, for the next one
}

// sessionBox holds the events of a session. Injects wait until it is idle, and hold up no others.
type sessionBox struct{ injects, others *lane }

func newOutbox(line func(line string)) *outbox {
	return &outbox{line: line, sessions: map[*sessionBox]bool{}, absent: newLane()}
}

// wants reports whether an event of an entry would reach a session.
func (o *outbox) wants(entry *configs.MCPEvent) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sessions) > 0 || entry.Level == string(providers.Keep)
}

// add queues an event for each session. It does not block.
func (o *outbox) add(e event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for box := range o.sessions {
		if e.entry.Level == string(providers.Inject) {
			box.injects.add(e)
		} else {
			box.others.add(e)
		}
	}
	if len(o.sessions) == 0 && e.entry.Level == string(providers.Keep) {
		o.absent.add(e)
	}
}

// bound pushes the events for a session until the provider is no longer bound to it. It is an
// OnBound of package providers.
func (o *outbox) bound(ctx context.Context, b providers.Binding) {
	o.mu.Lock()
	box := &sessionBox{injects: newLane(), others: o.absent}
	o.absent = newLane()
	o.sessions[box] = true
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.sessions, box)
	}()
	limit := rate.NewLimiter(pushRate, pushRate)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.push(ctx, b.Session, box.injects, limit, providers.WaitDelivered) })
	o.push(ctx, b.Session, box.others, limit)
}

// push pushes the events of a lane until ctx ends. Those that the gateway refuses because of its
// rate or its queue are pushed again.
func (o *outbox) push(
	ctx context.Context, session string, from *lane, limit *rate.Limiter,
	opts ...providers.PushOption,
) {
	for limit.Wait(ctx) == nil {
		e, leftOut, err := from.take(ctx)
		if err != nil {
			return
		}
		text := e.text
		if leftOut > 0 {
			text += fmt.Sprintf("\n[%d other events were left out: there are too many]", leftOut)
		}
		_, err = o.p.Push(ctx, providers.Event{
			Text: text, Level: providers.Level(e.entry.Level), Stream: e.entry.Stream,
			Metadata: e.metadata,
			Session:  session,
		}, opts...)
		if refusal, ok := errors.AsType[*providers.Error](err); ok &&
			refusal.Code == providers.CodeRateLimited {
			from.putBack(e, leftOut)
			_ = chans.Sleep(ctx, refusedWait)
		} else if err != nil && ctx.Err() == nil {
			o.line(fmt.Sprintf("an event for session %s is lost: %v", session, err))
		}
	}
}

// lane is a queue of events. A newer event about a resource takes the place of one that waits.
type lane struct {
	mu      sync.Mutex // guards the fields that follow
	waiting []event
	leftOut int           // events that found the queue full
	came    chan struct{} // holds one item
}

func newLane() *lane { return &lane{came: make(chan struct{}, 1)} }

func (l *lane) add(e event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.indexOf(e.uri); at >= 0 {
		l.waiting[at] = e
		return
	}
	if len(l.waiting) == maxWaiting {
		l.leftOut++
		return
	}
	l.waiting = append(l.waiting, e)
	chans.Wake(l.came)
}

// indexOf returns the place of the event about a resource, or -1. Call it with mu held.
func (l *lane) indexOf(uri string) int {
	return slices.IndexFunc(l.waiting, func(e event) bool { return uri != "" && e.uri == uri })
}

// take removes the first event, and waits for one. leftOut is how many were left out since another
// was taken.
func (l *lane) take(ctx context.Context) (e event, leftOut int, err error) {
	for {
		l.mu.Lock()
		if len(l.waiting) > 0 {
			e = l.waiting[0]
			l.waiting = slices.Delete(l.waiting, 0, 1)
			leftOut, l.leftOut = l.leftOut, 0
			l.mu.Unlock()
			return e, leftOut, nil
		}
		l.mu.Unlock()
		select {
		case <-l.came:
		case <-ctx.Done():
			return e, 0, ctx.Err()
		}
	}
}

// putBack adds an event that was taken, unless a newer one about the same resource has come.
func (l *lane) putBack(e event, leftOut int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leftOut += leftOut
	if l.indexOf(e.uri) < 0 {
		l.waiting = slices.Insert(l.waiting, 0, e)
	}
	chans.Wake(l.came)
}
