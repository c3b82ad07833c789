package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
)

// askList is the question for the lists that a gateway shares, the only one that gateways ask each
// other. The first byte of a record's data is the question, and the answer has the same connection
// number.
const askList = 'l'

// answer ends a question.
type answer struct {
	data []byte
	err  error
}

// Shared is the sessions and providers that a gateway shares with another one, as its own lists
// have them but without directories.
type Shared struct {
	Sessions  []adminapi.Session  `json:"sessions"`
	Providers []adminapi.Provider `json:"providers"`
}

// askLists asks the other gateway for its lists and waits for the answer.
func (tr *trunk) askLists(ctx context.Context) ([]byte, error) {
	done := make(chan answer, 1)
	tr.mu.Lock()
	if !tr.isUp {
		tr.mu.Unlock()
		return nil, tr.unreachable()
	}
	tr.nextConn++
	id := tr.nextConn
	tr.asked[id] = done
	tr.mu.Unlock()
	tr.push(opAsk, id, []byte{askList})
	tr.flush()
	select {
	case a := <-done:
		return a.data, a.err
	case <-ctx.Done():
		tr.mu.Lock()
		delete(tr.asked, id)
		tr.mu.Unlock()
		return nil, ctx.Err()
	}
}

// answered hands an answer to the goroutine that asked.
func (tr *trunk) answered(r record) {
	tr.mu.Lock()
	done := tr.asked[r.conn]
	delete(tr.asked, r.conn)
	tr.mu.Unlock()
	switch {
	case done == nil:
		tr.c.count(tr.peer, "answers to nothing that was asked")
	case len(r.data) == 0 || r.data[0] != 0:
		done <- answer{err: errors.New(string(r.data[min(1, len(r.data)):]))}
	default:
		done <- answer{data: r.data[1:]}
	}
}

// answer answers a question of the other gateway.
func (tr *trunk) answer(r record) {
	if len(r.data) == 0 {
		tr.c.count(tr.peer, "malformed messages")
		return
	}
	status := byte(1)
	data := []byte("this gateway does not know the question")
	if r.data[0] == askList {
		status = 0
		data, _ = json.Marshal(tr.c.shared()) // cannot fail
	}
	tr.push(opAnswer, r.conn, append([]byte{status}, data...))
	tr.flush()
}

// shared returns the sessions and providers that admitted gateways may see.
func (c *Cluster) shared() Shared {
	s := Shared{Sessions: []adminapi.Session{}, Providers: []adminapi.Provider{}}
	for _, view := range c.gateway.Sessions() {
		if c.isSharedSession(view) {
			view.CWD, view.Repository = "", ""
			s.Sessions = append(s.Sessions, view)
		}
	}
	for _, view := range append(c.gateway.Providers(), c.Abroad()...) {
		if view.Gateway == "" && !view.Own && c.isShared(view.Name) {
			view.Serves = nil
			s.Providers = append(s.Providers, view)
		}
	}
	return s
}

// Abroad lists the providers of this gateway that serve only sessions of other gateways.
func (c *Cluster) Abroad() (list []adminapi.Provider) {
	c.mu.Lock()
	relays := slices.Collect(maps.Keys(c.relays))
	c.mu.Unlock()
	for _, r := range relays {
		if view, ok := r.view(); ok {
			list = append(list, view)
		}
	}
	slices.SortFunc(list, func(a, b adminapi.Provider) int {
		return a.ConnectedAt.Compare(b.ConnectedAt)
	})
	return list
}
