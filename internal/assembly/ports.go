package assembly

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
)

// attachedPort is the port of a terminal that a person has attached.
type attachedPort struct {
	Port    int     `json:"port"`
	Process proc.ID `json:"process"` // of the terminal
	// Tools are the tools that the terminal has had from us. It goes on to list them, and they are
	// not its own.
	Tools []string `json:"tools"`
}

// maxGiven is how many names of tools are remembered of a terminal.
const maxGiven = 1000

// attachedPorts remembers the attached ports in a file, so that the next gateway attaches them
// again. Without attached ports, there is no file. Any goroutine may call its methods.
type attachedPorts struct {
	path string
	log  *slog.Logger

	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex // guards list and the file
	list []attachedPort
}

func newAttachedPorts(path string, log *slog.Logger) *attachedPorts {
	a := &attachedPorts{path: path, log: log}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// close keeps the file's ports for the next gateway, and waits for the work in progress.
func (a *attachedPorts) close() {
	a.cancel()
	a.mu.Lock()
	a.mu.Unlock() //nolint:staticcheck // waits until a change of the file is done
	a.running.Wait()
}

// add notes a port, in place of another process's note about the same port. It returns the port's
// note, and whether it is new. A process whose PID is not known is not noted, because another
// process may have the port the next time.
func (a *attachedPorts) add(p attachedPort) (noted attachedPort, isNew bool) {
	if p.Process.PID == 0 {
		return p, false
	}
	noted = p
	a.change(func() bool {
		isNew = true
		a.list = slices.DeleteFunc(a.list, func(other attachedPort) bool {
			if other.Port == p.Port && other.Process == p.Process {
				noted, isNew = other, false
			}
			return other.Port == p.Port
		})
		a.list = append(a.list, noted)
		return isNew
	})
	return noted, isNew
}

// remove forgets a port that is not attached any more.
func (a *attachedPorts) remove(port int) {
	a.change(func() bool {
		n := len(a.list)
		a.list = slices.DeleteFunc(a.list, func(p attachedPort) bool { return p.Port == port })
		return len(a.list) != n
	})
}

// gave notes the tools that the terminal at a port gets.
func (a *attachedPorts) gave(port int, tools []gateway.Tool) {
	a.change(func() (isNew bool) {
		i := slices.IndexFunc(a.list, func(p attachedPort) bool { return p.Port == port })
		if i < 0 {
			return false
		}
		had := slices.Clone(a.list[i].Tools)
		for _, t := range tools {
			if !slices.Contains(had, t.Name) {
				had, isNew = append(had, t.Name), true
			}
		}
		a.list[i].Tools = had[max(0, len(had)-maxGiven):]
		return isNew
	})
}

// change changes the list, and writes the file if edit reports a difference.
func (a *attachedPorts) change(edit func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil || !edit() {
		return
	}
	if len(a.list) == 0 {
		if err := os.Remove(a.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			a.log.Warn("forgetting an attached terminal", "error", err)
		}
		return
	}
	data, err := json.Marshal(a.list)
	if err == nil {
		err = proc.WritePrivate(a.path, append(data, '\n'))
	}
	if err != nil {
		a.log.Warn("after a restart, attached terminals must be attached again by hand", "error",
			err)
	}
}

// Attaching again: a terminal that is busy, or whose session another gateway's end has just left,
// answers later.
const (
	attachTries = 30
	attachPause = time.Second
)

// restore attaches the ports of the file whose terminals still run. It does not wait for that.
func (a *attachedPorts) restore(attach func(context.Context, attachedPort) error) {
	data, err := os.ReadFile(a.path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var list []attachedPort
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		a.log.Warn("attached terminals must be attached again: tapctl attach auto", "file", a.path,
			"error", err)
	}
	list = slices.DeleteFunc(list, func(p attachedPort) bool {
		return p.Process.PID == 0 || !p.Process.Alive()
	})
	a.change(func() bool {
		a.list = slices.Clone(list)
		return true
	})
	for _, p := range list {
		a.running.Go(func() { a.again(p, attach) })
	}
}

// again attaches a port of the file, as soon as its terminal answers.
func (a *attachedPorts) again(p attachedPort, attach func(context.Context, attachedPort) error) {
	var err error
	for range attachTries {
		if err = attach(a.ctx, p); err == nil || !p.Process.Alive() {
			break
		}
		if chans.Sleep(a.ctx, attachPause) != nil {
			return
		}
	}
	if err != nil {
		a.log.Warn("a terminal could not be attached again", "port", p.Port, "error", err)
		a.remove(p.Port)
	}
}
