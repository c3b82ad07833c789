package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// This file is the trunk: the stream of records between two gateways, over which all connections
// and requests between them go. It packs records into messages of the bus, splits large ones, and
// notices when the other gateway restarts or falls silent.

const (
	// pingAfter is the silence after which a trunk with connections sends a ping, and deadAfter the
	// silence of the other side after which it is taken for dead: within 2 s of its last word.
	pingAfter = 400 * time.Millisecond
	deadAfter = 1700 * time.Millisecond
	// helloAgain is the time between two attempts to reach a gateway that should be there,
	// helloSeldom to reach one of which the registry knows nothing.
	helloAgain  = time.Second
	helloSeldom = 5 * time.Second
	// openRate and askRate are how many connections and requests the other may begin in a second.
	openRate = 100
	askRate  = 100
	// maxQueued bounds the bytes that wait for NATS on one trunk.
	maxQueued = 64 << 20
	// maxBatch is how many bytes of records go together in one NATS message.
	maxBatch = 64 << 10
)

// pleaseAnswer is the data of a ping that wants one back.
var pleaseAnswer = []byte{1}

// trunk is the way to one other gateway. Both sides tell each other in which life they are: a life
// ends with the process, with silence, and with each message that is lost, and all connections of
// the trunk end with it. So a frame comes once and in its order, or its connection ends.
type trunk struct {
	c             *Cluster
	peer          string
	admission     gateway.Trust // the trust of its providers here
	subject, from string        // the subjects to publish and to listen to
	mayControl    bool          // it may use the admin API here
	// limits on opens and requests of the other; only its subscription uses them
	opens, asks *rate.Limiter
	wake        chan struct{}
	sending     sync.Mutex // held by the goroutine that publishes
	lists       heardLists // only its subscription uses them

	mu           sync.Mutex // guards the fields that follow
	mine, theirs uint64     // lives; theirs is 0 while it is not known
	isUp         bool
	upSince      time.Time
	sent, got    uint64 // of this life's messages
	queue        []record
	queued       int  // bytes
	isFull       bool // more than maxQueued waited
	lastSent     time.Time
	lastGot      time.Time
	isReceiving  bool // a message of the other is being handled
	lastHello    time.Time
	partial      []byte // of a record whose end has not come
	partOf       op
	guests       map[uint64]*guest    // the other's providers, by the number that the other gave
	lost         map[*guest]bool      // those whose gateway is out of reach
	upstreams    map[uint64]*upstream // of this gateway's providers
	asked        map[uint64]chan answer
	exchanges    map[uint64]*exchange // requests to the other's API
	served       map[uint64]*served   // requests of the other to the API here
	nextConn     uint64
}

func newTrunk(c *Cluster, peer string, admission gateway.Trust) *trunk {
	return &trunk{
		c: c, peer: peer, admission: admission,
		subject: trunkSubject(peer, c.name), from: trunkSubject(c.name, peer),
		wake: make(chan struct{}, 1), mine: newLife(),
		opens: rate.NewLimiter(openRate, maxGuests), asks: rate.NewLimiter(askRate, 2*askRate),
		guests: map[uint64]*guest{}, lost: map[*guest]bool{}, upstreams: map[uint64]*upstream{},
		asked: map[uint64]chan answer{}, exchanges: map[uint64]*exchange{},
		served: map[uint64]*served{},
	}
}

// newLife is a number that other gateways can't guess and that is not 0.
func newLife() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return binary.BigEndian.Uint64(b[:]) | 1
}

// hello says in which life this side is, and which of the other it knows.
func (tr *trunk) hello() {
	tr.mu.Lock()
	h := head{kind: kindHello, from: tr.mine, to: tr.theirs}
	tr.lastHello = time.Now()
	tr.mu.Unlock()
	tr.sending.Lock()
	defer tr.sending.Unlock()
	_ = tr.c.bus.Publish(tr.subject, tr.from, h.append(nil))
}

// push queues a record. It never blocks, and may be called under locks of the gateway. It reports
// whether the trunk is up. The trunk keeps data.
func (tr *trunk) push(o op, conn uint64, data []byte) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !tr.isUp {
		return false
	}
	tr.queue = append(tr.queue, record{op: o, conn: conn, data: data})
	tr.queued += len(data) + recordSize
	tr.isFull = tr.isFull || tr.queued > maxQueued
	return true
}

// flush makes the trunk send its queue. It does not block.
func (tr *trunk) flush() { chans.Wake(tr.wake) }

// run sends queued records until ctx ends.
func (tr *trunk) run(ctx context.Context) {
	for {
		select {
		case <-tr.wake:
		case <-ctx.Done():
			return
		}
		runtime.Gosched() // records that are about to be queued go with it
		for tr.send() {
		}
	}
}

// send sends the queue in as few messages as possible, and reports whether there was anything.
func (tr *trunk) send() bool {
	wasSent, why := tr.publish()
	if why != "" {
		tr.fail(why)
	}
	return wasSent
}

// publish sends the queue. why is the reason for which the trunk has failed, "" if it has not.
func (tr *trunk) publish() (wasSent bool, why string) {
	tr.sending.Lock()
	defer tr.sending.Unlock()
	tr.mu.Lock()
	if tr.isFull {
		tr.mu.Unlock()
		return false, "it takes too little of what is sent to it"
	}
	queue := tr.queue
	h := head{kind: kindRecords, from: tr.mine, to: tr.theirs, seq: tr.sent}
	tr.queue, tr.queued = nil, 0
	if len(queue) == 0 {
		tr.mu.Unlock()
		return false, ""
	}
	messages := pack(h, queue, tr.c.bus.MaxPayload())
	tr.sent += uint64(len(messages))
	tr.lastSent = time.Now()
	tr.mu.Unlock()
	for _, data := range messages {
		if err := tr.c.bus.Publish(tr.subject, tr.from, data); err != nil {
			return false, "sending to it: " + err.Error()
		}
	}
	return true, ""
}

// pack makes messages of at most limit bytes of records. h is the head of the message before the
// first.
func pack(h head, queue []record, limit int) (messages [][]byte) {
	var now []byte
	add := func(r record) {
		if now == nil {
			h.seq++
			now = h.append(make([]byte, 0, min(headSize+recordSize+len(r.data), limit)))
		}
		now = r.append(now)
	}
	end := func() {
		if now != nil {
			messages = append(messages, now)
			now = nil
		}
	}
	for _, r := range queue {
		if len(now) > 0 && len(now)+recordSize+len(r.data) > min(maxBatch, limit) {
			end()
		}
		for room := limit - headSize - recordSize; len(r.data) > room; r.data = r.data[room:] {
			add(record{r.op, true, r.conn, r.data[:room]})
			end()
		}
		add(r)
	}
	end()
	return messages
}

// receive handles a message of the other gateway. The subscription calls it, for one message at a
// time.
func (tr *trunk) receive(data []byte, isUnread bool) {
	tr.setReceiving(true)
	defer tr.setReceiving(false)
	if isUnread {
		tr.fail("it does not listen: it does not run, or does not admit this gateway")
		return
	}
	h, rest, err := readHead(data)
	switch {
	case err != nil:
		tr.c.count(tr.peer, "malformed messages")
	case h.kind == kindHello:
		tr.greeted(h)
	case tr.accepts(h):
		tr.receiveRecords(rest)
	}
}

// setReceiving notes that a message is being handled. Meanwhile the other gateway does not count as
// silent, even if its next messages wait.
func (tr *trunk) setReceiving(isReceiving bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.isReceiving = isReceiving
	if !isReceiving && tr.isUp {
		tr.lastGot = time.Now()
	}
}

// greeted handles a hello.
func (tr *trunk) greeted(h head) {
	tr.mu.Lock()
	if tr.isUp && h.from == tr.theirs && h.to == tr.mine {
		tr.lastGot = time.Now()
		tr.mu.Unlock()
		return
	}
	if h.from != tr.theirs && tr.isUp {
		tr.mu.Unlock()
		tr.fail("it has begun anew")
		tr.mu.Lock()
	}
	tr.mu.Unlock()
	if tr.rise(h) {
		tr.c.trunkUp(tr)
	}
}

// rise answers a hello, and reports whether the trunk has come up with it. Nothing is sent before
// the answer.
func (tr *trunk) rise(h head) bool {
	tr.sending.Lock()
	defer tr.sending.Unlock()
	tr.mu.Lock()
	rose := h.to == tr.mine && !tr.isUp
	tr.theirs, tr.lastGot = h.from, time.Now()
	if rose {
		tr.isUp, tr.upSince = true, time.Now()
		tr.sent, tr.got = 0, 0
	}
	answer := head{kind: kindHello, from: tr.mine, to: tr.theirs}
	tr.lastHello = time.Now()
	tr.mu.Unlock()
	_ = tr.c.bus.Publish(tr.subject, tr.from, answer.append(nil))
	return rose
}

// accepts reports whether a message of records is the next one of this life. One that came before
// is dropped; after one that is missing, the trunk begins anew.
func (tr *trunk) accepts(h head) bool {
	tr.mu.Lock()
	isThisLife, next := tr.isUp && h.from == tr.theirs && h.to == tr.mine, tr.got+1
	if isThisLife && h.seq == next {
		tr.got, tr.lastGot = next, time.Now()
		tr.mu.Unlock()
		return true
	}
	mayAnswer := time.Since(tr.lastHello) > helloAgain/4
	tr.mu.Unlock()
	switch {
	case !isThisLife:
		tr.c.count(tr.peer, "messages of another life")
		if mayAnswer {
			tr.hello()
		}
	case h.seq < next:
		tr.c.count(tr.peer, "messages that came twice")
	default:
		tr.fail("a message of it is lost")
	}
	return false
}

// receiveRecords handles the records of a message in their order.
func (tr *trunk) receiveRecords(data []byte) {
	for len(data) > 0 {
		r, rest, err := readRecord(data)
		if err == nil {
			err = tr.join(&r)
		}
		if err != nil {
			tr.c.count(tr.peer, "malformed messages")
			tr.fail(err.Error())
			return
		}
		data = rest
		if !r.more {
			tr.handle(r)
		}
	}
}

// join puts the parts of a record together. Without more, r has its whole data, which it shares
// with no other record.
func (tr *trunk) join(r *record) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.partOf != 0 && r.op != tr.partOf {
		return errMalformed
	}
	if len(tr.partial)+len(r.data) > protocol.MaxFrame {
		return errors.New("a message of it is over 16 MiB")
	}
	if r.more {
		tr.partOf = r.op
		tr.partial = append(tr.partial, r.data...)
		return nil
	}
	if tr.partOf != 0 {
		r.data = append(tr.partial, r.data...)
	}
	tr.partial, tr.partOf = nil, 0
	return nil
}

// handle handles a whole record.
func (tr *trunk) handle(r record) {
	switch r.op {
	case opPing:
		if len(r.data) > 0 {
			tr.push(opPing, 0, nil)
			tr.flush()
		}
	case opOpen:
		if !tr.opens.Allow() {
			tr.refuseOpen(r.conn, "too many at once")
			return
		}
		tr.open(r.conn, r.data)
	case opUp, opOversized, opBinary, opCloseUp:
		tr.mu.Lock()
		g := tr.guests[r.conn]
		tr.mu.Unlock()
		if g == nil {
			tr.c.count(tr.peer, "messages of connections that are not open")
			return
		}
		g.receive(r)
	case opDown, opCloseDown:
		tr.mu.Lock()
		u := tr.upstreams[r.conn]
		tr.mu.Unlock()
		if u == nil { // it was closed here while this was on its way
			tr.c.count(tr.peer, "messages of connections that are not open")
			return
		}
		u.receive(r)
	case opAsk, opRequest:
		switch {
		case !tr.asks.Allow():
			tr.c.count(tr.peer, "requests beyond the rate")
		case r.op == opAsk:
			tr.answer(r)
		default:
			tr.serve(r)
		}
	case opAnswer:
		tr.answered(r)
	case opResponse, opBody, opEnd:
		tr.exchanged(r)
	case opTaken, opCancel:
		tr.control(r)
	case opKept:
		tr.c.follow(tr.peer).wake()
	}
}

// fail ends this life of the trunk: its connections are lost, and open requests get no answer. Call
// without a lock.
func (tr *trunk) fail(why string) {
	tr.mu.Lock()
	wasUp := tr.isUp
	guests, upstreams, asked := tr.guests, tr.upstreams, tr.asked
	exchanges, requests := tr.exchanges, tr.served
	tr.exchanges, tr.served = map[uint64]*exchange{}, map[uint64]*served{}
	tr.isUp, tr.isFull, tr.mine, tr.theirs, tr.sent, tr.got = false, false, newLife(), 0, 0, 0
	tr.queue, tr.queued, tr.partial, tr.partOf = nil, 0, nil, 0
	tr.guests, tr.upstreams, tr.asked = map[uint64]*guest{}, map[uint64]*upstream{},
		map[uint64]chan answer{}
	for _, g := range guests {
		tr.lost[g] = true
	}
	tr.mu.Unlock()
	if !wasUp {
		return
	}
	tr.c.log.Warn("a gateway is out of reach", "gateway", tr.peer, "reason", why)
	for _, g := range guests {
		g.lose()
	}
	for _, u := range upstreams {
		u.lose()
	}
	for _, x := range exchanges {
		close(x.lost)
	}
	for _, s := range requests {
		s.cancel()
	}
	for _, done := range asked {
		done <- answer{err: tr.unreachable()}
	}
	tr.c.gateway.Touch()
}

func (tr *trunk) unreachable() error { return fmt.Errorf("gateway %q is out of reach", tr.peer) }

// tick keeps the trunk alive: it looks for a gateway that should be there, says that this one is,
// and notices that the other is silent.
func (tr *trunk) tick(now time.Time, isExpected bool) {
	again := helloSeldom
	if isExpected {
		again = helloAgain
	}
	tr.mu.Lock()
	isUp := tr.isUp
	isUsed := len(tr.guests)+len(tr.upstreams)+len(tr.asked)+len(tr.exchanges)+len(tr.served) > 0
	if !isUsed { // a life without connections costs nothing
		tr.lastGot, tr.lastSent = now, now
	}
	isDead := isUp && !tr.isReceiving && now.Sub(tr.lastGot) > deadAfter
	shouldPing := isUp && now.Sub(tr.lastSent) >= pingAfter
	shouldGreet := !isUp && now.Sub(tr.lastHello) >= again
	tr.mu.Unlock()
	switch {
	case isDead:
		tr.fail("it is silent")
	case shouldPing:
		tr.push(opPing, 0, pleaseAnswer)
		tr.flush()
	case shouldGreet:
		tr.hello()
	}
	tr.dropLost(now)
}

// counts are how many connections the trunk has: of the other's providers here, and of this
// gateway's there.
func (tr *trunk) counts() (isUp bool, guests, upstreams int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.isUp, len(tr.guests), len(tr.upstreams)
}

// greet looks for the other gateway now.
func (tr *trunk) greet() {
	if isUp, _, _ := tr.counts(); !isUp {
		tr.hello()
	}
}

// leave tells the other gateway that this one is gone.
func (tr *trunk) leave() {
	tr.mu.Lock()
	guests, lost := tr.guests, tr.lost
	tr.guests, tr.lost = map[uint64]*guest{}, map[*guest]bool{}
	tr.mu.Unlock()
	for _, g := range guests {
		g.Close(protocol.CloseGoingAway, "the gateway is shutting down")
		g.drop()
	}
	for g := range lost {
		g.drop()
	}
	for tr.send() {
	}
}
