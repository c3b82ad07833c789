// Package mcpbridge makes an MCP server a provider. It connects to the server as an MCP client,
// over the pipes of a program that it starts or over streamable HTTP, and offers the server's tools
// and resources through package providers. So the gateway treats an MCP server as it treats any
// provider.
package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/spans"
	"tapgw/providers"
)

// Options say which server to bridge to which sessions. Provider, Gateway and the functions are
// required; functions may be called from any goroutine.
type Options struct {
	Provider configs.Provider  // of kind mcp
	Gateway  providers.Options // how the provider connects to the gateway
	Dir      string            // the working directory of a server that is started; absolute
	Env      []string          // its environment, as NAME=value
	// the directory of the only session, which the server gets as its root; may be ""
	Root    string
	Version string         // of the gateway, for the server
	Logins  *Logins        // at servers that want one; may be nil
	Spans   *spans.Maker   // of the requests that calls make to the server; may be nil
	Metrics *spans.Metrics // count those requests; may be nil

	// Ask puts a server's question to the person of a session.
	Ask func(ctx context.Context, session string, q gateway.Question) (gateway.Answer, error)
	// Line takes a line that the server prints, or a message about the server.
	Line func(from, line string)
	// Faults takes all present faults of the server, one line each. It replaces the earlier ones.
	Faults func(lines []string)
	// Trouble takes the reason why the server's tools are not there; nil when they are.
	Trouble func(error)
}

const (
	fromGateway = "tapgw" // the source of messages about a server
	// connectTime is how long a server may take until it has answered. A program may have to be
	// downloaded first.
	connectTime = time.Minute
	firstWait   = 500 * time.Millisecond // before a server is connected again
	longestWait = 30 * time.Second
	steadyTime  = time.Minute // a connection that lasted as long begins with firstWait again
)

// fatalError is an error that trying again does not mend.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// Run offers a server's tools until ctx ends, and then returns nil. It connects to a server that
// has a URL again and again. It returns the error of one that it starts: who called Run decides
// whether it is started again.
func Run(ctx context.Context, o Options) error {
	b := &bridge{o: o}
	defer b.setFaults(&b.connection) // those of the connection end with it
	for attempt := 0; ; attempt++ {
		began := time.Now()
		changed := o.Logins.changes(o.Provider)
		err := b.runOnce(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fatal, isFatal := errors.AsType[fatalError](err)
		_, needsLogin := errors.AsType[loginError](err)
		switch {
		case isFatal:
			return fatal.error
		case o.Provider.MCP.URL == "":
			return err
		case time.Since(began) >= steadyTime:
			attempt = 0
		}
		wait := min(firstWait<<min(attempt, 10), longestWait)
		wait -= rand.N(wait / 4) //nolint:gosec // it is no secret
		fault := err.Error()
		if !needsLogin { // trying again helps only if it was the server's mistake
			fault += fmt.Sprintf("; tried again in %s", wait.Round(time.Millisecond))
		}
		// in the words of the fault: the status shows both, or one if they are the same
		o.Trouble(errors.New(fault))
		b.setFaults(&b.connection, fault)
		o.Line(fromGateway, err.Error())
		select {
		case <-time.After(wait):
		case <-changed:
			attempt = -1
		case <-ctx.Done():
			return nil
		}
	}
}

// bridge is one run of [Run].
type bridge struct {
	o Options

	mu         sync.Mutex // guards the fields that follow
	connection []string   // faults of the connection
	tools      []string   // faults in the server's lists
	refusal    []string   // faults of the gateway's answer to it
	rights     []string   // faults of calls that need more rights than the login has
	events     []string   // faults of the server's notifications
}

// setFaults replaces the faults of one kind and reports all.
func (b *bridge) setFaults(kind *[]string, lines ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*kind = lines
	var all []string
	for _, list := range [][]string{b.connection, b.tools, b.refusal, b.rights, b.events} {
		all = append(all, list...)
	}
	b.o.Faults(all)
}

// runOnce connects to the server, and serves its tools until ctx ends or the server is lost. The
// error says why.
func (b *bridge) runOnce(ctx context.Context) error {
	u, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer u.close()
	b.setFaults(&b.connection)
	b.setFaults(&b.rights)
	offered, err := u.list(ctx)
	if err != nil {
		return fmt.Errorf("listing what the MCP server has: %w", u.cause(err))
	}
	options := b.o.Gateway
	if u.watch != nil {
		options.OnBound = u.watch.outbox.bound
	}
	p := providers.New(b.o.Provider.Name, &options)
	// No session has the provider before it has its tools.
	if _, err := p.SetTools(ctx, offered.tools); err != nil {
		return fatalError{err}
	}
	b.setFaults(&b.tools, offered.faults...)
	if u.watch != nil {
		if err := u.watch.prepare(ctx, p); err != nil {
			return fatalError{err}
		}
	}
	b.o.Trouble(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		defer cancel() // the calls that run end with DISCONNECTED
		u.follow(ctx, p, offered)
	})
	if u.watch != nil {
		wg.Go(func() { u.watch.run(ctx) })
	}
	err = p.Run(ctx)
	cancel()
	if err != nil {
		return fatalError{err}
	}
	return u.cause(errors.New("the MCP server ended the connection"))
}
