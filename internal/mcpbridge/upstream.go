package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/chans"
	"tapgw/providers"
)

const (
	// handshakeVersion is the newest revision that begins with initialize.
	handshakeVersion = "2025-11-25"
	listTime         = 30 * time.Second
	// aliveEvery is how often a server at a URL is asked for its tools, which shows whether it is
	// there, and finds a change that nothing told of.
	aliveEvery = 30 * time.Second
	// changeGap is the shortest time between two listings because of changes.
	changeGap = 500 * time.Millisecond
)

// upstream is a connection to a server.
type upstream struct {
	b       *bridge
	session *mcp.ClientSession
	stop    func()          // ends the process or HTTP client behind the connection
	reason  func() error    // says why that ended, nil if it does not know
	wg      sync.WaitGroup  // every goroutine of the connection
	changed chan struct{}   // holds one item; the server's list has changed
	relogin <-chan struct{} // closed when a person logs in or out
	calls   calls
	watch   *watch // nil without [[events]]

	lostOnce sync.Once
	lost     chan struct{} // closed when the server is gone; why is set before
	why      error
}

// connect connects to the server, in the newest revision of MCP that it speaks. Some servers do not
// survive the question that newer ones answer. They get another connection, which begins as the
// older revisions do.
func (b *bridge) connect(ctx context.Context) (*upstream, error) {
	u, err := b.tryConnect(ctx, "")
	_, isFatal := errors.AsType[fatalError](err)
	_, needsLogin := errors.AsType[loginError](err)
	if err == nil || isFatal || needsLogin || ctx.Err() != nil {
		return u, err
	}
	if u, again := b.tryConnect(ctx, handshakeVersion); again == nil {
		return u, nil
	}
	return nil, err
}

func (b *bridge) tryConnect(ctx context.Context, version string) (*upstream, error) {
	u := &upstream{
		b: b, changed: make(chan struct{}, 1), lost: make(chan struct{}),
		relogin: b.o.Logins.changes(b.o.Provider),
	}
	if len(b.o.Provider.MCP.Events) > 0 {
		u.watch = newWatch(u)
	}
	var transport mcp.Transport
	var err error
	if b.o.Provider.MCP.URL != "" {
		transport, err = u.overHTTP()
	} else {
		transport, err = u.overPipes()
	}
	if err != nil {
		return nil, err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "tapgw", Version: b.o.Version},
		u.clientOptions())
	client.AddSendingMiddleware(u.traced, readAnew, new(pages).bound(u.lose), takeAnswer)
	client.AddReceivingMiddleware(withParameters)
	if u.watch != nil {
		client.AddSendingMiddleware(u.watch.sending)
		client.AddReceivingMiddleware(u.watch.receiving)
	}
	if b.o.Root != "" {
		//nolint:staticcheck // servers of the older revisions know no other way
		client.AddRoots(&mcp.Root{
			URI: (&url.URL{Scheme: "file", Path: b.o.Root}).String(), Name: filepath.Base(b.o.Root),
		})
	}
	connectCtx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	defer context.AfterFunc(connectCtx, u.stop)() // Connect may leave its connection open
	u.session, err = client.Connect(connectCtx, transport,
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		err = fmt.Errorf("connecting to the MCP server: %w", err)
		switch why := u.reason(); {
		case u.cause(nil) != nil: // it needs a login
			err = u.why
		case why != nil:
			err = fmt.Errorf("connecting to the MCP server: %w", why)
		case connectCtx.Err() != nil && ctx.Err() == nil:
			err = fmt.Errorf("connecting to the MCP server: no answer within %s", connectTime)
		}
		u.stop()
		u.wg.Wait()
		return nil, err
	}
	begun := time.Now()
	u.wg.Go(func() {
		err := u.session.Wait()
		u.countSession(time.Since(begun))
		if why := u.reason(); why != nil {
			err = why
		} else if err != nil {
			err = fmt.Errorf("the MCP server ended the connection: %w", err)
		}
		u.lose(err)
	})
	b.o.Line(fromGateway, "connected by MCP "+u.session.InitializeResult().ProtocolVersion)
	return u, nil
}

// clientOptions announce only the features that the bridge handles.
func (u *upstream) clientOptions() *mcp.ClientOptions {
	capabilities := &mcp.ClientCapabilities{}
	if u.b.o.Root != "" {
		capabilities.RootsV2 = &mcp.RootCapabilities{} //nolint:staticcheck // as AddRoots
	}
	options := &mcp.ClientOptions{
		Capabilities: capabilities,
		Logger: slog.New(
			slog.NewTextHandler(lines(u.b.o.Line), &slog.HandlerOptions{Level: slog.LevelWarn}),
		),
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			chans.Wake(u.changed)
		},
		ElicitationHandler:          u.elicit,
		ProgressNotificationHandler: u.progress,
	}
	if u.watch != nil {
		u.watch.addTo(options)
	}
	return options
}

// withParameters is the SDK's middleware for messages from a server. It refuses messages without
// parameters that the SDK reads without a check, which would panic.
func withParameters(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		isMissing := false
		switch p := req.GetParams().(type) {
		case *mcp.ElicitParams:
			isMissing = p == nil
		case *mcp.ElicitationCompleteParams:
			isMissing = p == nil
		}
		if isMissing {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams,
				Message: method + " has no params"}
		}
		return next(ctx, method, req)
	}
}

// lines writes the SDK's messages to a provider's log.
type lines func(from, line string)

func (l lines) Write(data []byte) (int, error) {
	l(fromGateway, strings.TrimSpace(string(data)))
	return len(data), nil
}

// lose records that the server is gone, and why. Further calls do nothing.
func (u *upstream) lose(why error) {
	u.lostOnce.Do(func() {
		u.why = why
		close(u.lost)
	})
}

// cause returns why the server is gone, where that is known, else err.
func (u *upstream) cause(err error) error {
	select {
	case <-u.lost:
		if u.why != nil {
			return u.why
		}
	default:
	}
	return err
}

func (u *upstream) close() {
	// A server that does not answer must not hold this up.
	timer := time.AfterFunc(time.Second, u.stop)
	_ = u.session.Close()
	timer.Stop()
	u.stop()
	u.wg.Wait()
}

// isBusy reports whether a server that did not answer in time may be at work on a call: some do one
// thing at a time.
func (u *upstream) isBusy(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) && u.calls.isRunning()
}

// follow keeps the provider's tools equal to the server's lists, until ctx ends or the server is
// lost.
func (u *upstream) follow(ctx context.Context, p *providers.Provider, last offering) {
	var tick <-chan time.Time
	// On pipes, servers of the Go SDK forget who listens to changes of their tools when a
	// subscription ends.
	if u.b.o.Provider.MCP.URL != "" || u.watch != nil {
		ticker := time.NewTicker(aliveEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.lost:
			return
		case <-u.relogin:
			u.lose(errLoginChanged)
			return
		case <-u.changed:
		case <-tick:
			if u.watch != nil {
				chans.Wake(u.watch.relists)
			}
		}
		now, err := u.list(ctx)
		if ctx.Err() != nil {
			return
		}
		if u.isBusy(err) {
			continue
		}
		if err != nil {
			u.lose(fmt.Errorf("listing what the MCP server has: %w", err))
			return
		}
		if !now.equal(last) {
			_, err := p.SetTools(ctx, now.tools)
			var refusal []string
			if err != nil && ctx.Err() == nil {
				refusal = []string{"the old tools stay: " + err.Error()}
				u.b.o.Line(fromGateway, refusal[0])
			}
			u.b.setFaults(&u.b.refusal, refusal...)
			u.b.setFaults(&u.b.tools, now.faults...)
			last = now
		}
		select { // changes without end cost a few updates a second
		case <-time.After(changeGap):
		case <-ctx.Done():
			return
		case <-u.lost:
			return
		}
	}
}
