package server

import (
	"context"
	"io"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Terminals are the Copilot CLIs of people, in terminals. Any goroutine may call it. The errors are
// those of the protocol, as answers of the admin API have them.
type Terminals interface {
	List() []adminapi.Terminal
	Hook(ctx context.Context, h adminapi.TerminalHook) (adminapi.TerminalAnswer, error)
	// Attach connects to the port of a terminal that was started with --ui-server.
	Attach(ctx context.Context, a adminapi.TerminalAttach) (adminapi.TerminalAttached, error)
	// Serve serves a terminal over the pipe that it gave its extension, until the pipe or the
	// session ends. The error says why the terminal can't join.
	Serve(ctx context.Context, who TerminalHello, pipe io.ReadWriteCloser) error
}

// TerminalHello says which terminal a pipe belongs to.
type TerminalHello struct {
	Session string // the CLI's id of its session
	PID     int    // of the CLI's process; 0 when it is not known
	CWD     string
	Had     []string // the names of the tools that it has had from other gateways
}

var errNoTerminals = protocol.Errorf(protocol.CodeNotFound, "this gateway takes no terminals")

func (a *api) listTerminals(*http.Request) (any, error) {
	if a.o.Terminals == nil {
		return []adminapi.Terminal{}, nil
	}
	return orEmpty(a.o.Terminals.List()), nil
}

func (a *api) terminalHook(r *http.Request, body adminapi.TerminalHook) (any, error) {
	if a.o.Terminals == nil {
		return nil, errNoTerminals
	}
	return a.o.Terminals.Hook(r.Context(), body)
}

func (a *api) attachTerminal(r *http.Request, body adminapi.TerminalAttach) (any, error) {
	if a.o.Terminals == nil {
		return nil, errNoTerminals
	}
	return a.o.Terminals.Attach(r.Context(), body)
}
