package configs

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Profile has the settings of a Copilot session: keys of [copilot], with those of [copilot.profile.NAME] over them. For
// an empty value, the runtime decides. [DefaultProfile] has the others.
type Profile struct {
	Model            string
	Effort           string // of reasoning: one of [Efforts]
	ReasoningSummary string // none, concise or detailed
	ContextTier      string // default or long_context

	SystemMessage  SystemMessage
	Instructions   Instructions
	AvailableTools []string // names and patterns; empty: all
	ExcludedTools  []string
	ToolSearch     ToolSearch

	Directories     []string // that the session may read besides its own
	ConfigDir       string   // "": the runtime's home
	ConfigDiscovery bool     // take MCP servers and skills from the session's directory

	Agent          string // of Agents, or one that the runtime knows
	Agents         map[string]Agent
	ExcludedAgents []string // of the runtime's own

	Skills           bool
	SkillDirectories []string
	DisabledSkills   []string

	MCP                map[string]SessionMCP
	DisabledMCPServers []string

	Streaming   bool
	Infinite    Infinite
	LargeOutput LargeOutput

	Provider       Endpoint
	GitHubTokenEnv string // the variable that holds a GitHub token; "": as the user is signed in
}

// Efforts are the levels of reasoning, lowest first, for the key effort of a profile or an agent. Not every model has
// all.
var Efforts = []string{"low", "medium", "high", "xhigh", "max"}

// SystemMessage is the table system_message: text of the user's own for the model, behind the runtime's or in its
// place. Text or File is set, not both; without either there is none.
type SystemMessage struct {
	Mode string // SystemAppend or SystemReplace
	Text string
	File string // that holds the text, read when a session starts; instead of Text
}

// Values of system_message.mode: the text comes behind the runtime's own system message, or in its place.
const (
	SystemAppend  = "append"
	SystemReplace = "replace"
)

// Instructions is the table instructions: files that tell the model how to work in a project, and a text of whoever
// runs the gateway.
type Instructions struct {
	Enabled      bool
	OnDemand     bool     // those beside a file that the model looks at
	Directories  []string // to search besides the session's own
	Organization string   // text of whoever runs the gateway
}

// ToolSearch is the table tool_search: with Threshold tools or more, the model searches for tools instead of getting
// all. Fewer tools, or Enabled false, means that it gets all.
type ToolSearch struct {
	Enabled   bool
	Threshold int
}

// Infinite is the table infinite: how a conversation continues that fills its context. The
// thresholds are fractions of the context, from 0.01 to 1.
type Infinite struct {
	Enabled             bool
	BackgroundThreshold float64 // compaction begins
	ExhaustionThreshold float64 // the session waits for it
}

// LargeOutput is the table large_output: tool results of more than MaxBytes bytes go to a file that the model can read.
type LargeOutput struct {
	Enabled  bool
	MaxBytes int
}

// Agent is a table agents.NAME: an agent to which the model can give work. Prompt or
// PromptFile is set, not both.
type Agent struct {
	DisplayName string
	Description string
	Prompt      string
	PromptFile  string   // instead of Prompt, read when a session starts
	Tools       []string // nil: all; empty: none
	Model       string   // "": the session's
	Effort      string
	Skills      []string
	Infer       bool // the model may choose it
}

// SessionMCP is a table mcp.NAME: an MCP server of sessions. The runtime starts Command or
// connects to URL; one of them is set.
type SessionMCP struct {
	Command []string
	CWD     string
	Env     map[string]string
	URL     string            // of a server that runs already, instead of Command
	Headers map[string]string // with URL; ${NAME} for variables of the environment
	Tools   []string          // nil: all
	Timeout time.Duration     // of a call; 0: the runtime's
}

// DefaultProfile returns the settings of a session without a config file: those that are not the runtime's to decide.
// Each call returns a value of its own, which the caller may change.
func DefaultProfile() Profile {
	return Profile{
		SystemMessage: SystemMessage{Mode: SystemAppend},
		Instructions:  Instructions{Enabled: true, OnDemand: true},
		ToolSearch:    ToolSearch{Enabled: true, Threshold: 30},
		Skills:        true,
		Streaming:     true,
		Infinite:      Infinite{Enabled: true, BackgroundThreshold: 0.8, ExhaustionThreshold: 0.95},
		LargeOutput:   LargeOutput{Enabled: true, MaxBytes: 50 << 10},
		Provider:      defaultEndpoint(),
	}
}

func (p *Profile) read(t *table) {
	t.str("model", &p.Model, isModelOrNone)
	t.str("effort", &p.Effort, oneOf(append([]string{""}, Efforts...)...))
	t.str("reasoning_summary", &p.ReasoningSummary, oneOf("", "none", "concise", "detailed"))
	t.str("context_tier", &p.ContextTier, oneOf("", "default", "long_context"))
	t.strs("available_tools", &p.AvailableTools, isToolPattern)
	t.strs("excluded_tools", &p.ExcludedTools, isToolPattern)
	t.paths("directories", &p.Directories)
	t.dir("config_dir", &p.ConfigDir)
	t.boolean("config_discovery", &p.ConfigDiscovery)
	t.str("agent", &p.Agent, noNUL)
	t.strs("excluded_agents", &p.ExcludedAgents, notEmpty)
	t.boolean("skills", &p.Skills)
	t.paths("skill_directories", &p.SkillDirectories)
	t.strs("disabled_skills", &p.DisabledSkills, notEmpty)
	t.strs("disabled_mcp_servers", &p.DisabledMCPServers, notEmpty)
	t.boolean("streaming", &p.Streaming)
	t.str("github_token_env", &p.GitHubTokenEnv, isEnvOrNone)

	m := t.table("system_message")
	switch text, file := m.has("text"), m.has("file"); { // a nearer file or profile overrides both keys
	case text && !file:
		p.SystemMessage.File = ""
	case file && !text:
		p.SystemMessage.Text = ""
	}
	m.str("mode", &p.SystemMessage.Mode, oneOf(SystemAppend, SystemReplace))
	m.str("text", &p.SystemMessage.Text, noNUL)
	m.dir("file", &p.SystemMessage.File)
	m.rejectUnknown()

	i := t.table("instructions")
	i.boolean("enabled", &p.Instructions.Enabled)
	i.boolean("on_demand", &p.Instructions.OnDemand)
	i.paths("directories", &p.Instructions.Directories)
	i.str("organization", &p.Instructions.Organization, noNUL)
	i.rejectUnknown()

	s := t.table("tool_search")
	s.boolean("enabled", &p.ToolSearch.Enabled)
	s.integer("threshold", &p.ToolSearch.Threshold, 1, 10_000)
	s.rejectUnknown()

	f := t.table("infinite")
	f.boolean("enabled", &p.Infinite.Enabled)
	f.number("background_threshold", &p.Infinite.BackgroundThreshold, 0.01, 1)
	f.number("exhaustion_threshold", &p.Infinite.ExhaustionThreshold, 0.01, 1)
	f.rejectUnknown()

	l := t.table("large_output")
	l.boolean("enabled", &p.LargeOutput.Enabled)
	l.integer("max_bytes", &p.LargeOutput.MaxBytes, 1, 1<<30)
	l.rejectUnknown()

	p.Provider.read(t.table("provider"))
	p.readAgents(t.table("agents"))
	p.readMCP(t.table("mcp"))
}

func (p *Profile) readAgents(t *table) {
	agents := maps.Clone(p.Agents)
	t.eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault(name, "is not an agent's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		a := Agent{Infer: true}
		sub.str("display_name", &a.DisplayName, nil)
		sub.str("description", &a.Description, nil)
		sub.str("prompt", &a.Prompt, noNUL)
		sub.dir("prompt_file", &a.PromptFile)
		sub.strs("tools", &a.Tools, isToolPattern)
		if sub.has("tools") && a.Tools == nil {
			a.Tools = []string{}
		}
		sub.str("model", &a.Model, isModelOrNone)
		sub.str("effort", &a.Effort, oneOf(append([]string{""}, Efforts...)...))
		sub.strs("skills", &a.Skills, notEmpty)
		sub.boolean("infer", &a.Infer)
		sub.rejectUnknown()
		if sub.isGood("prompt") && sub.isGood("prompt_file") && (a.Prompt == "") == (a.PromptFile == "") &&
			sub.shape == nil {
			t.fault(name, "needs either prompt or prompt_file")
		}
		agents = put(agents, name, a)
	})
	p.Agents = agents
}

func (p *Profile) readMCP(t *table) {
	servers := maps.Clone(p.MCP)
	t.eachTable(func(name string, sub *table) {
		if !providerName.MatchString(name) {
			t.fault(name, "is not a server's name: 1 to 64 letters, digits, dots, dashes and underscores")
		}
		var s SessionMCP
		sub.list("command", &s.Command, func(before []string, arg string) error {
			if arg == "" && len(before) == 0 {
				return errors.New("must be the name of a program")
			}
			return noNUL(arg)
		})
		sub.dir("cwd", &s.CWD)
		sub.strings("env", &s.Env, isEnv)
		sub.str("url", &s.URL, isHTTP)
		sub.headers(&s.Headers)
		sub.strs("tools", &s.Tools, notEmpty)
		if sub.has("tools") && s.Tools == nil {
			s.Tools = []string{}
		}
		sub.duration("timeout", &s.Timeout, 0, time.Hour)
		sub.rejectUnknown()
		if sub.shape == nil {
			s.checkTogether(t, sub, name)
		}
		servers = put(servers, name, s)
	})
	p.MCP = servers
}

// checkTogether adds faults for keys that exclude each other.
func (s SessionMCP) checkTogether(t, sub *table, name string) {
	if sub.isGood("command") && sub.isGood("url") && (len(s.Command) == 0) == (s.URL == "") {
		t.fault(name, "needs either command or url")
		return
	}
	for key, with := range map[string]bool{"cwd": s.URL == "", "env": s.URL == "", "headers": s.URL != ""} {
		if sub.has(key) && !with {
			sub.fault(key, "goes with %s", map[bool]string{true: "command", false: "url"}[s.URL != ""])
		}
	}
}

// put adds to a map that may be nil.
func put[V any](m map[string]V, name string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = v
	return m
}

// check adds faults for values that exclude each other: at their places in t, or at t itself
// for values of another file.
func (p *Profile) check(t *table) {
	if p.SystemMessage.Text != "" && p.SystemMessage.File != "" {
		t.fault("system_message.file", "either text or file")
	}
	if f := p.Infinite; f.BackgroundThreshold >= f.ExhaustionThreshold {
		t.fault("infinite.background_threshold",
			"%v must be below exhaustion_threshold, which is %v", f.BackgroundThreshold, f.ExhaustionThreshold)
	}
	if len(p.AvailableTools) > 0 && len(p.ExcludedTools) > 0 {
		t.fault("excluded_tools", "available_tools lists all tools of the session: remove the tool there instead")
	}
	p.Provider.check(t)
	if m := p.Provider.Models; p.Model != "" && len(m) > 0 && !slices.Contains(m, p.Model) {
		t.fault("model", "%q is not one of models: %s", p.Model, strings.Join(m, ", "))
	}
}

// has reports whether a key is set, whatever to.
func (t *table) has(key string) bool {
	if t == nil {
		return false
	}
	_, ok := t.values[key]
	return ok
}

// dir reads a path, relative to the file's directory.
func (t *table) dir(key string, into *string) {
	before := *into
	t.str(key, into, noNUL)
	if t != nil && *into != before {
		*into = resolvePath(filepath.Dir(t.doc.file), *into)
	}
}

// paths reads an array of paths, relative to the file's directory.
func (t *table) paths(key string, into *[]string) {
	var list []string
	t.strs(key, &list, isPath)
	if !t.has(key) || !t.isGood(key) {
		return
	}
	for i, path := range list {
		list[i] = resolvePath(filepath.Dir(t.doc.file), path)
	}
	*into = list
}

// number reads a number, whole or not.
func (t *table) number(key string, into *float64, least, most float64) {
	t.describe(key, func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "number", Minimum: new(least), Maximum: new(most), Default: literal(*into)}
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	n, ok := v.(float64)
	if whole, isWhole := v.(int64); isWhole {
		n, ok = float64(whole), true
	}
	switch {
	case !ok:
		t.mismatch(key, "a number", v)
	case !(n >= least && n <= most): // not a number is neither
		t.fault(key, "%v is not from %v to %v", n, least, most)
	default:
		*into = n
	}
}

func isEnv(name string) error {
	if !envName.MatchString(name) {
		return errors.New("is not the name of an environment variable")
	}
	return nil
}

func isEnvOrNone(s string) error {
	if s == "" {
		return nil
	}
	return CheckKeyEnv(s)
}

func isHostOrNone(s string) error {
	if s == "" {
		return nil
	}
	return isHost(s)
}
