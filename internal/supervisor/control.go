package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

func unknownProvider(name string) *protocol.Error {
	return &protocol.Error{
		Code: protocol.CodeNotFound,
		Message: fmt.Sprintf(
			"no file names a provider %q, and what no file names is not run from here: tapctl providers lists both",
			name,
		),
	}
}

// Stop ends what runs of a provider, until Start or Restart, and returns how many
// there were. What calls itself by the name goes by its file; connections of the
// name that no file is behind are closed. The error is NOT_FOUND when there are
// neither, or files to choose from.
func (s *Supervisor) Stop(name string) (n int, err error) { return s.control("stop", name) }

// Start lets a provider run that was stopped, or had failed too often, and
// returns for how many sessions it does.
func (s *Supervisor) Start(name string) (n int, err error) { return s.control("start", name) }

// Restart ends what runs of a provider and starts it again.
func (s *Supervisor) Restart(name string) (n int, err error) { return s.control("restart", name) }

func (s *Supervisor) control(verb, name string) (n int, err error) {
	stop, start := verb != "start", verb != "stop"
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
				err = &protocol.Error{
					Code:    protocol.CodeNotFound,
					Message: fmt.Sprintf("provider %q is not connected: tapctl providers lists those that are", name),
				}
			}
			return
		}
		name = file
		for key, sl := range s.slots {
			if key.name != name || !stop && sl.now.failure() == nil {
				continue
			}
			n++
			sl.next.stop()
			sl.now.stop()
			delete(s.slots, key)
		}
		if start {
			n = 0
		}
		s.stoppedByUser[name] = !start
		s.reconcile()
		for key, sl := range s.slots {
			if start && key.name == name && !sl.isOutgoing {
				n++
			}
		}
	})
	return n, err
}

// errNoFile ends the wait for lines of a provider whose file was removed.
var errNoFile = errors.New("no file names the provider any more")

// Lines returns what a provider printed, and what became of its processes, after a
// number: as much as is kept, oldest first, and the number to ask with next. The
// error is NOT_FOUND when no file names it.
func (s *Supervisor) Lines(name string, after uint64) (lines []adminapi.TimelineLine, cursor uint64, err error) {
	o, err := s.outputOf(name)
	if err != nil {
		return nil, 0, err
	}
	lines, cursor = o.linesAfter(after)
	return lines, cursor, nil
}

// WaitLines waits for a line after a number, until ctx ends, the file is removed or
// the supervisor is closed.
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
		file, ambiguous := s.resolve("log", name)
		if file != "" {
			o, err = s.output(file), nil
		} else if ambiguous != nil {
			err = ambiguous
		}
	})
	return o, err
}

// updateProgramNames notes what the programs call themselves.
func (s *Supervisor) updateProgramNames() {
	names := map[string][]string{}
	for key, sl := range s.slots {
		for _, u := range []*unit{sl.now, sl.next} {
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

// resolve finds the file's name of a provider, "" where there is none. People may
// know it by what its program calls itself, which is what they see of it. The
// error names the files that they have to choose from.
func (s *Supervisor) resolve(verb, name string) (string, error) {
	if s.isNamed(name) {
		return name, nil
	}
	s.updateProgramNames()
	var files []string
	for file, o := range s.outputs {
		// What was stopped does not stand for who has its name now.
		if slices.Contains(o.programNames, protocol.NormalName(name)) && (verb != "stop" || !s.stoppedByUser[file]) {
			files = append(files, file)
		}
	}
	switch slices.Sort(files); len(files) {
	case 0:
		return "", nil
	case 1:
		return files[0], nil
	}
	return "", &protocol.Error{Code: protocol.CodeNotFound,
		Message: fmt.Sprintf(
			"%s is run by files %s: tapctl providers %s %s", name, strings.Join(files, ", "), verb, files[0],
		)}
}
