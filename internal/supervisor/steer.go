package supervisor

import (
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/protocol"
)

func unknown(name string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("no file names a provider %q", name)}
}

// Stop ends what runs of a provider, until Start or Restart, and returns how many
// there were. What calls itself by the name goes by its file; connections of the
// name that no file is behind are closed. The error is NOT_FOUND when there are
// neither, or files to choose from.
func (s *Supervisor) Stop(name string) (n int, err error) { return s.steer("stop", name) }

// Start lets a provider run that was stopped, or had failed too often, and
// returns for how many sessions it does.
func (s *Supervisor) Start(name string) (n int, err error) { return s.steer("start", name) }

// Restart ends what runs of a provider and starts it again.
func (s *Supervisor) Restart(name string) (n int, err error) { return s.steer("restart", name) }

func (s *Supervisor) steer(verb, name string) (n int, err error) {
	stop, start := verb != "start", verb != "stop"
	err = &protocol.Error{Code: protocol.CodeInvalidState, Message: "the gateway is shutting down"}
	s.do(func() {
		file := ""
		if file, err = s.resolve(verb, name); err != nil {
			return
		}
		if file == "" && start {
			err = unknown(name)
			return
		}
		if file == "" {
			if n = s.o.Gateway.StopProvider(name); n == 0 {
				err = &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("provider %q is not connected", name)}
			}
			return
		}
		name = file
		for key, sl := range s.slots {
			if key.name != name || !stop && sl.now.failed() == nil {
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
		s.held[name] = !start
		s.reconcile()
		for key, sl := range s.slots {
			if start && key.name == name && !sl.leaving {
				n++
			}
		}
	})
	return n, err
}

// Log returns the last lines of a provider, oldest first. The error is NOT_FOUND
// when no file names it.
func (s *Supervisor) Log(name string) (lines []string, err error) {
	err = unknown(name)
	s.do(func() {
		file, ambiguous := s.resolve("log", name)
		if file != "" {
			lines, err = s.output(file).lines(), nil
		} else if ambiguous != nil {
			err = ambiguous
		}
	})
	return lines, err
}

// learn notes what the programs call themselves.
func (s *Supervisor) learn() {
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
			o.names = n
		}
	}
}

// resolve finds the file's name of a provider, "" where there is none. People may
// know it by what its program calls itself, which is what they see of it. The
// error names the files that they have to choose from.
func (s *Supervisor) resolve(verb, name string) (string, error) {
	if s.named(name) {
		return name, nil
	}
	s.learn()
	var files []string
	for file, o := range s.outputs {
		// What was stopped does not stand for who has its name now.
		if slices.Contains(o.names, name) && (verb != "stop" || !s.held[file]) {
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
		Message: fmt.Sprintf("%s is run by files %s: tapctl providers %s %s", name, strings.Join(files, ", "), verb, files[0])}
}
