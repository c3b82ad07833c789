package supervisor

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"tapgw/configs"
)

// reportFaults logs new faults and reports the change.
func (s *Supervisor) reportFaults() {
	now := s.faults()
	for _, f := range now {
		if !slices.Contains(s.reportedFaults, f) {
			s.o.Log.Warn("fault in a provider file", "fault", f.Error())
		}
	}
	s.reportedFaults = now
	s.o.Gateway.Touch()
}

// Faults returns the faults of the provider files and of the providers that they start, with file,
// line and column, in the order of the files.
func (s *Supervisor) Faults() (faults []configs.Fault) {
	s.do(func() { faults = s.faults() })
	return faults
}

func (s *Supervisor) faults() (faults []configs.Fault) {
	for _, f := range s.files {
		faults = append(faults, f.Faults...)
		p, ok := s.usable[fileKeyOf(f)]
		if !ok {
			if f.Provider.Required && !f.LeftOut {
				faults = append(faults, configs.Fault{File: f.File, Line: 1, Column: 1,
					Message: "the provider is required: until the file has no fault, calls of " +
						"its sessions are denied"})
			}
			continue
		}
		at := func(format string, args ...any) {
			fault := configs.Fault{File: f.File, Line: 1, Column: 1,
				Message: fmt.Sprintf(format, args...)}
			if !slices.Contains(faults, fault) {
				faults = append(faults, fault)
			}
		}
		if p.Dir != "" && p.Enabled {
			dir := (&Run{Workdir: cmp.Or(p.Project, s.o.Files.Workdir)}).Path(p.Dir)
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				at("dir: there is no directory %s", dir)
			}
		}
		if s.launch[p.Kind] == nil {
			at("kind: this gateway runs no providers of kind %q", p.Kind)
		}
		began := len(faults)
		for key, pl := range s.placements {
			if !key.isFor(p) {
				continue
			}
			for _, fault := range slices.Concat(pl.now.faults(), pl.next.faults()) {
				if !slices.Contains(faults, fault) {
					faults = append(faults, fault)
				}
			}
			for _, u := range []*unit{pl.now, pl.next} {
				if err := u.trouble(); err != nil {
					at("%v", err)
				}
			}
			if err := pl.now.failure(); err != nil && len(s.outgoing(key)) > 0 {
				at("%v; what ran before goes on", err)
			} else if err != nil {
				at("%v; tapctl providers restart %s tries again", err, p.Name)
			}
			if err := pl.next.failure(); err != nil {
				at("%v; what ran before goes on", err)
			}
		}
		// The placements come in any order.
		slices.SortFunc(faults[began:], func(a, b configs.Fault) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line),
				cmp.Compare(a.Message, b.Message))
		})
	}
	return faults
}
