package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"tapgw/internal/adminapi"
	"tapgw/internal/copilot"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/internal/terminals"
)

// terminalWays are the terminals with the ways that need the Copilot SDK: an extension's pipe and a
// port.
type terminalWays struct {
	*terminals.Registry
	runtime *copilot.Runtime
	ports   *attachedPorts
}

// Serve implements [server.Terminals].
func (w terminalWays) Serve(
	ctx context.Context, hello server.TerminalHello, pipe io.ReadWriteCloser,
) error {
	var link *copilot.Link
	who := terminals.Terminal{Session: hello.Session, PID: hello.PID, CWD: hello.CWD}
	open := func(ctx context.Context, calls gateway.HostCalls) (made terminals.Link, err error) {
		if link, err = w.runtime.Join(ctx, pipe, hello.Session, hello.CWD, hello.Had,
			calls); err != nil {
			return nil, err
		}
		return link, nil
	}
	leave, err := w.Join(ctx, who, terminals.WayExtension, open)
	if err != nil {
		return err
	}
	defer leave()
	select {
	case <-link.Done():
	case <-ctx.Done():
	}
	return nil
}

// portWarning is the warning for a person who attaches a terminal by its port.
const portWarning = "the port %d of this terminal has no authentication: while the terminal " +
	"runs, every program and " +
	"user of this machine can read its session and prompt it; the extension has no port " +
	"(tapgw install copilot --extension)"

// Attach implements [server.Terminals].
func (w terminalWays) Attach(
	ctx context.Context, a adminapi.TerminalAttach,
) (adminapi.TerminalAttached, error) {
	attached := adminapi.TerminalAttached{Warning: fmt.Sprintf(portWarning, a.Port)}
	if a.Port < 1 || a.Port > 65535 {
		return attached, protocol.Errorf(protocol.CodeInvalidJSON,
			"port: %d is no port, want 1 to 65535", a.Port)
	}
	p := attachedPort{Port: a.Port}
	owner, found := ownerOfPort(a.Port)
	if found {
		if owner.UID >= 0 && owner.UID != os.Geteuid() {
			return attached, protocol.Errorf(protocol.CodeInvalidState,
				"port: %d belongs to %s, not to you", a.Port, owner)
		}
		attached.PID = owner.PID
		p.Process, _ = proc.IDOf(owner.PID)
	}
	var err error
	p, isNew := w.ports.add(p)
	if attached.Session, err = w.attach(ctx, p); err != nil && isNew {
		w.ports.remove(p.Port)
	}
	return attached, err
}

// attachAgain attaches a port that was attached to the previous gateway.
func (w terminalWays) attachAgain(ctx context.Context, p attachedPort) error {
	if owner, found := ownerOfPort(p.Port); !found || owner.PID != p.Process.PID {
		return fmt.Errorf("port %d is not that of process %d any more", p.Port, p.Process.PID)
	}
	_, err := w.attach(ctx, p)
	return err
}

// attach joins the session that a terminal shows at its port, if it is not attached yet. The port
// is forgotten when the terminal is not attached any more.
func (w terminalWays) attach(ctx context.Context, p attachedPort) (session string, err error) {
	pid, shown := p.Process.PID, ""
	join := func(ctx context.Context, id, cwd string, open copilot.OpenFunc) (leave func(),
		err error) {
		shown = id
		who := terminals.Terminal{Session: id, PID: pid, CWD: cmp.Or(cwd, workingDirOf(pid))}
		return w.Join(ctx, who, terminals.WayPort,
			func(ctx context.Context, calls gateway.HostCalls) (terminals.Link, error) {
				l, err := open(ctx, calls)
				if err != nil {
					return nil, err
				}
				return portLink{l, func(tools []gateway.Tool) { w.ports.gave(p.Port, tools) }}, nil
			})
	}
	session, err = w.runtime.Attach(ctx, copilot.Attachment{
		Port: p.Port, Had: p.Tools, Join: join, Ended: func() { w.ports.remove(p.Port) },
	})
	if errors.Is(err, terminals.ErrAttached) {
		return shown, nil
	}
	return session, err
}

// portLink is the link of a terminal's port. It passes the tools to gave before the terminal gets
// them.
type portLink struct {
	*copilot.Link
	gave func(tools []gateway.Tool)
}

// SetTools implements [terminals.Link].
func (l portLink) SetTools(ctx context.Context, tools []gateway.Tool) error {
	l.gave(tools)
	return l.Link.SetTools(ctx, tools)
}

// ownerOfPort finds the process that listens at a loopback port, where the system tells it.
func ownerOfPort(port int) (owner proc.Owner, found bool) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	// The caller has checked it.
	return proc.OwnerOf(netip.AddrPortFrom(loopback, uint16(port))) //nolint:gosec
}

// workingDirOf is the working directory of a process; "" if the system does not tell it.
func workingDirOf(pid int) string {
	dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return ""
	}
	return dir
}

// mcpTerminals gives /mcp/t its view of the terminals.
type mcpTerminals struct{ registry *terminals.Registry }

// Join implements [mcpserver.Terminals].
func (t mcpTerminals) Join(
	ctx context.Context, session string, pid int, cwd string,
) (leave func(), err error) {
	return t.registry.Join(ctx, terminals.Terminal{Session: session, PID: pid, CWD: cwd},
		terminals.WayMCP, nil)
}

// HasLink implements [mcpserver.Terminals].
func (t mcpTerminals) HasLink(session string) bool { return t.registry.HasLink(session) }
