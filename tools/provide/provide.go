// Package provide offers the tools of package tools to the sessions of a gateway. A tool
// works in the directory of the session that calls it. Package providers connects to
// the gateway; [tools.Tool.Call] bounds a call and recovers its panics.
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

// Name is the name of the provider unless [Options] have another.
const Name = "lsclient"

// Options are the settings of a [Provider]. [Provider.Configure] can change Allow and Env.
type Options struct {
	Name     string            // "": [Name]
	Provider providers.Options // the gateway, the sessions and the callbacks
	Allow    Allow
	Env      tools.Env // of the tools; Root, Outside and Private are set for each call
}

// Provider is a provider that offers tools of package tools. [New] makes one.
type Provider struct {
	*providers.Provider

	mu    sync.Mutex // guards the fields that follow
	allow Allow
	env   tools.Env
	roots map[string]string // directory of each bound session
	added chan struct{}     // closed and replaced when a session is added to roots
}

// New makes a provider without tools. [Provider.Offer] or [Provider.RunWith] gives it some,
// before or while it runs.
func New(o Options) *Provider {
	if o.Name == "" {
		o.Name = Name
	}
	p := &Provider{roots: map[string]string{}, added: make(chan struct{})}
	p.Configure(o.Allow, o.Env)
	bound := o.Provider.OnBound
	o.Provider.OnBound = func(ctx context.Context, b providers.Binding) {
		p.addRoot(b.Session, b.CWD)
		defer p.removeRoot(b.Session)
		if bound != nil {
			bound(ctx, b)
		}
		<-ctx.Done()
	}
	p.Provider = providers.New(o.Name, &o.Provider)
	return p
}

// Configure replaces Allow and Env for the calls that follow. A timeout of env takes
// effect when the tools are offered again.
func (p *Provider) Configure(allow Allow, env tools.Env) {
	if env.Timeout == 0 {
		env.Timeout = tools.DefaultTimeout
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow, p.env = allow, env
}

// settings returns the current Allow and Env.
func (p *Provider) settings() (Allow, tools.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allow, p.env
}

func (p *Provider) addRoot(session, root string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.roots[session] = root
	close(p.added)
	p.added = make(chan struct{})
}

func (p *Provider) removeRoot(session string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.roots, session)
}

// root returns the directory of a session. It waits until the session is bound, because
// the first call may arrive before OnBound runs.
func (p *Provider) root(ctx context.Context, session string) (string, error) {
	for {
		p.mu.Lock()
		root, ok := p.roots[session]
		added := p.added
		p.mu.Unlock()
		if ok {
			return root, nil
		}
		select {
		case <-added:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Offer makes list the tools that sessions have. Running calls of removed tools go on.
// The error is the gateway's, for example about a name of another provider's tool.
func (p *Provider) Offer(ctx context.Context, list []*tools.Tool) error {
	offered := make([]providers.Tool, len(list))
	for i, t := range list {
		offered[i] = p.tool(t)
	}
	_, err := p.SetTools(ctx, offered)
	return err
}

// answerMargin is how much longer the gateway waits than the tool may run, so that the
// tool's own error about its timeout arrives.
const answerMargin = 5 * time.Second

func (p *Provider) tool(t *tools.Tool) providers.Tool {
	timeout := t.Timeout
	if timeout == 0 {
		_, env := p.settings()
		timeout = env.Timeout
	}
	return providers.Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters,
		Timeout: timeout + answerMargin,
		Handler: func(ctx context.Context, args json.RawMessage) (any, error) {
			call, _ := providers.CallFrom(ctx)
			root, err := p.root(ctx, call.Session)
			if err != nil {
				return nil, err
			}
			allow, env := p.settings()
			if err := allow.Check(t, args); err != nil {
				return nil, CodedError(err)
			}
			r, err := t.Call(ctx, confine(env, allow, root), args)
			if err != nil {
				return nil, CodedError(err)
			}
			return ResultData(r)
		},
	}
}

// confine returns env for a session's directory. Outside of it, tools may only take the actions
// that allow lists.
func confine(env tools.Env, allow Allow, root string) *tools.Env {
	env.Root = root
	env.Outside = func(_ context.Context, path string, _ bool) error {
		if !allow.AllowsOutside(path) {
			// the tool names the path
			return refuse("not allowed: %s lists what is", allow.where("outside"))
		}
		return nil
	}
	env.Private = func(_ context.Context, host string, addr netip.AddrPort) error {
		if !allow.AllowsHost(host) {
			return allow.NotPublic(host, addr)
		}
		return nil
	}
	return &env
}

// CodedError converts an error of a tool to one with a code for the gateway: Unauthorized for
// a [Refusal], Timeout, Cancelled, or Internal.
func CodedError(err error) *providers.Error {
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

// ResultData converts a result to the data that a session gets: the joined texts, a dict unchanged,
// or the written and removed files. A dict with the result error becomes an error.
func ResultData(r tools.Result) (any, error) {
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
