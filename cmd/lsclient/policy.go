package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// policyFlags returns the flags about calls that lsclient.toml does not allow.
func policyFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
			Usage: "allow each command, file and server that a tool asks for, " +
				"but no write to protected places (.git, .tapgw)"},
		&ucli.BoolFlag{Name: "ask", Usage: "ask on the terminal before each edit, and before what lsclient.toml " +
			"does not allow"},
	}
}

// policy decides what tools may do. lsclient.toml allows, else a person is asked, else it is refused.
type policy struct {
	conf func() configs.LSClient // the current configuration
	yes  bool

	noKind bool // see [provide.Allow]

	mu         sync.Mutex // one question at a time; guards the fields that follow
	asker      asker      // nil: no person is asked
	always     []string   // keys of questions that a person has answered with always
	userIsBusy bool       // the person can't be asked now
	edits      editConsent
}

// allowed returns what lsclient.toml allows.
func allowed(c configs.LSClient) provide.Allow {
	return provide.Allow{Terminal: c.Allow.Terminal, Outside: c.Allow.Outside, Web: c.Allow.Web, Tools: c.Allow.Tools}
}

func newPolicy(c *command) (*policy, error) {
	p := &policy{conf: c.conf, yes: c.Bool("yes")}
	if !c.Bool("ask") {
		return p, nil
	}
	if p.yes {
		return nil, cli.Usage("flags --yes and --ask exclude each other: use one of them")
	}
	if c.screen != nil {
		p.asker = &screenAsker{c.screen}
		return p, nil
	}
	tty, err := answers(c)
	if err != nil {
		return nil, cli.Usage("flag --ask: there is no terminal to ask on; use allow in lsclient.toml, or --yes")
	}
	p.asker = &lineAsker{in: bufio.NewReader(tty), flush: func() { flushInput(tty.Fd()) }, out: c.out.Err,
		status: c.status}
	return p, nil
}

// answers returns the reader of answers: stdin, or the controlling terminal if stdin is something else.
func answers(c *command) (*os.File, error) {
	if f, ok := c.App.Reader.(*os.File); ok && cli.Terminal(f) {
		return f, nil
	}
	return os.Open("/dev/tty")
}

// tool decides about a call of one of our tools. The error is a [provide.Refusal].
func (p *policy) tool(ctx context.Context, t *tools.Tool, args json.RawMessage) error {
	allow := allowed(p.conf())
	allow.NoKind = p.noKind
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

// outside decides about a path outside the workspace. The caller names the path in its own error.
func (p *policy) outside(ctx context.Context, path string, write bool) error {
	if allow := allowed(p.conf()); allow.AllowsOutside(path) {
		return nil
	}
	verb := "read"
	if write {
		verb = "write"
	}
	no := &provide.Refusal{What: "not allowed: allow.outside in lsclient.toml lists what is"}
	return p.ask(ctx, request{what: verb + " outside the workspace: " + visible.Line(path), key: verb + " " + path}, no)
}

// protected decides about writing to places where files make programs run. A person must allow each such write,
// whatever lsclient.toml allows, and --yes does not.
func (p *policy) protected(ctx context.Context, path, why string) error {
	if p.yes || p.asker == nil {
		return &provide.Refusal{What: "a person must allow such a write, and nobody is asked here: " +
			"use --ask, or write it yourself"}
	}
	no := &provide.Refusal{What: "a person must allow such a write, and is busy with something else"}
	return p.ask(ctx, request{what: "write " + visible.Line(path) + ", which is protected: " + why}, no)
}

// private decides about a web server whose address is not public or not known.
func (p *policy) private(ctx context.Context, host string, addr netip.AddrPort) error {
	allow := allowed(p.conf())
	if allow.AllowsHost(host) {
		return nil
	}
	what := fmt.Sprintf("fetch from %s (%s), which is not public", host, addr)
	if !addr.IsValid() {
		what = fmt.Sprintf("fetch from %s, of which only the proxy knows the address", host)
	}
	return p.ask(ctx, request{what: what, key: "host " + host, refused: what}, allow.NotPublic(host, addr))
}

// server decides about a call of an MCP server's tool.
func (p *policy) server(ctx context.Context, server, tool string, args json.RawMessage) error {
	name := server + "/" + tool
	if mcp := p.conf().Allow.MCP; slices.Contains(mcp, server) || slices.Contains(mcp, name) {
		return nil
	}
	what := "use the MCP tool " + name + " with " + string(args)
	return p.ask(ctx, request{what: what, key: "mcp " + name, refused: what},
		&provide.Refusal{What: fmt.Sprintf(
			"the MCP tool %s is not allowed: allow.mcp in lsclient.toml lists those that are", name)})
}

// setBusy sets whether the person is busy with something else, so that questions are answered with no.
func (p *policy) setBusy(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.userIsBusy = busy
}

// Limits of a question's text. Of a longer text than askedBytes or askedLines the question first shows the ends only.
const (
	maxAsked   = 64 << 10 // bytes; a longer one is refused
	askedBytes = 3000
	askedLines = 20
)

// request is what a person is asked to allow.
type request struct {
	what    string // in words after "the model wants to"
	key     string // under which the answer always is remembered; "": always is no choice
	refused string // what the error of a no names; "": the caller's error names it
}

// ask asks a person and returns nil for yes. It returns no if there is no person to ask. The person sees the whole
// text, with control characters spelt out, or its ends, its size and how to see all of it.
func (p *policy) ask(ctx context.Context, r request, no error) error {
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
			"the request is %d bytes long, and nobody is asked to allow more than %d at once: make it smaller",
			len(text), maxAsked)}
	}
	q := question{text: visible.Ends(text, askedBytes, askedLines), choices: []choice{{word: yesOnce}}}
	if q.text != text {
		q.whole = text
	}
	if r.key != "" {
		q.choices = append(q.choices, choice{word: always})
	}
	reply, err := p.question(ctx, q, no)
	if err != nil {
		return err
	}
	switch reply.word {
	case always:
		p.always = append(p.always, r.key)
		return nil
	case yesOnce:
		return nil
	}
	return saidNo(visible.Ends(r.refused, askedBytes, askedLines), reply.reason)
}

// question asks the question while p.mu is held. It returns no if the person is busy.
func (p *policy) question(ctx context.Context, q question, no error) (answer, error) {
	if p.userIsBusy {
		return answer{}, no
	}
	q.worker = workerIn(ctx)
	return p.asker.ask(ctx, q)
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
