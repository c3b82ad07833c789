package server

import (
	"context"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// Cluster joins the gateway with others.
type Cluster interface {
	// Connect begins the connection of a provider, which may serve sessions of other gateways, too.
	Connect(p gateway.Peer, o gateway.ConnOptions) ProviderConn
	// Providers are those that serve sessions of other gateways and none of this one.
	Providers() []adminapi.Provider
	// State returns what this gateway sees of the others. It asks them, and waits a moment for their answers.
	State(ctx context.Context) adminapi.Cluster
}

// ProviderConn is the gateway's end of a provider's connection: a [gateway.Conn], or one of a [Cluster]. One goroutine,
// the connection's reader, calls its methods.
type ProviderConn interface {
	AuthEnded() bool
	Receive(data []byte)
	ReceiveOversized(beginning []byte, size int)
	ReceiveBinary(size int)
	Closed()
}

// connect begins the connection of a provider.
func (s *Server) connect(p gateway.Peer, o gateway.ConnOptions) ProviderConn {
	if s.cluster == nil {
		return s.gateway.Connect(p, o)
	}
	return s.cluster.Connect(p, o)
}

// connected lists the connected providers.
func (a *api) connected() []adminapi.Provider {
	list := a.gateway.Providers()
	if a.server.cluster != nil {
		list = append(list, a.server.cluster.Providers()...)
	}
	return orEmpty(list)
}

func (a *api) cluster(w http.ResponseWriter, r *http.Request) error {
	state := adminapi.Cluster{Sessions: a.gateway.Sessions(), Providers: a.gateway.Providers()}
	if a.server.cluster != nil {
		state = a.server.cluster.State(r.Context())
	}
	state.Gateways = orEmpty(state.Gateways)
	state.Sessions, state.Providers = orEmpty(state.Sessions), orEmpty(state.Providers)
	return writeJSON(w, http.StatusOK, state)
}
