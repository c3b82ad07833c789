package langserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options configure a [Client] for its whole life. Only Workspace is required. Confirm, Gate and
// Open may be called from several goroutines at the same time; the server waits for Confirm and
// Gate.
type Options struct {
	Command   string // the server: a program, or a script for node; "": see [Find]
	Workspace string // absolute directory
	// Trusted lets the workspace's own agents, prompts and files of .github/instructions take
	// effect.
	Trusted bool
	// TodoList gives the model a tool of the server, manage_todo_list, with which it keeps a list
	// of its tasks.
	TodoList bool
	// NoInstructionFiles leaves out the files of .github/instructions, which the server reads
	// wherever their symbolic links lead.
	NoInstructionFiles bool
	// Instructions are a text that the model gets with each turn, besides the files of
	// .github/instructions. The server reads no other file of instructions. It may be "".
	Instructions string
	Version      string // of this program; "": "dev"
	// more variables for the server, which also gets GH_*, GITHUB_* and COPILOT_*
	Env map[string]string

	Proxy      Proxy
	Enterprise string // https URL of a GitHub Enterprise server; "": github.com
	Telemetry  bool
	MaxRounds  int                  // of tool calls in a turn, 1 to 500; 0: the server's 25
	MCP        map[string]MCPServer // by name; the server runs them

	// Confirm decides about the server's questions, see [Confirmation]. It allows by returning nil;
	// the log has the text of an error. Without Confirm the client refuses all of them.
	Confirm func(ctx context.Context, q Confirmation) error
	// Gate is asked before each call of a tool of [Client.SetTools]. If deny is not empty, the tool
	// does not run and the model gets that reason. context is added to the tool's result. Nil: no
	// gate.
	Gate func(ctx context.Context, call Invocation) (deny, context string)
	// Open shows a web page to the user. Nil: the page is not shown.
	Open func(url string)
	Log  *slog.Logger // gets the server's messages; nil: no log
}

// Proxy says how the server connects to the network. The zero value leaves it to the environment
// (HTTPS_PROXY and its like), which the server inherits.
type Proxy struct {
	URL      string // "": as the environment says
	Auth     string // user:password; "": as URL says
	Insecure bool   // certificates are not checked
}

// MCPServer is an MCP server that the language server starts by Command, or that runs at URL.
// Exactly one of the two must be set. Env is for both.
type MCPServer struct {
	Command []string // and its arguments
	Env     map[string]string
	Dir     string // where Command runs; "": in the workspace
	URL     string
}

// check returns the first mistake in the options.
func (o *Options) check() error {
	switch {
	case !filepath.IsAbs(o.Workspace):
		return fmt.Errorf("workspace %q is not an absolute path", o.Workspace)
	case o.MaxRounds < 0 || o.MaxRounds > 500:
		return fmt.Errorf("%d rounds of tool calls: must be 1 to 500", o.MaxRounds)
	case o.Proxy.Auth != "" && !strings.Contains(o.Proxy.Auth, ":"):
		return fmt.Errorf("the proxy's credentials are not of the form user:password")
	}
	if info, err := os.Stat(o.Workspace); err != nil {
		return fmt.Errorf("workspace: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("workspace %s is not a directory", o.Workspace)
	}
	if o.Enterprise != "" {
		if u, err := url.Parse(o.Enterprise); err != nil || u.Scheme != "https" || u.Host == "" {
			return fmt.Errorf(
				"enterprise server %q is not an https URL: the language server takes no other",
				o.Enterprise)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.MCP)) {
		if s := o.MCP[name]; (len(s.Command) == 0) == (s.URL == "") {
			return fmt.Errorf("MCP server %q needs either a command or a URL", name)
		}
	}
	return nil
}

type object = map[string]any

// instructionDir is the directory of instructions that name the files that they are for. The server
// reads it.
const instructionDir = ".github/instructions"

// settings returns the settings for workspace/didChangeConfiguration.
func (o *Options) settings() object {
	level := "off"
	if o.Telemetry {
		level = "all"
	}
	// Without instructionFileLocations the server would read .github/copilot-instructions.md by
	// itself, of any size and through any symbolic link.
	locations := []string{}
	if o.Trusted && !o.NoInstructionFiles {
		locations = append(locations, instructionDir)
	}
	copilot, agent := object{
		// the form that also older servers accept
		"instructionFileLocations":  object{"locations": locations},
		"globalCopilotInstructions": o.Instructions,
	}, object{}
	if o.MaxRounds > 0 {
		agent["maxToolCallingLoop"] = o.MaxRounds
	}
	if len(agent) > 0 {
		copilot["agent"] = agent
	}
	if len(o.MCP) > 0 {
		copilot["mcp"] = o.mcp()
	}
	s := object{
		"telemetry": object{"telemetryLevel": level},
		"github":    object{"copilot": copilot},
	}
	if o.Proxy != (Proxy{}) {
		http := object{"proxyStrictSSL": !o.Proxy.Insecure}
		if o.Proxy.URL != "" {
			http["proxy"] = o.Proxy.URL
		}
		if o.Proxy.Auth != "" {
			http["proxyAuthorization"] = o.Proxy.Auth // the server encodes it
		}
		s["http"] = http
	}
	if o.Enterprise != "" {
		s["github-enterprise"] = object{"uri": o.Enterprise}
	}
	return s
}

// mcp returns the setting "mcp": JSON in a string.
func (o *Options) mcp() string {
	servers := object{}
	for name, s := range o.MCP {
		server := object{}
		if s.URL != "" {
			server["url"] = s.URL
		} else {
			server["command"], server["args"] = s.Command[0], s.Command[1:]
		}
		if s.Dir != "" {
			server["cwd"] = s.Dir
		}
		if len(s.Env) > 0 {
			server["env"] = s.Env
		}
		servers[name] = server
	}
	text, err := json.Marshal(servers)
	if err != nil { // can't happen: it has only strings
		panic(err)
	}
	return string(text)
}

// folder returns the workspace as an LSP workspace folder.
func (o *Options) folder() object {
	return object{"uri": fileURI(o.Workspace), "name": filepath.Base(o.Workspace)}
}

// fileURI returns the URI of an absolute path.
func fileURI(path string) string { return (&url.URL{Scheme: "file", Path: path}).String() }
