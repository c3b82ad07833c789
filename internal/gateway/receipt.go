package gateway

import (
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Receipt tells the fate of a push so far. A provider whose push is queued gets a second
// receipt later, with the same Seq. See docs/protocol.md, "Receipts".
type Receipt struct {
	Seq    uint64 // of the event in the session; 0 if it was not stored
	Fate   adminapi.Fate
	Reason string // for people; "" if there is nothing to explain

	turn uint64 // turns that had ended when it was delivered
}

// pushReceipts reports the fate of a provider's push in one session, if the push has
// a requestId: a first receipt at once, and a last one for a queued inject.
type pushReceipts struct {
	conn      *Conn
	requestID string
	session   string
	stream    string // the stream's normal name, if the push spelled it otherwise

	mu        sync.Mutex // guards the fields below
	firstSent bool
	last      *Receipt // that came before the first was sent
}

func newPushReceipts(c *Conn, m *protocol.Push, session string) *pushReceipts {
	return &pushReceipts{conn: c, requestID: m.RequestID, session: session, stream: changedName(m.Stream)}
}

func (r *pushReceipts) reportFirst(first Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.firstSent = true
	r.send(first)
	if r.last != nil {
		r.send(*r.last)
	}
}

func (r *pushReceipts) reportLast(last Receipt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.firstSent {
		r.last = &last
		return
	}
	r.send(last)
}

func (r *pushReceipts) send(receipt Receipt) {
	if r.requestID == "" {
		return
	}
	r.conn.peer.Send(&protocol.Ack{RequestID: r.requestID, SessionID: r.session, Seq: receipt.Seq,
		Fate: string(receipt.Fate), Reason: receipt.Reason, Stream: r.stream})
	r.conn.peer.Flush()
}
