package supervisor

import (
	"slices"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// expectProviders tells the gateway which providers its sessions expect, if the list has changed.
func (s *Supervisor) expectProviders() {
	list := s.expectedProviders()
	if slices.EqualFunc(list, s.expected, sameConfig) {
		return
	}
	s.expected = list
	told := make([]gateway.ExpectedProvider, len(list))
	for i, p := range list {
		told[i] = gateway.ExpectedProvider{
			Name: p.Name, Says: p.ExpectedName(), Owner: ownerOf(p), Match: sessionFilter(p),
			Required: p.Required, Why: func(session string) string { return s.whyAway(p, session) },
		}
	}
	s.o.Gateway.ExpectProviders(told)
}

// expectedProviders returns the providers that should be bound in their sessions. A required
// provider is expected even while the user has stopped it, or while its file can't be used: only
// the content of a file opens a gate.
func (s *Supervisor) expectedProviders() (list []*configs.Provider) {
	runs := s.enabledProviders()
	for _, f := range s.files {
		p, isUsable := s.usable[fileKeyOf(f)]
		switch {
		case !isUsable && f.LeftOut: // a project's file that the user does not trust gates nothing
			continue
		case !isUsable:
			p = f.Provider
		case !p.Enabled:
			continue
		}
		if p.Required || slices.Contains(runs, p) {
			list = append(list, p)
		}
	}
	return list
}

// whyAway returns in one line why a provider is not bound in a session.
func (s *Supervisor) whyAway(p *configs.Provider, session string) (why string) {
	why = "the gateway is shutting down"
	s.do(func() {
		_, isUsable := s.usable[fileKey{p.File, p.Name}]
		for _, key := range []placementKey{keyOf(p, session), keyOf(p, "")} {
			if pl := s.placements[key]; pl != nil && isUsable {
				state, reason := pl.now.state()
				if why = reason; state == adminapi.ConfiguredFailed {
					why += "; " + command(p, "restart")
				}
				return
			}
		}
		why = ""
		for _, f := range s.files {
			if fileKeyOf(f) == (fileKey{p.File, p.Name}) {
				_, why = s.stateOf(f, p, isUsable)
			}
		}
	})
	return why
}
