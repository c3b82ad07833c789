package configs

import (
	"fmt"
	"strings"
)

// Kinds of providers, the key kind of a provider file: where the program or the tools come from
// that the gateway gives to sessions. Command and connect speak docs/protocol.md; the others run in
// the gateway.
const (
	KindCommand = "command" // a process that the gateway starts
	KindConnect = "connect" // a process that tapgw does not start
	KindTools   = "tools"   // a directory of tools
	KindHTTP    = "http"    // an HTTP API
	KindMCP     = "mcp"     // an MCP server, which the gateway starts or reaches by URL
	KindSource  = "source"  // events: of a command, files, a URL, a webhook, or a schedule
	KindTap     = "tap"     // the gateway's own tap_* tools, which no file has
)

// kind is how the gateway treats the providers of one kind.
type kind struct {
	// the program connects when it likes: the gateway neither starts nor ends it
	startsItself bool
	servesAll    bool // one process is for all sessions, unless the file says otherwise
	// it needs no session's directory, and so can serve sessions of other gateways
	servesElsewhere bool
	isOwn           bool // it is the gateway's, and no file may have it
	// check adds faults for keys that exclude or need each other.
	check func(*Provider, *table)
	// offer says of a provider in a project's file which part of the session it is, for people.
	offer func(*Provider) string
}

// kinds has every kind of provider. A new one needs its keys in [Provider], an element here, and
// the function that runs it in internal/assembly, launchers.
var kinds = map[string]kind{
	KindCommand: {servesElsewhere: true, check: (*Provider).checkCommand,
		offer: func(p *Provider) string {
			return fmt.Sprintf("the provider %s, which starts %s", p.Name,
				strings.Join(p.Command, " "))
		}},
	KindConnect: {startsItself: true},
	KindTools: {servesAll: true, check: (*Provider).checkTools, offer: func(p *Provider) string {
		return fmt.Sprintf("the provider %s, which runs the tools in %s", p.Name, p.Dir)
	}},
	KindHTTP: {servesAll: true, servesElsewhere: true, check: (*Provider).checkHTTP},
	KindMCP: {servesAll: true, servesElsewhere: true, check: (*Provider).checkMCP,
		offer: func(p *Provider) string {
			if p.MCP.URL != "" {
				return fmt.Sprintf("the provider %s, the MCP server at %s", p.Name, p.MCP.URL)
			}
			return fmt.Sprintf("the provider %s, an MCP server that %s starts", p.Name,
				strings.Join(p.Command, " "))
		}},
	KindSource: {servesAll: true, check: (*Provider).checkSource, offer: func(p *Provider) string {
		return fmt.Sprintf("the source %s, which %s", p.Name, p.Source.does())
	}},
	KindTap: {isOwn: true},
}

// StartsItself reports whether the provider's program connects when it likes: the gateway neither
// starts nor ends it.
func (p *Provider) StartsItself() bool { return kinds[p.Kind].startsItself }

// ServesElsewhere reports whether the provider can serve single sessions of other gateways. Their
// directories are unknown here, so it must not need them.
func (p *Provider) ServesElsewhere() bool {
	return kinds[p.Kind].servesElsewhere && p.Sessions.Mode == SessionsEach &&
		p.Sessions.CWD == "" && p.Sessions.Below == "" && p.Project == ""
}

// IsOwn reports whether the provider is the gateway's own, which no file has.
func (p *Provider) IsOwn() bool { return kinds[p.Kind].isOwn }

// offer says which part of its project's sessions the provider is.
func (p *Provider) offer() string {
	if of := kinds[p.Kind].offer; of != nil {
		return of(p)
	}
	return fmt.Sprintf("the provider %s, of kind %s", p.Name, p.Kind)
}

// needs adds a fault if a key is missing that the provider's kind needs.
func (p *Provider) needs(t *table, key, example string) {
	if _, has := t.values[key]; !has {
		t.fault("kind", "%q needs %s", p.Kind, example)
	}
}

func (p *Provider) checkCommand(t *table) {
	const example = `command = ["program", "argument"]`
	p.needs(t, "command", example)
	if t.has("command") && t.isGood("command") && len(p.Command) == 0 {
		t.fault("kind", "%q needs %s", p.Kind, example)
	}
}

func (p *Provider) checkTools(t *table) { p.needs(t, "dir", `dir = "directory"`) }

func (p *Provider) checkHTTP(t *table) {
	p.needs(t, "tools", "a table [tools.NAME] for each tool")
	for _, tool := range p.HTTP {
		if name := p.Rules.Prefix + tool.Name; t.isGood("prefix") && len(name) > maxToolName {
			t.fault("prefix",
				"makes %q longer than the %d characters that a tool's name may have", name,
				maxToolName)
		}
	}
}
