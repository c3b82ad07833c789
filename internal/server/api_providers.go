package server

import (
	"fmt"
	"net/http"

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
	// Log returns the last lines of a provider, oldest first.
	Log(name string) ([]string, error)
	// Reload reads the files now.
	Reload()
}

func noSupervisor(name string) error {
	return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("no file names a provider %q", name)}
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
		return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("provider %q is not connected", name)}
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

func (a *api) providerLog(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	if a.supervisor == nil {
		return noSupervisor(name)
	}
	lines, err := a.supervisor.Log(name)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, apiList(lines))
}

// reload reads the files now and answers with what is wrong in them.
func (a *api) reload(w http.ResponseWriter, _ *http.Request) error {
	if a.supervisor != nil {
		a.supervisor.Reload()
	}
	return apiAnswer(w, http.StatusOK, map[string][]StatusFault{"faults": apiList(a.info().Faults)})
}
