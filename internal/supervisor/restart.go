package supervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// This file is the supervisor's side of `tapctl providers restart`: the new process joins before
// the old one goes, where both can run.

// How long [Supervisor.Restart] waits for the new processes to join, or to fail while there is no
// session to join.
const (
	restartTime = 10 * time.Second
	failureTime = time.Second
)

// Restart starts new units of a provider beside the old ones, and ends the old ones once the new
// ones are bound, as a changed file does. It returns when all new units are bound, or after ten
// seconds. The result says for how many sessions the provider runs, and how many new units are not
// bound yet. If a new unit fails before, the error has its last line of output. Then the old unit
// goes on; where no old unit was bound, the new one is started again. The other errors are those of
// [Supervisor.Stop].
func (s *Supervisor) Restart(
	ctx context.Context, name string,
) (done adminapi.Restarted, err error) {
	defer s.o.Gateway.Watch()()
	seen := uint64(0)
	if o, err := s.outputOf(name); err == nil {
		_, seen = o.linesAfter(0)
	}
	if done.Restarted, err = s.control(verbRestart, name); err != nil {
		return done, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.restartTime(name))
	defer cancel()
	for {
		changes := s.o.Gateway.Changes()
		s.do(func() { done.Waiting, err = s.restarted(name, seen) })
		if err != nil || done.Waiting == 0 || s.o.Gateway.WaitChange(ctx, changes) != nil {
			return done, err
		}
	}
}

func (s *Supervisor) restartTime(name string) (wait time.Duration) {
	wait = failureTime
	s.do(func() {
		file, _ := s.resolve(verbRestart, name)
		sessions := s.o.Gateway.Sessions()
		for key, pl := range s.placements {
			if key.name == file &&
				(key.session != "" || slices.ContainsFunc(sessions, sessionFilter(pl.now.spec))) {
				wait = restartTime
			}
		}
	})
	return wait
}

// canSwap reports whether a new unit can be started beside the one that runs. Another gateway would
// refuse its tools, and a program that starts itself can't be started.
func (pl *placement) canSwap(key placementKey) bool {
	return pl.now.isBound() && pl.now.failure() == nil && !pl.isOutgoing && key.at == "" &&
		!pl.now.spec.StartsItself()
}

// restarted returns how many new units of a provider are not bound yet. The error says that a new
// unit has failed. It stops that unit if an old one is still there.
func (s *Supervisor) restarted(name string, seen uint64) (waiting int, err error) {
	file, err := s.resolve(verbRestart, name)
	if err != nil {
		return 0, err
	}
	failed, units := []string{}, 0
	for key, pl := range s.placements {
		if key.name != file || pl.isOutgoing || pl.now.spec.StartsItself() {
			continue
		}
		units++
		u := pl.now
		if pl.restarts && pl.next != nil {
			u = pl.next
		}
		why := u.firstFailure.Load()
		switch {
		case u.isBound():
		case why == nil:
			waiting++
		case u == pl.now:
			failed = append(failed, fmt.Sprintf("%v%s; it is started again", *why,
				s.lastLine(file, seen)))
		default:
			u.stop()
			pl.next, pl.restarts = nil, false
			failed = append(failed, fmt.Sprintf("%v%s; %s", *why, s.lastLine(file, seen),
				pl.now.fate(file)))
		}
	}
	if len(failed) == 0 {
		return waiting, nil
	}
	s.reportFaults()
	text := "the new process of " + file + " failed: "
	if units > 1 {
		text = fmt.Sprintf("the new processes of %s failed for %d of %d sessions: ", file,
			len(failed), units)
	}
	return 0, &protocol.Error{Code: protocol.CodeInvalidState, Message: text + failed[0]}
}

// fate says, in an error, how a unit goes on whose successor has failed.
func (u *unit) fate(name string) string {
	if state, why := u.state(); state != adminapi.ConfiguredRunning {
		return "the one before is not connected either: " + why
	}
	return fmt.Sprintf(
		"the one before goes on. If two can't run at once: tapctl providers stop %s, then start",
		name)
}

// lastLine is the last line that the programs of a provider printed after a cursor, for an error.
func (s *Supervisor) lastLine(name string, seen uint64) string {
	lines, _ := s.output(name).linesAfter(seen)
	for i := len(lines) - 1; i >= 0; i-- {
		if text := strings.TrimSpace(lines[i].Message); text != "" &&
			lines[i].Source != fromGateway {
			return fmt.Sprintf(" (its last line: %s)", text)
		}
	}
	return ""
}
