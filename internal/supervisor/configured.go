package supervisor

import (
	"fmt"
	"slices"

	"tapgw/configs"
	"tapgw/internal/adminapi"
)

// Configured lists the providers that files name, in the order of the files, each with its state
// and the reason for that state.
func (s *Supervisor) Configured() (views []adminapi.ConfiguredProvider) {
	s.do(func() {
		for _, f := range s.files {
			// Without a name it is a directory that can't be read. One of the gateway's own has no
			// file: it is listed while it is stopped, so that it can be started.
			if f.Name == "" || f.File == "" && !s.stoppedByUser[f.Name] {
				continue
			}
			p, good := s.usable[fileKeyOf(f)]
			if !good {
				p = f.Provider
			}
			v := adminapi.ConfiguredProvider{Name: f.Name, Kind: p.Kind, File: f.File,
				Connected: []string{}, Required: p.Required}
			v.State, v.Reason = s.stateOf(f, p, good)
			s.describeUnits(&v, p)
			v.Actions = s.actions(p, v.State, good && !f.LeftOut)
			views = append(views, v)
		}
	})
	return views
}

// describeUnits sets the fields of v about running units.
func (s *Supervisor) describeUnits(v *adminapi.ConfiguredProvider, p *configs.Provider) {
	for key, pl := range s.placements {
		if !key.isFor(p) {
			continue
		}
		if at := pl.now.startsAt.Load(); at != nil &&
			(v.StartsAt.IsZero() || at.Before(v.StartsAt)) {
			v.StartsAt = *at
		}
		for _, u := range []*unit{pl.now, pl.next} {
			if u != nil {
				v.Connected = append(v.Connected, u.pass.Providers()...)
			}
		}
	}
	slices.Sort(v.Connected)
}

// actions returns the commands that would change a provider in a state. For one that can't be used,
// or that its file turns off, only an edit of the file helps.
func (s *Supervisor) actions(p *configs.Provider, state string, isUsable bool) []string {
	switch {
	case !isUsable || !p.Enabled || s.launch[p.Kind] == nil:
		return []string{}
	case state == adminapi.ConfiguredStopped:
		return []string{adminapi.ActionStart}
	case state == adminapi.ConfiguredFailed:
		return []string{adminapi.ActionStart, adminapi.ActionStop}
	}
	for key := range s.placements {
		if key.isFor(p) {
			return []string{adminapi.ActionRestart, adminapi.ActionStop}
		}
	}
	return []string{adminapi.ActionStop}
}

// Usable returns the providers of a kind in the files of a name: of each file, its last version
// without a fault.
func (s *Supervisor) Usable(name, kind string) (found []configs.Provider) {
	s.do(func() {
		for _, p := range s.usable {
			if p.Name == name && p.Kind == kind {
				found = append(found, *p)
			}
		}
	})
	return found
}

// stateOf returns the state of a file's provider, and why it does not run.
func (s *Supervisor) stateOf(
	f configs.ProviderFile, p *configs.Provider, isUsable bool,
) (state, reason string) {
	switch {
	case f.LeftOut && len(f.Faults) == 1: // with more, the first is one of the file itself
		return adminapi.ConfiguredWaiting, f.Faults[0].Message
	case !isUsable && len(f.Faults) > 0:
		return adminapi.ConfiguredFailed, fmt.Sprintf("line %d: %s", f.Faults[0].Line,
			f.Faults[0].Message)
	case s.stoppedByUser[p.Name]:
		return adminapi.ConfiguredStopped, "by the user; " + command(p, "start")
	case !p.Enabled:
		return adminapi.ConfiguredStopped, "enabled = false"
	case s.launch[p.Kind] == nil:
		return adminapi.ConfiguredFailed, fmt.Sprintf("this gateway runs no providers of kind %q",
			p.Kind)
	}
	state, reason = adminapi.ConfiguredWaiting, "there is no session that it is for"
	for key, pl := range s.placements {
		if !key.isFor(p) {
			continue
		}
		switch now, why := pl.now.state(); {
		case now == adminapi.ConfiguredFailed:
			return now, why + "; " + command(p, "restart")
		case now == adminapi.ConfiguredRunning:
			state, reason = now, ""
		case state != adminapi.ConfiguredRunning:
			reason = why
		}
	}
	return state, reason
}

// command is the command line that does something with a provider. A source that failed is started.
func command(p *configs.Provider, verb string) string {
	if p.Source != nil {
		return "tapctl sources start " + p.Name
	}
	return "tapctl providers " + verb + " " + p.Name
}

// state returns the state of a unit, and why it does not run.
func (u *unit) state() (state, reason string) {
	if err := u.failure(); err != nil {
		return adminapi.ConfiguredFailed, err.Error()
	}
	for _, err := range []error{load(&u.restReason), u.trouble(), load(&u.awayReason)} {
		if err != nil {
			return adminapi.ConfiguredWaiting, err.Error()
		}
	}
	if u.spec.StartsItself() && u.pass.Name() == "" {
		return adminapi.ConfiguredWaiting,
			"its program, which starts itself, has not joined a session"
	}
	return adminapi.ConfiguredRunning, ""
}
