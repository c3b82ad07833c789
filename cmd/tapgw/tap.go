package main

import (
	"context"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/supervisor"
	"tapgw/internal/taptools"
)

// ownProviders are the providers that the gateway has without a file. A session has the tap_* tools to itself, so that
// they go with it.
func ownProviders(c configs.Config) []configs.Provider {
	if !c.Tap.Tools {
		return nil
	}
	return []configs.Provider{{
		Name: taptools.Name, Kind: configs.KindTap, Enabled: true,
		Sessions: configs.Sessions{Mode: configs.SessionsEach},
	}}
}

// launchTap returns a launcher that gives a session the tap_* tools until ctx ends.
func launchTap(g *gateway.Gateway) supervisor.Launcher {
	return func(ctx context.Context, r *supervisor.Run) error {
		s, ok := g.Session(r.Session)
		if !ok { // it ended meanwhile, and with it this provider
			<-ctx.Done()
			return nil
		}
		return taptools.Run(ctx, taptools.Options{Session: s, Provider: *r.Options(), Questions: g.Questions})
	}
}
