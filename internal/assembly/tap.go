package assembly

import (
	"context"

	"tapgw/configs"
	"tapgw/internal/link"
	"tapgw/internal/supervisor"
	"tapgw/internal/taptools"
)

// ownProviders are the providers that the gateway has without a file. Each session has its own
// provider of the tap_* tools, which ends with it.
func ownProviders(c configs.Config) []configs.Provider {
	if !c.Tap.Tools {
		return nil
	}
	return []configs.Provider{{
		Name: taptools.Name, Kind: configs.KindTap, Enabled: true,
		Sessions: configs.Sessions{Mode: configs.SessionsEach},
	}}
}

// launchTap gives a session the tap_* tools until ctx ends.
func (p *Process) launchTap(ctx context.Context, r *supervisor.Run) error {
	s, ok := p.gateway.Session(r.Session)
	if !ok { // the session has ended meanwhile, and this provider with it
		<-ctx.Done()
		return nil
	}
	return taptools.Run(link.WithDial(ctx, p.dialOwn), taptools.Options{
		Session: s, Provider: *r.Options(), Questions: p.gateway.Questions,
		Calls: recordedCalls(p.records), Records: p.records.Find, Goals: p.goals,
		Emitters: sessionEmitters{p.emitters, r.Session},
		Log:      p.supervisor.Output,
	})
}

// dialOwn connects a provider that the gateway has without a file.
func (p *Process) dialOwn() (*link.Conn, error) { return p.server.DialOwn() }
