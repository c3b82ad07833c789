// Package provide offers tools to the sessions of a gateway: it is a provider
// whose tools are those of package tools, each working in the directory of the
// session that calls it.
package provide

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"sync"
	"time"

	"tapgw/providers"
	"tapgw/tools"
)

// Name is the provider's when [Options] give none.
const Name = "lsclient"

// Options of a [Provider].
type Options struct {
	Name     string            // "": [Name]
	Provider providers.Options // which gateway and session, and whom to tell
	Allow    Allow
	Env      tools.Env // of the tools; Root and what decides are the session's and Allow's
	// Both can change: [Provider.Configure].
}

// Provider offers tools.
type Provider struct {
	*providers.Provider

	mu    sync.Mutex // guards the fields that follow
	allow Allow
	env   tools.Env
	roots map[string]string // by session
	known chan struct{}     // closed and made anew when a root becomes known
}

// New makes a provider without tools; [Provider.Offer] gives it some, before or
// while it runs.
func New(o Options) *Provider {
	if o.Name == "" {
		o.Name = Name
	}
	p := &Provider{roots: map[string]string{}, known: make(chan struct{})}
	p.Configure(o.Allow, o.Env)
	bound := o.Provider.OnBound
	o.Provider.OnBound = func(ctx context.Context, b providers.Binding) {
		p.know(b.Session, b.CWD)
		defer p.forget(b.Session)
		if bound != nil {
			bound(ctx, b)
		}
		<-ctx.Done()
	}
	p.Provider = providers.New(o.Name, &o.Provider)
	return p
}

// Configure changes what tools may do and have, from the next call on. The time
// that a tool has by env changes when it is offered again.
func (p *Provider) Configure(allow Allow, env tools.Env) {
	if env.Timeout == 0 {
		env.Timeout = tools.DefaultTimeout
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow, p.env = allow, env
}

// configured is what tools may do and have now.
func (p *Provider) configured() (Allow, tools.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allow, p.env
}

func (p *Provider) know(session, root string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roots[session] = root
	close(p.known)
	p.known = make(chan struct{})
}

func (p *Provider) forget(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.roots, session)
}

// root is the directory of a session. The first call may be there before the
// word that its session is bound.
func (p *Provider) root(ctx context.Context, session string) (string, error) {
	for {
		p.mu.Lock()
		root, ok := p.roots[session]
		known := p.known
		p.mu.Unlock()
		if ok {
			return root, nil
		}
		select {
		case <-known:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Offer makes a list of tools the one that sessions have. Tools keep working
// that a call is in the middle of.
func (p *Provider) Offer(ctx context.Context, list []*tools.Tool) error {
	offered := make([]providers.Tool, len(list))
	for i, t := range list {
		offered[i] = p.tool(t)
	}
	_, err := p.SetTools(ctx, offered)
	return err
}

// lateness is how much longer the gateway waits than the tool may take, so that
// it is the tool's own word on its timeout that arrives.
const lateness = 5 * time.Second

func (p *Provider) tool(t *tools.Tool) providers.Tool {
	timeout := t.Timeout
	if timeout == 0 {
		_, env := p.configured()
		timeout = env.Timeout
	}
	return providers.Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters, Timeout: timeout + lateness,
		Handler: func(ctx context.Context, args json.RawMessage) (any, error) {
			call, _ := providers.CallFrom(ctx)
			root, err := p.root(ctx, call.Session)
			if err != nil {
				return nil, err
			}
			allow, env := p.configured()
			if err := allow.Check(t, args); err != nil {
				return nil, Coded(err)
			}
			r, err := t.Call(ctx, confine(env, allow, root), args)
			if err != nil {
				return nil, Coded(err)
			}
			return Answer(r)
		},
	}
}

// confine is an environment in a session's directory, out of which tools may do
// what is allowed.
func confine(env tools.Env, allow Allow, root string) *tools.Env {
	env.Root = root
	env.Outside = func(_ context.Context, path string, _ bool) error {
		if !allow.OutsideOK(path) {
			return refuse("not allowed: %s lists what is", allow.where("outside")) // the tool says what
		}
		return nil
	}
	env.Private = func(_ context.Context, host string, addr netip.AddrPort) error {
		if !allow.HostOK(host) {
			return allow.NotPublic(host, addr)
		}
		return nil
	}
	return &env
}

// Coded gives an error of a tool the code that it has at the gateway.
func Coded(err error) *providers.Error {
	if e, ok := errors.AsType[*providers.Error](err); ok {
		return e
	}
	code := providers.CodeInternal
	_, refused := errors.AsType[*Refusal](err)
	switch {
	case refused:
		code = providers.CodeUnauthorized
	case errors.Is(err, context.DeadlineExceeded):
		code = providers.CodeTimeout
	case errors.Is(err, context.Canceled):
		code = providers.CodeCancelled
	}
	return &providers.Error{Code: code, Message: err.Error()}
}

// Answer is a result as a session gets it: texts joined, a document that says
// success as it is, one that says error as an error.
func Answer(r tools.Result) (any, error) {
	if r.Data != nil {
		var d struct {
			Result  string `json:"result"`
			Message string `json:"message"`
		}
		if json.Unmarshal(r.Data, &d) == nil && d.Result == "error" {
			if d.Message == "" {
				d.Message = "the tool says error, and nothing more"
			}
			return nil, &providers.Error{Code: providers.CodeInternal, Message: d.Message}
		}
		return r.Data, nil
	}
	if len(r.Parts) > 0 || len(r.Written)+len(r.Removed) == 0 {
		return r.Text(), nil
	}
	done := struct {
		Result  string   `json:"result"`
		Written []string `json:"written,omitempty"`
		Removed []string `json:"removed,omitempty"`
	}{Result: "success", Removed: r.Removed}
	for _, w := range r.Written {
		done.Written = append(done.Written, w.Path)
	}
	return done, nil
}
