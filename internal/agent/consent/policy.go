package consent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"tapgw/configs"
	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// Policy decides which tool calls are allowed. lsclient.toml allows a call, else a person is asked,
// else the call is refused. Several calls may use its methods at a time; it asks one question after
// the other. Its errors are for the model.
type Policy struct {
	NoKind bool // see [provide.Allow]

	conf  func() configs.LSClient
	yes   bool
	asker Asker

	mu         sync.Mutex // held while a person is asked; guards the fields that follow
	always     []string   // keys of questions that a person has answered with always
	userIsBusy bool       // the person can't be asked now
	edits      editConsent
}

// Allowed returns the permissions of a configuration.
func Allowed(c configs.LSClient) provide.Allow {
	return provide.Allow{Terminal: c.Allow.Terminal, Outside: c.Allow.Outside, Web: c.Allow.Web,
		Tools: c.Allow.Tools}
}

// New returns a policy for the configuration that conf returns at the time of a call. With yes, the
// policy allows everything that a person could allow with one answer. With a nil asker, it asks no
// person.
func New(conf func() configs.LSClient, yes bool, asker Asker) *Policy {
	return &Policy{conf: conf, yes: yes, asker: asker}
}

// Guard makes the tools of env ask the policy before they leave their workspace.
func (p *Policy) Guard(env *tools.Env) {
	env.Outside, env.Private, env.Protected = p.outside, p.private, p.protected
}

// Tool decides about a call of a tool in the workspace. The error is a [provide.Refusal].
func (p *Policy) Tool(ctx context.Context, t *tools.Tool, args json.RawMessage) error {
	allow := Allowed(p.conf())
	allow.NoKind = p.NoKind
	err := allow.Check(t, args)
	if err == nil {
		return nil
	}
	what, key := "use the tool "+t.Name+" with "+string(args), "tool "+t.Name
	if command := provide.Command(args); t.Kind == tools.Terminal && t.Source == "" {
		what, key = "run: "+command, "command "+command
	}
	return p.ask(ctx, request{what: what, key: key, refused: what}, err)
}

// Path decides about a path that the server itself reads or writes. A protected path needs consent,
// and so does a path outside the workspace. why is the reason of the protection, or "".
func (p *Policy) Path(ctx context.Context, path, why string, write bool) error {
	if why != "" && write {
		if err := p.protected(ctx, path, why); err != nil {
			return fmt.Errorf("%s is protected, %s; %w", path, why, err)
		}
	}
	if err := p.outside(ctx, path, write); err != nil {
		return fmt.Errorf("%s is outside the workspace: %w", path, err)
	}
	return nil
}

// outside decides about a path outside the workspace. The caller names the path in its own error.
func (p *Policy) outside(ctx context.Context, path string, write bool) error {
	if allow := Allowed(p.conf()); allow.AllowsOutside(path) {
		return nil
	}
	verb := "read"
	if write {
		verb = "write"
	}
	no := &provide.Refusal{What: "not allowed: allow.outside in lsclient.toml lists what is"}
	return p.ask(ctx, request{what: verb + " outside the workspace: " + visible.Line(path),
		key: verb + " " + path}, no)
}

// protected decides about writing to places where files make programs run. A person must allow each
// such write, whatever lsclient.toml allows, and --yes does not.
func (p *Policy) protected(ctx context.Context, path, why string) error {
	if p.yes || p.asker == nil {
		return &provide.Refusal{What: "a person must allow such a write, and nobody is asked " +
			"here: " +
			"use --ask, or write it yourself"}
	}
	no :=
		&provide.Refusal{What: "a person must allow such a write, and is busy with something else"}
	return p.ask(ctx, request{what: "write " + visible.Line(path) + ", which is protected: " + why},
		no)
}

// private decides about a web server whose address is private or unknown.
func (p *Policy) private(ctx context.Context, host string, addr netip.AddrPort) error {
	allow := Allowed(p.conf())
	if allow.AllowsHost(host) {
		return nil
	}
	what := fmt.Sprintf("fetch from %s (%s), which is not public", host, addr)
	if !addr.IsValid() {
		what = fmt.Sprintf("fetch from %s, of which only the proxy knows the address", host)
	}
	return p.ask(ctx, request{what: what, key: "host " + host, refused: what},
		allow.NotPublic(host, addr))
}

// MCPTool decides about a call of an MCP server's tool.
func (p *Policy) MCPTool(ctx context.Context, server, tool string, args json.RawMessage) error {
	name := server + "/" + tool
	if mcp := p.conf().Allow.MCP; slices.Contains(mcp, server) || slices.Contains(mcp, name) {
		return nil
	}
	what := "use the MCP tool " + name + " with " + string(args)
	return p.ask(ctx, request{what: what, key: "mcp " + name, refused: what},
		&provide.Refusal{What: fmt.Sprintf(
			"the MCP tool %s is not allowed: allow.mcp in lsclient.toml lists those that are",
			name)})
}

// SetBusy sets whether the person does something else, so that questions are answered with no.
func (p *Policy) SetBusy(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.userIsBusy = busy
}

// Limits of a question's text. Of a longer text than askedBytes or askedLines the question first
// shows the ends only.
const (
	maxAsked   = 64 << 10 // bytes; a longer one is refused
	askedBytes = 3000
	askedLines = 20
)

// request is a request for a person's permission.
type request struct {
	what    string // in words after "the model wants to"
	key     string // the answer always is stored under it; "": always is no choice
	refused string // the subject in the error of a no; "": the caller's error names it
}

// Action decides about an action of the server that has no rule in the configuration: only a person
// allows it. An answer always covers the action that kind and what describe together.
func (p *Policy) Action(ctx context.Context, kind, what string) error {
	return p.ask(ctx, request{what: what, key: kind + " " + what, refused: what},
		fmt.Errorf("not allowed: %s", what))
}

// ask asks a person and returns nil for yes. It returns no if there is no person to ask. The person
// sees the whole text, with control characters spelt out, or its ends, its size and how to see all
// of it.
func (p *Policy) ask(ctx context.Context, r request, no error) error {
	if p.yes {
		return nil
	}
	if p.asker == nil {
		return no
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.key != "" && slices.Contains(p.always, r.key) {
		return nil
	}
	text := visible.Text(r.what)
	if len(text) > maxAsked {
		return &provide.Refusal{What: fmt.Sprintf(
			"the request is %d bytes long, and nobody is asked to allow more than %d at once: "+
				"make it smaller",
			len(text), maxAsked)}
	}
	q := Question{Text: visible.Ends(text, askedBytes, askedLines),
		Choices: []Choice{{Answer: Once}}}
	if q.Text != text {
		q.Whole = text
	}
	if r.key != "" {
		q.Choices = append(q.Choices, Choice{Answer: Always})
	}
	reply, err := p.question(ctx, q, no)
	if err != nil {
		return err
	}
	switch reply.Word {
	case Always:
		p.always = append(p.always, r.key)
		return nil
	case Once:
		return nil
	}
	return saidNo(visible.Ends(r.refused, askedBytes, askedLines), reply.Reason)
}

// question asks the question while p.mu is held. It returns no if the person is busy.
func (p *Policy) question(ctx context.Context, q Question, no error) (Answer, error) {
	if p.userIsBusy {
		return Answer{}, no
	}
	q.Worker, _ = ctx.Value(workerKey{}).(string)
	return p.asker.Ask(ctx, q)
}

// saidNo is the refusal of a person, for the model.
func saidNo(to, reason string) error {
	text := "the user said no"
	if to != "" {
		text += " to: " + to
	}
	if reason != "" {
		text += "\nThe user's reason: " + reason
	}
	return &provide.Refusal{What: text}
}
