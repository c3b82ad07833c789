package supervisor

import (
	"fmt"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// Configured lists the providers that files name, in the order of the files, and
// says what is with each.
func (s *Supervisor) Configured() (views []gateway.ConfiguredView) {
	s.do(func() {
		for _, f := range s.files {
			if f.Name == "" { // a directory that can't be read, which is a fault
				continue
			}
			p, good := s.good[f.File]
			v := gateway.ConfiguredView{Name: f.Name, Kind: p.Kind, File: f.File}
			v.State, v.Reason = s.stateOf(f, p, good)
			views = append(views, v)
		}
	})
	return views
}

// stateOf is what is with a file, and why it does not run if it does not.
func (s *Supervisor) stateOf(f configs.ProviderFile, p configs.Provider, good bool) (state, reason string) {
	switch {
	case f.Barred && len(f.Faults) > 0:
		return gateway.ConfiguredWaiting, f.Faults[0].Message
	case !good && len(f.Faults) > 0:
		return gateway.ConfiguredFailed, fmt.Sprintf("line %d: %s", f.Faults[0].Line, f.Faults[0].Message)
	case s.held[p.Name]:
		return gateway.ConfiguredStopped, "by the user; tapctl providers start " + p.Name
	case !p.Enabled:
		return gateway.ConfiguredStopped, "enabled = false"
	case s.launch[p.Kind] == nil:
		return gateway.ConfiguredFailed, fmt.Sprintf("this gateway runs no providers of kind %q", p.Kind)
	}
	state, reason = gateway.ConfiguredWaiting, "there is no session that it is for"
	for key, sl := range s.slots {
		if !key.of(p) {
			continue
		}
		switch now, why := sl.now.state(); {
		case now == gateway.ConfiguredFailed:
			return now, why + "; tapctl providers restart " + p.Name
		case now == gateway.ConfiguredRunning:
			state, reason = now, ""
		case state != gateway.ConfiguredRunning:
			reason = why
		}
	}
	return state, reason
}

// state is what is with a unit, and why it does not run if it does not.
func (u *unit) state() (state, reason string) {
	if err := u.failed(); err != nil {
		return gateway.ConfiguredFailed, err.Error()
	}
	if err := u.resting.Load(); err != nil {
		return gateway.ConfiguredWaiting, (*err).Error()
	}
	if err := u.trouble(); err != nil {
		return gateway.ConfiguredWaiting, err.Error()
	}
	if u.spec.Kind == configs.KindConnect && u.pass.Name() == "" {
		return gateway.ConfiguredWaiting, "its program, which starts itself, has not joined a session"
	}
	return gateway.ConfiguredRunning, ""
}
