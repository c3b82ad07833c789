package server

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Supervisor runs the providers that files name. What its methods return counts
// the processes, or whatever stands for them; the error is NOT_FOUND where no file
// names the provider, nor runs one that calls itself so.
type Supervisor interface {
	// Stop also closes the connections of a name that no file is behind.
	Stop(name string) (int, error)
	Start(name string) (int, error)
	Restart(name string) (int, error)
	// Configured lists what files name.
	Configured() []adminapi.ConfiguredProvider
	// Lines returns a provider's lines after a number, as many as are kept, and the
	// number to ask with next; WaitLines waits for one.
	Lines(name string, after uint64) (lines []adminapi.TimelineLine, cursor uint64, err error)
	WaitLines(ctx context.Context, name string, after uint64) error
	// Reload reads the files now.
	Reload()
}

func noSupervisor(name string) error {
	return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("no file names a provider %q, and what no file names is not run from here: tapctl providers lists both", name)}
}

// stopProvider stops what a file names, else closes the connections of the name.
func (a *api) stopProvider(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if a.supervisor != nil {
		n, err := a.supervisor.Stop(name)
		if err != nil {
			return err
		}
		return apiAnswer(w, http.StatusOK, map[string]int{"stopped": n})
	}
	n := a.gateway.StopProvider(name)
	if n == 0 {
		return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("provider %q is not connected: tapctl providers lists those that are", name)}
	}
	return apiAnswer(w, http.StatusOK, map[string]int{"stopped": n})
}

// steer answers a request that starts a provider; done names what was done.
func (a *api) steer(do func(Supervisor, string) (int, error), done string) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name := r.PathValue("name")
		if a.supervisor == nil {
			return noSupervisor(name)
		}
		n, err := do(a.supervisor, name)
		if err != nil {
			return err
		}
		return apiAnswer(w, http.StatusOK, map[string]int{done: n})
	}
}

func (a *api) configured(w http.ResponseWriter, _ *http.Request) error {
	if a.supervisor == nil {
		return apiAnswer(w, http.StatusOK, []adminapi.ConfiguredProvider{})
	}
	return apiAnswer(w, http.StatusOK, apiList(a.supervisor.Configured()))
}

// providerLog answers with the last lines of a provider, or with those and what comes.
func (a *api) providerLog(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	q, err := apiParams(r, "follow", "last")
	if err != nil {
		return err
	}
	follow, err := apiFlag(q, "follow")
	if err != nil {
		return err
	}
	last := math.MaxInt
	if q.Has("last") {
		if last, err = apiLast(q, 0); err != nil {
			return err
		}
	}
	if a.supervisor == nil {
		return noSupervisor(name)
	}
	lines, cursor, err := a.supervisor.Lines(name, 0)
	if err != nil {
		return err
	}
	lines = lines[max(0, len(lines)-last):]
	if !follow {
		texts := make([]string, len(lines))
		for i, l := range lines {
			if texts[i] = l.Message; l.Source == "tapgw" {
				texts[i] = l.Source + ": " + l.Message
			}
		}
		return apiAnswer(w, http.StatusOK, texts)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.server.serving, cancel)()
	out := newAPILines(w, r)
	for _, l := range lines {
		out.write(l)
	}
	_ = apiFollow(out, cursor, func(after uint64) ([]adminapi.TimelineLine, uint64) {
		lines, next, err := a.supervisor.Lines(name, after)
		if err != nil {
			cancel() // its file was removed
			return nil, after
		}
		return lines, next
	}, func(after uint64) error { return a.supervisor.WaitLines(ctx, name, after) })
	return nil
}

// reload reads the files now and answers with what is wrong in them.
func (a *api) reload(w http.ResponseWriter, _ *http.Request) error {
	if a.supervisor != nil {
		a.supervisor.Reload()
	}
	return apiAnswer(w, http.StatusOK, map[string][]StatusFault{"faults": apiList(a.info().Faults)})
}
