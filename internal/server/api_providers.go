package server

import (
	"context"
	"net/http"
	"os"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Supervisor runs the providers that files name; any goroutine may call it. Stop, Start and Restart
// return how many processes they started or stopped, connections where a provider has no process.
// The error is NOT_FOUND if no file names the provider and no provider of a file runs under that
// name.
type Supervisor interface {
	// Stop also closes the connections of a provider that no file names.
	Stop(name string) (int, error)
	Start(name string) (int, error)
	// Restart replaces the running processes by new ones, and waits for these.
	Restart(ctx context.Context, name string) (adminapi.Restarted, error)
	// Configured lists the providers that files name.
	Configured() []adminapi.ConfiguredProvider
	// Lines returns the buffered lines of a provider's log after a number, and the number to
	// ask with next; WaitLines waits for one.
	Lines(name string, after uint64) (lines []adminapi.TimelineLine, cursor uint64, err error)
	WaitLines(ctx context.Context, name string, after uint64) error
	// Login logs in at the MCP server of a provider. It calls show with the link that a person
	// opens, waits for the browser's return, and keeps the server's tokens. Logout forgets them,
	// and reports whether there were any.
	Login(ctx context.Context, name string, show func(link string) error) error
	Logout(ctx context.Context, name string) (bool, error)
	// Sources lists the sources that files name. RunSource makes one run now and returns for how
	// many sessions.
	Sources() []adminapi.Source
	RunSource(name string) (int, error)
	// Settle waits until a session that has started has the gateway's own providers, for a moment
	// at most.
	Settle(ctx context.Context, session string)
	// Reload reads the files now.
	Reload()
}

func noSupervisor(name string) error {
	return protocol.Errorf(protocol.CodeNotFound, "no file names a provider %q, "+
		"and tapctl starts only providers that files name: tapctl providers lists both", name)
}

// configuredProvider answers about a provider that a file names, with the result of h.
func (a *api) configuredProvider(
	h func(ctx context.Context, s Supervisor, name string) (any, error),
) apiHandler {
	return answer(func(r *http.Request) (any, error) {
		if a.o.Supervisor == nil {
			return nil, noSupervisor(r.PathValue("name"))
		}
		return h(r.Context(), a.o.Supervisor, r.PathValue("name"))
	})
}

// stopProvider stops a provider that a file names, else closes the connections of the name.
func (a *api) stopProvider(r *http.Request) (any, error) {
	name := r.PathValue("name")
	if a.o.Supervisor != nil {
		n, err := a.o.Supervisor.Stop(name)
		return adminapi.Stopped{Stopped: n}, err
	}
	n := a.gateway.StopProvider(name)
	if n == 0 {
		return nil, protocol.Errorf(protocol.CodeNotFound,
			"provider %q is not connected: tapctl providers lists those that are", name)
	}
	return adminapi.Stopped{Stopped: n}, nil
}

func startProvider(_ context.Context, s Supervisor, name string) (any, error) {
	n, err := s.Start(name)
	return adminapi.StartedProvider{Started: n}, err
}

func restartProvider(ctx context.Context, s Supervisor, name string) (any, error) {
	return s.Restart(ctx, name)
}

// loginProvider answers with the link as soon as there is one, and with the login's end. The login
// ends with the request.
func (a *api) loginProvider(w http.ResponseWriter, r *http.Request) error {
	var request adminapi.LoginRequest
	if err := readBody(w, r, &request); err != nil {
		return err
	}
	if request.File && a.o.SigninDir == "" {
		return fieldError("file", "this gateway has no directory for it")
	}
	if a.o.Supervisor == nil {
		return noSupervisor(r.PathValue("name"))
	}
	defer a.server.hold()()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.server.serving, cancel)()
	var out *lineWriter
	file := ""
	err := a.o.Supervisor.Login(ctx, r.PathValue("name"), func(link string) error {
		if request.File {
			var err error
			if file, err = writeSigninFile(ctx, a.o.SigninDir, link); err != nil {
				return err
			}
		}
		out = newLineWriter(w, r)
		out.write(adminapi.LoginStep{URL: link, File: file})
		return out.err
	})
	if file != "" {
		_ = os.Remove(file)
	}
	if out == nil {
		return err
	}
	end := adminapi.LoginStep{Done: true}
	if err != nil {
		code, message := codeOf(err)
		end.Error = &adminapi.Failure{Code: string(code), Message: message}
	}
	out.write(end)
	return nil
}

func logoutProvider(ctx context.Context, s Supervisor, name string) (any, error) {
	had, err := s.Logout(ctx, name)
	return adminapi.LoggedOut{LoggedOut: had}, err
}

func (a *api) allConfigured() []adminapi.ConfiguredProvider {
	if a.o.Supervisor == nil {
		return []adminapi.ConfiguredProvider{}
	}
	return orEmpty(a.o.Supervisor.Configured())
}

func (a *api) allSources() []adminapi.Source {
	if a.o.Supervisor == nil {
		return []adminapi.Source{}
	}
	return orEmpty(a.o.Supervisor.Sources())
}

func runSource(_ context.Context, s Supervisor, name string) (any, error) {
	n, err := s.RunSource(name)
	return adminapi.StartedProvider{Started: n}, err
}

// providerLog answers with the last lines of a provider's log as texts, or, where the request
// follows, with those and the coming ones as timeline lines.
func (a *api) providerLog(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	p, err := readLogParams(r, "follow", "last")
	if err != nil {
		return err
	}
	if a.o.Supervisor == nil {
		return noSupervisor(name)
	}
	lines, cursor, err := a.o.Supervisor.Lines(name, 0)
	if err != nil {
		return err
	}
	lines = lines[max(0, len(lines)-p.last):]
	if !p.follow {
		texts := make([]string, len(lines))
		for i, l := range lines {
			if texts[i] = l.Message; l.Source == "tapgw" {
				texts[i] = l.Source + ": " + l.Message
			}
		}
		return writeJSON(w, http.StatusOK, texts)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.server.serving, cancel)()
	out := newLineWriter(w, r)
	for _, l := range lines {
		out.write(l)
	}
	next := func(after uint64) ([]adminapi.TimelineLine, uint64) {
		lines, next, err := a.o.Supervisor.Lines(name, after)
		if err != nil {
			cancel() // its file was removed
			return nil, after
		}
		return lines, next
	}
	wait := func(after uint64) error { return a.o.Supervisor.WaitLines(ctx, name, after) }
	_ = writeNew(out, cursor, next, wait)
	return nil
}

// shutdown makes the program end, once this is answered.
func (a *api) shutdown(w http.ResponseWriter, r *http.Request) error {
	if a.o.End == nil {
		return protocol.Errorf(protocol.CodeInvalidState, "this gateway ends with its program")
	}
	err := writeJSON(w, http.StatusOK, adminapi.Nothing{})
	a.o.End()
	return err
}

// reload reads the files now and answers with the faults in them.
func (a *api) reload(*http.Request) (any, error) {
	if a.o.Supervisor != nil {
		a.o.Supervisor.Reload()
	}
	return adminapi.Faults{Faults: orEmpty(a.o.Status().Faults)}, nil
}
