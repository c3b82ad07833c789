package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// policyFlags say what happens to calls that lsclient.toml does not allow.
func policyFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "yes", Aliases: []string{"y"},
			Usage: "allow every command, file and server that a tool asks for, but no write to protected places (.git, .tapgw)"},
		&ucli.BoolFlag{Name: "ask", Usage: "ask on the terminal before what lsclient.toml does not allow"},
	}
}

// policy decides what tools may do: what lsclient.toml allows, else what a
// person says, else nothing.
type policy struct {
	conf func() configs.LSClient // what the files say now
	yes  bool

	mu     sync.Mutex // one question at a time
	in     *bufio.Reader
	out    io.Writer // nil: nobody is asked
	always []string  // what a person said always to
	absent bool      // the person has no eye for questions now
}

// allowed is what lsclient.toml allows to tools of any kind of session.
func allowed(c configs.LSClient) provide.Allow {
	return provide.Allow{Terminal: c.Allow.Terminal, Outside: c.Allow.Outside, Web: c.Allow.Web, Tools: c.Allow.Tools}
}

func newPolicy(k *call) (*policy, error) {
	p := &policy{conf: k.conf, yes: k.Bool("yes")}
	if !k.Bool("ask") {
		return p, nil
	}
	if p.yes {
		return nil, cli.Usage("flags --yes and --ask: only one of them")
	}
	tty, err := terminal(k)
	if err != nil {
		return nil, cli.Usage("flag --ask: there is no terminal to ask on; use allow in lsclient.toml, or --yes")
	}
	p.in, p.out = bufio.NewReader(tty), k.App.ErrWriter
	return p, nil
}

// terminal is where answers come from: stdin, or the controlling terminal when
// stdin is taken.
func terminal(k *call) (io.Reader, error) {
	if f, ok := k.App.Reader.(*os.File); ok && cli.Terminal(f) {
		return f, nil
	}
	return os.Open("/dev/tty")
}

// tool decides about one call of a client's own tool. The error is a
// [provide.Refusal].
func (p *policy) tool(ctx context.Context, t *tools.Tool, args json.RawMessage) error {
	allow := allowed(p.conf())
	err := allow.Check(t, args)
	if err == nil {
		return nil
	}
	what, key := "use the tool "+t.Name+" with "+string(args), "tool "+t.Name
	if command := provide.Command(args); t.Kind == tools.Terminal && t.Source == "" {
		what, key = "run: "+command, "command "+command
	}
	return p.ask(ctx, what, key, err)
}

// outside decides about a path outside the workspace, which whoever asks names.
func (p *policy) outside(ctx context.Context, path string, write bool) error {
	if allow := allowed(p.conf()); allow.AllowsOutside(path) {
		return nil
	}
	verb := "read"
	if write {
		verb = "write"
	}
	no := &provide.Refusal{What: "not allowed: allow.outside in lsclient.toml lists what is"}
	err := p.ask(ctx, verb+" outside the workspace: "+visible.Line(path), verb+" "+path, no)
	if refusal, ok := errors.AsType[*provide.Refusal](err); ok && refusal != no {
		return &provide.Refusal{What: "the user said no"}
	}
	return err
}

// protected decides about writing where files make programs run: whatever is
// allowed, and with --yes too, a person says yes to each, or nobody does.
func (p *policy) protected(ctx context.Context, path, why string) error {
	if p.yes || p.out == nil {
		return &provide.Refusal{What: "a person must allow such a write, and nobody is asked here: use --ask, or write it yourself"}
	}
	no := &provide.Refusal{What: "a person must allow such a write, and is busy with something else"}
	err := p.ask(ctx, "write "+visible.Line(path)+", which is protected: "+why, "", no)
	if refusal, ok := errors.AsType[*provide.Refusal](err); ok && refusal != no {
		return &provide.Refusal{What: "the user said no"}
	}
	return err
}

// private decides about a server of the web whose address is not public, or not known.
func (p *policy) private(ctx context.Context, host string, addr netip.AddrPort) error {
	allow := allowed(p.conf())
	if allow.AllowsHost(host) {
		return nil
	}
	what := fmt.Sprintf("fetch from %s (%s), which is not public", host, addr)
	if !addr.IsValid() {
		what = fmt.Sprintf("fetch from %s, of which only the proxy knows the address", host)
	}
	return p.ask(ctx, what, "host "+host, allow.NotPublic(host, addr))
}

// server decides about a tool of an MCP server.
func (p *policy) server(ctx context.Context, server, tool string, args json.RawMessage) error {
	name := server + "/" + tool
	if mcp := p.conf().Allow.MCP; slices.Contains(mcp, server) || slices.Contains(mcp, name) {
		return nil
	}
	return p.ask(ctx, "use the MCP tool "+name+" with "+string(args), "mcp "+name,
		&provide.Refusal{What: fmt.Sprintf(
			"the MCP tool %s is not allowed: allow.mcp in lsclient.toml lists those that are", name)})
}

// away says whether the person that is asked is busy with something else.
func (p *policy) away(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.absent = is
}

// What a person is asked to allow, in bytes: at most this much at all, and at first
// only the ends of what is longer or has more lines than fit a screen.
const (
	maxAsked   = 64 << 10
	askedBytes = 3000
	askedLines = 20
)

// ask asks a person, if there is one, and returns no unless they say yes. They see
// all that they allow, with what terminals obey spelt out, or its ends, its size and
// how to see it whole. Always is remembered by key; "" offers no always.
func (p *policy) ask(ctx context.Context, what, key string, no error) error {
	if p.yes {
		return nil
	}
	if p.out == nil {
		return no
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.Contains(p.always, key) {
		return nil
	}
	if p.absent {
		return no
	}
	text := visible.Text(what)
	if len(text) > maxAsked {
		return &provide.Refusal{What: fmt.Sprintf(
			"the request is %d bytes long, and nobody is asked to allow more than %d at once: make it smaller",
			len(text), maxAsked)}
	}
	for shown := visible.Ends(text, askedBytes, askedLines); ; shown = text {
		rest := ""
		if key != "" {
			rest = ", [a]lways this"
		}
		if shown != text {
			rest += ", [w]hole text"
		}
		// Indented, so that no line of it looks like a question of ours.
		_, _ = fmt.Fprintf(p.out, "\nThe model wants to %s\nAllow it? [y]es%s, [N]o: ",
			strings.ReplaceAll(shown, "\n", "\n  "), rest)
		answer := make(chan string, 1)
		go func() { // outlives the call when nobody answers: the next question takes what it reads
			line, _ := p.in.ReadString('\n')
			answer <- strings.ToLower(strings.TrimSpace(line))
		}()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case a := <-answer:
			switch {
			case key != "" && (a == "a" || a == "always"):
				p.always = append(p.always, key)
				return nil
			case a == "y" || a == "yes":
				return nil
			case a == "w" || a == "whole":
				continue
			}
			return &provide.Refusal{What: "the user said no to: " + visible.Ends(what, askedBytes, askedLines)}
		}
	}
}
