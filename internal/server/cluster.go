package server

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Cluster joins the gateway with others.
type Cluster interface {
	// Connect begins the connection of a provider, which may serve sessions of other gateways, too.
	Connect(p gateway.Peer, o gateway.ConnOptions) ProviderConn
	// Forward lets another gateway answer a request of the admin API. path is below the API's
	// prefix.
	Forward(w http.ResponseWriter, r *http.Request, gateway, path string)
	// Providers are those that serve sessions of other gateways but not of this one.
	Providers() []adminapi.Provider
	// State returns the state of the other gateways, as far as this one can see it. It asks them,
	// and waits a moment for their answers.
	State(ctx context.Context) adminapi.Cluster
	// Known is State without asking.
	Known() adminapi.Cluster
	// History returns events of the streams that last, newest first: at most last of each stream, 0
	// for all, and no event older than since. Streams are STREAM or STREAM@PROVIDER; an empty list
	// means all.
	History(ctx context.Context, streams []string, last int, since time.Time) adminapi.KeptHistory
}

// ProviderConn is the gateway's end of a provider's connection: a [gateway.Conn], or one of a
// [Cluster]. One goroutine, the connection's reader, calls its methods.
type ProviderConn interface {
	AuthEnded() bool
	Receive(data []byte)
	ReceiveOversized(beginning []byte, size int)
	ReceiveBinary(size int)
	Closed()
}

// connect begins the connection of a provider.
func (s *Server) connect(p gateway.Peer, o gateway.ConnOptions) ProviderConn {
	if s.o.Cluster == nil {
		return s.gateway.Connect(p, o)
	}
	return s.o.Cluster.Connect(p, o)
}

// connected lists the connected providers.
func (a *api) connected() []adminapi.Provider {
	list := a.gateway.Providers()
	if a.server.o.Cluster != nil {
		list = append(list, a.server.o.Cluster.Providers()...)
	}
	return orEmpty(list)
}

func (a *api) cluster(r *http.Request) (any, error) {
	state := adminapi.Cluster{Sessions: a.gateway.Sessions(), Providers: a.gateway.Providers()}
	if a.server.o.Cluster != nil {
		state = a.server.o.Cluster.State(r.Context())
	}
	return withLists(state), nil
}

// knownCluster is the state for readers of GET /events. Without a cluster it has no lists: they are
// states of their own.
func (a *api) knownCluster() adminapi.Cluster {
	if a.server.o.Cluster == nil {
		return withLists(adminapi.Cluster{})
	}
	return withLists(a.server.o.Cluster.Known())
}

// withLists replaces nil lists by empty ones.
func withLists(c adminapi.Cluster) adminapi.Cluster {
	c.Gateways, c.Sessions, c.Providers = orEmpty(c.Gateways), orEmpty(c.Sessions),
		orEmpty(c.Providers)
	return c
}

// keptHistory answers with the events that the gateways of the cluster keep.
func (a *api) keptHistory(r *http.Request) (any, error) {
	q, err := readParams(r, "stream", "last", "since")
	if err != nil {
		return nil, err
	}
	last, err := readLast(q, 1)
	if err != nil {
		return nil, err
	}
	since, err := readTime(q, "since")
	if err != nil {
		return nil, err
	}
	streams, err := readStreams(q["stream"])
	if err != nil {
		return nil, err
	}
	h := adminapi.KeptHistory{}
	if a.server.o.Cluster != nil {
		h = a.server.o.Cluster.History(r.Context(), streams, last, since)
	}
	h.Events, h.Faults = orEmpty(h.Events), orEmpty(h.Faults)
	return h, nil
}

// broadcast gives an event to all sessions of all gateways.
func (a *api) broadcast(r *http.Request, body adminapi.Broadcast) (any, error) {
	m, err := toPush(adminapi.Push{Stream: body.Stream, Event: body.Event, Prompt: body.Prompt,
		Metadata: body.Metadata}, cmp.Or(protocol.Level(body.Level), protocol.LevelSurface))
	if err != nil {
		return nil, err
	}
	m.Traceparent = spans.FromHeader(r.Header)
	return answerReceipt(a.gateway.Broadcast(r.Context(), cmp.Or(body.Provider, apiPusher), m))
}

// remote lets another gateway of the cluster answer.
func (a *api) remote(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("gateway")
	if a.server.o.Cluster == nil {
		fail(w, http.StatusNotFound, string(protocol.CodeNotFound),
			"this gateway has joined no others: [cluster] in tapgw.toml has no urls")
		return
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), apiPrefix+"/gateways/"), "/")
	a.server.o.Cluster.Forward(w, r, name, "/"+path)
}
