package supervisor

import (
	"time"

	"tapgw/configs"
)

// startAgain is how long a provider for a session of another gateway waits when too many were
// started.
const startAgain = time.Second

// ElsewhereChanged makes the supervisor look at the sessions of other gateways. It does not block.
func (s *Supervisor) ElsewhereChanged() { s.wakeLoop() }

// addElsewhere adds the providers to run for sessions of other gateways. Running ones stay; beyond
// MaxElsewhere, and where sessions come and go too fast, the others wait.
func (s *Supervisor) addElsewhere(want map[placementKey]*configs.Provider) {
	if s.o.Elsewhere == nil || s.o.MaxElsewhere == 0 {
		return
	}
	n := 0
	var waiting []placementKey
	providers := map[placementKey]*configs.Provider{}
	for _, p := range s.enabledProviders() {
		if !p.ServesElsewhere() {
			continue
		}
		for _, v := range s.o.Elsewhere(p.ExpectedName()) {
			key := placementKey{p.Name, p.Project, v.ID, v.Gateway}
			switch {
			case !p.Sessions.Match(v.Label, "", v.Host):
			case s.placements[key] != nil:
				want[key] = p
				n++
			default:
				waiting = append(waiting, key)
				providers[key] = p
			}
		}
	}
	wasFull := s.isFullElsewhere
	s.isFullElsewhere = n+len(waiting) > s.o.MaxElsewhere
	if s.isFullElsewhere && !wasFull {
		s.o.Log.Warn("sessions of other gateways wait for a provider: cluster.max_each is reached",
			"max_each", s.o.MaxElsewhere, "wanted", n+len(waiting))
	}
	for _, key := range waiting {
		switch {
		case n >= s.o.MaxElsewhere:
			return
		case !s.starts.Allow():
			s.startTimer.Reset(startAgain)
			return
		}
		want[key] = providers[key]
		n++
	}
}
