package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// This file is the supervisor's side of `tapctl providers start`, `stop` and `log`.

// unknownProvider is the error NOT_FOUND for a name that no file has.
func unknownProvider(name string) *protocol.Error {
	return protocol.Errorf(protocol.CodeNotFound,
		"no file names a provider %q, and what no file names is not run from here: tapctl "+
			"providers lists both", name)
}

// Stop ends the units of a provider until Start or Restart, and returns how many there were. name
// is a file's name, or the name that the program connects with. A connection without a file is
// closed. Errors are NOT_FOUND for an unknown name or one that several files have, and
// INVALID_STATE while the gateway shuts down.
func (s *Supervisor) Stop(name string) (n int, err error) { return s.control(verbStop, name) }

// Start runs a provider that was stopped or that gave up, and returns for how many sessions it
// runs. The errors are those of [Supervisor.Stop].
func (s *Supervisor) Start(name string) (n int, err error) { return s.control(verbStart, name) }

// Verbs of [Supervisor.control].
const (
	verbStart   = "start"
	verbStop    = "stop"
	verbRestart = "restart"
)

// control stops a provider, starts it, or has new units take the place of its bound ones.
func (s *Supervisor) control(verb, name string) (n int, err error) {
	stop, start := verb != verbStart, verb != verbStop
	err = &protocol.Error{Code: protocol.CodeInvalidState, Message: "the gateway is shutting down"}
	s.do(func() {
		file := ""
		if file, err = s.resolve(verb, name); err != nil {
			return
		}
		if file == "" && start {
			err = unknownProvider(name)
			return
		}
		if file == "" {
			if n = s.o.Gateway.StopProvider(name); n == 0 {
				err = protocol.Errorf(protocol.CodeNotFound,
					"provider %q is not connected: tapctl providers lists those that are", name)
			}
			return
		}
		name = file
		for key, pl := range s.placements {
			if key.name != name || !stop && pl.now.failure() == nil {
				continue
			}
			n++
			pl.next.stop()
			if verb == verbRestart && pl.canSwap(key) {
				pl.next, pl.restarts = s.start(pl.now.spec, key, append(s.outgoing(key), pl.now)),
					true
				continue
			}
			pl.now.stop()
			delete(s.placements, key)
		}
		if start {
			n = 0
		}
		s.stoppedByUser[name] = !start
		s.reconcile()
		for key, pl := range s.placements {
			if start && key.name == name && !pl.isOutgoing {
				n++
			}
		}
	})
	return n, err
}

// Provider returns a provider as its file declares it. name is the file's name, or the name that
// its program connects with. A project's file must be as the user trusted it. Errors are NOT_FOUND
// for an unknown name or one that several files have, and INVALID_STATE for a file that has a fault
// or is not trusted.
func (s *Supervisor) Provider(name string) (p configs.Provider, err error) {
	err = unknownProvider(name)
	s.do(func() {
		file, ambiguous := s.resolve("restart", name)
		if ambiguous != nil {
			err = ambiguous
		}
		for _, f := range s.files {
			switch {
			case f.Name != name && f.Name != file:
			case len(f.Faults) > 0:
				err = &protocol.Error{Code: protocol.CodeInvalidState, Message: f.Faults[0].Error()}
			default:
				p, err = *f.Provider, nil
				return
			}
		}
	})
	if err == nil && p.Project != "" {
		if changed := configs.Unchanged(p.Project, p.File); changed != nil {
			return configs.Provider{}, &protocol.Error{Code: protocol.CodeInvalidState,
				Message: changed.Error()}
		}
	}
	return p, err
}

// settleTime bounds how long [Supervisor.Settle] waits.
const settleTime = 2 * time.Second

// Settle waits until a session that has started has the gateway's own providers, or they have
// failed, until ctx ends or for settleTime at most. So the first prompt to the session finds their
// tools.
func (s *Supervisor) Settle(ctx context.Context, session string) {
	if len(s.o.Own) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	defer s.o.Gateway.Watch()()
	for {
		changes := s.o.Gateway.Changes()
		settled := true
		s.do(func() {
			s.reconcile() // the session may be newer than the last look
			for key, pl := range s.placements {
				if key.session == session && pl.now.spec.File == "" && !pl.now.isBound() &&
					pl.now.failure() == nil {
					settled = false
				}
			}
		})
		if settled || s.o.Gateway.WaitChange(ctx, changes) != nil {
			return
		}
	}
}

// errNoFile ends the wait for lines of a provider whose file was removed.
var errNoFile = errors.New("no file names the provider any more")

// Lines returns the stored lines after a cursor, oldest first, and the cursor for the next
// question. The lines are a provider's output, and events of its processes. The error is NOT_FOUND
// if no file names the provider, and no line of [Supervisor.Output] is kept.
func (s *Supervisor) Lines(
	name string, after uint64,
) (lines []adminapi.TimelineLine, cursor uint64, err error) {
	o, err := s.outputOf(name)
	if err != nil {
		return nil, 0, err
	}
	lines, cursor = o.linesAfter(after)
	return lines, cursor, nil
}

// WaitLines waits until there is a line after a cursor. It returns an error when ctx ends, the file
// is removed or the supervisor is closed, and NOT_FOUND if no file names the provider.
func (s *Supervisor) WaitLines(ctx context.Context, name string, after uint64) error {
	o, err := s.outputOf(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	return o.wait(ctx, after)
}

func (s *Supervisor) outputOf(name string) (o *output, err error) {
	err = unknownProvider(name)
	s.do(func() {
		if own := s.outputs[name]; own != nil && own.users > 0 {
			o, err = own, nil
			return
		}
		file, ambiguous := s.resolve("log", name)
		if file != "" {
			o, err = s.output(file), nil
		} else if ambiguous != nil {
			err = ambiguous
		}
	})
	return o, err
}

// updateProgramNames records the names that the running programs connected with.
func (s *Supervisor) updateProgramNames() {
	names := map[string][]string{}
	for key, pl := range s.placements {
		for _, u := range []*unit{pl.now, pl.next} {
			if u == nil {
				continue
			}
			if name := u.pass.Name(); name != "" && !slices.Contains(names[key.name], name) {
				names[key.name] = append(names[key.name], name)
			}
		}
	}
	for file, n := range names {
		if o := s.outputs[file]; o != nil { // a file names it still
			o.programNames = n
		}
	}
}

// resolve returns the file's name of a provider, or "" if no file has it. People may use the name
// that the program connects with, because lists show it. The error lists the files if several run
// such a program.
func (s *Supervisor) resolve(verb, name string) (string, error) {
	if s.isNamed(name) {
		return name, nil
	}
	s.updateProgramNames()
	var files []string
	for file, o := range s.outputs {
		// A stopped provider does not answer for another that has its name now.
		if slices.Contains(o.programNames, protocol.NormalName(name)) &&
			(verb != "stop" || !s.stoppedByUser[file]) {
			files = append(files, file)
		}
	}
	switch slices.Sort(files); len(files) {
	case 0:
		return "", nil
	case 1:
		return files[0], nil
	}
	return "", protocol.Errorf(protocol.CodeNotFound,
		"%s is run by files %s: tapctl providers %s %s", name, strings.Join(files, ", "), verb,
		files[0])
}
