package server_test

import (
	"context"
	"log/slog"
	"testing/synctest"

	"tapgw/internal/cluster"
	"tapgw/internal/gateway"
	"tapgw/internal/server"
	"tapgw/internal/taptest/membus"
)

// twoGateways is the transport of providers that connect to another gateway than that of the
// sessions.
const twoGateways = "two gateways"

// elsewhere is the gateway of the providers, and the cluster that joins it with that of the
// sessions.
type elsewhere struct {
	gateway        *gateway.Gateway
	sessions, here *cluster.Cluster
}

func newElsewhere(s *stage) *elsewhere {
	e := &elsewhere{gateway: gateway.New(gateway.Options{})}
	bus := membus.New(64 << 10)
	join := func(g *gateway.Gateway, name, other string) *cluster.Cluster {
		c, err := cluster.Start(cluster.Options{
			Gateway: g, Log: slog.New(slog.DiscardHandler), Name: name, Share: []string{"*"},
			Admit:      map[string]gateway.Trust{other: gateway.TrustProject},
			PersistDir: func(name string) (string, error) { return persistDir(name), nil },
			ReadFile:   readFile,
		}, bus)
		if err != nil {
			s.t.Fatal(err)
		}
		return c
	}
	e.sessions, e.here = join(s.gateway, "sessions", "providers"),
		join(e.gateway, "providers", "sessions")
	synctest.Wait() // until they have found each other
	s.names.set("instance", e.gateway.InstanceToken())
	s.names.set("admin", e.gateway.AdminToken())
	return e
}

func (e *elsewhere) close(ctx context.Context) {
	e.gateway.Drain(ctx)
	e.here.Close()
	e.sessions.Close()
}

// connection begins the connection of a provider in this process.
func (s *stage) connection(p gateway.Peer, o gateway.ConnOptions) server.ProviderConn {
	if s.elsewhere != nil {
		return s.elsewhere.here.Connect(p, o)
	}
	return s.gateway.Connect(p, o)
}

// Reasons why a conversation is another one when its providers connect to another gateway than that
// of the sessions.
const (
	byToken   = "a token or a pairing code of the session's gateway"
	byTrust   = "the trust of the admin token, which another gateway does not give"
	byHost    = "questions, which only provider files of the session's gateway grant"
	byFile    = "files are sent with the result, as parts of it"
	byGateway = "the gateway that ends is not the one that the providers connect to"
	byAddress = "web pages of another origin may only pair"
)

// notElsewhere are the conversations that are other ones through two gateways, with the reason.
var notElsewhere = map[string]string{
	"auth-foreign": byAddress, "drain": byGateway, "call-results": byFile, "v2-result-file": byFile,
	"names-approved": byToken, "names-owned-streams": byToken, "names-owned": byToken,
	"pairing":     byToken,
	"push-people": byToken, "scope": byToken, "session-switch-paired": byToken,
	"v2-pairing-code": byToken, "v2-pairing-end": byToken, "v2-pairing-limits": byToken,
	"v2-pairing-same-id": byToken, "v2-pairing-token": byToken, "v2-subscribe-shown": byToken,
	"v2-subscribe-tools": byToken, "v2-trust-external": byToken, "v2-trust-project": byToken,
	"names-timeline": byTrust, "v2-streams": byTrust, "v2-trust-internal": byTrust,
	"questions-ended": byHost, "questions-grant": byHost, "questions-many": byHost,
	"questions-wrong": byHost,
	"questions":       byHost,
}
