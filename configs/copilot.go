package configs

import (
	"slices"
	"strings"
	"time"
)

// Profile has the settings of a Copilot session: keys of [copilot], with the keys of
// [copilot.profile.NAME] over them. For an empty value, the runtime decides. [DefaultProfile] has
// the other defaults.
type Profile struct {
	Model            string `toml:"model" is:"model?"`
	Effort           string `toml:"effort" is:"effort"` // one of [Efforts]
	ReasoningSummary string `toml:"reasoning_summary" of:",none,concise,detailed"`
	ContextTier      string `toml:"context_tier" of:",default,long_context"`

	AvailableTools []string `toml:"available_tools" is:"toolPattern"` // empty: all
	ExcludedTools  []string `toml:"excluded_tools" is:"toolPattern"`

	// Directories are the directories that the session may read beside its own. ConfigDir "" is the
	// runtime's home. With ConfigDiscovery the session takes MCP servers and skills from its
	// directory.
	Directories     []string `toml:"directories" is:"dir" base:"file"`
	ConfigDir       string   `toml:"config_dir" is:"noNUL" base:"file" user:"changed"`
	ConfigDiscovery bool     `toml:"config_discovery"`

	Agent          string   `toml:"agent" is:"noNUL"`          // of Agents, or of the runtime
	ExcludedAgents []string `toml:"excluded_agents" is:"text"` // of the runtime's own

	Skills           bool     `toml:"skills" default:"true"`
	SkillDirectories []string `toml:"skill_directories" is:"dir" base:"file"`
	DisabledSkills   []string `toml:"disabled_skills" is:"text"`

	DisabledMCPServers []string `toml:"disabled_mcp_servers" is:"text"`
	Streaming          bool     `toml:"streaming" default:"true"`
	// GitHubTokenEnv is the variable that holds a GitHub token; "": as the user is signed in.
	GitHubTokenEnv string `toml:"github_token_env" is:"keyEnv?" user:"changed"`

	SystemMessage SystemMessage `toml:"system_message"`
	Instructions  Instructions  `toml:"instructions"`
	ToolSearch    ToolSearch    `toml:"tool_search"`
	Infinite      Infinite      `toml:"infinite"`
	LargeOutput   LargeOutput   `toml:"large_output"`

	Provider Endpoint              `toml:"provider" user:"changed"`
	Agents   map[string]Agent      `toml:"agents" names:"agent"`
	MCP      map[string]SessionMCP `toml:"mcp" names:"server"`
}

// Efforts are the levels of reasoning, lowest first, for the key effort of a profile or an agent.
// Not every model has all.
var Efforts = []string{"low", "medium", "high", "xhigh", "max"}

// SystemMessage is the table system_message: the user's own text for the model, which follows or
// replaces the runtime's text. At most one of Text and File is set. Without them there is no such
// text.
type SystemMessage struct {
	Mode string `toml:"mode" of:"append,replace" default:"append"`
	Text string `toml:"text" is:"noNUL"`
	File string `toml:"file" is:"noNUL" base:"file"` // read when a session starts
}

// Values of system_message.mode: the text follows the runtime's own system message, or replaces it.
const (
	SystemAppend  = "append"
	SystemReplace = "replace"
)

// Instructions is the table instructions: files that tell the model how to work in a project, and a
// text of the person or organization that runs the gateway.
type Instructions struct {
	Enabled      bool     `toml:"enabled" default:"true"`
	OnDemand     bool     `toml:"on_demand" default:"true"` // files beside those it reads
	Directories  []string `toml:"directories" is:"dir" base:"file"`
	Organization string   `toml:"organization" is:"noNUL"` // a text of whoever runs the gateway
}

// ToolSearch is the table tool_search: with Threshold tools or more, the model searches for tools
// instead of getting all. Fewer tools, or Enabled false, means that it gets all.
type ToolSearch struct {
	Enabled   bool `toml:"enabled" default:"true"`
	Threshold int  `toml:"threshold" default:"30" range:"1,10000"`
}

// Infinite is the table infinite: how a conversation continues that fills its context. Compaction
// begins at one fraction of the context, and the session waits for it at the other.
type Infinite struct {
	Enabled             bool    `toml:"enabled" default:"true"`
	BackgroundThreshold float64 `toml:"background_threshold" default:"0.8" range:"0.01,1"`
	ExhaustionThreshold float64 `toml:"exhaustion_threshold" default:"0.95" range:"0.01,1"`
}

// LargeOutput is the table large_output: tool results of more than MaxBytes bytes go to a file that
// the model can read.
type LargeOutput struct {
	Enabled  bool `toml:"enabled" default:"true"`
	MaxBytes int  `toml:"max_bytes" default:"51200" range:"1,1073741824"`
}

// Agent is a table agents.NAME: an agent to which the model can give work. Prompt or
// PromptFile is set, not both.
type Agent struct {
	DisplayName string   `toml:"display_name"`
	Description string   `toml:"description"`
	Prompt      string   `toml:"prompt" is:"noNUL"`
	PromptFile  string   `toml:"prompt_file" is:"noNUL" base:"file"` // read when a session starts
	Tools       []string `toml:"tools" is:"toolPattern"`             // nil: all; empty: no tool
	Model       string   `toml:"model" is:"model?"`                  // "": the session's
	Effort      string   `toml:"effort" is:"effort"`
	Skills      []string `toml:"skills" is:"text"`
	Infer       bool     `toml:"infer" default:"true"` // the model may choose it
}

// SessionMCP is a table mcp.NAME: an MCP server of sessions. The runtime starts Command or
// connects to URL; one of them is set.
type SessionMCP struct {
	Command []string          `toml:"command" first:"must be the name of a program" is:"noNUL"`
	CWD     string            `toml:"cwd" is:"noNUL" base:"file"`
	Env     map[string]string `toml:"env" names:"env"`
	URL     string            `toml:"url" is:"http"`                           // instead of Command
	Headers map[string]string `toml:"headers" names:"header" is:"headerValue"` // of requests to URL
	Tools   []string          `toml:"tools" is:"text"`                         // nil: all
	Timeout time.Duration     `toml:"timeout" range:"0,1h"`
}

// DefaultProfile returns the settings of a session without a config file: the settings that the
// runtime does not decide. Each call returns a value of its own, which the caller may change.
func DefaultProfile() Profile { return defaults[Profile]() }

// prepare lets a nearer file or profile that has the text or the file override both.
func (m *SystemMessage) prepare(t *table) {
	switch text, file := t.has("text"), t.has("file"); {
	case text && !file:
		m.File = ""
	case file && !text:
		m.Text = ""
	}
}

func (a *Agent) check(t *table) {
	if t.has("tools") && a.Tools == nil {
		a.Tools = []string{}
	}
	if t.isGood("prompt") && t.isGood("prompt_file") && (a.Prompt == "") == (a.PromptFile == "") {
		t.faultHere("needs either prompt or prompt_file")
	}
}

func (s *SessionMCP) check(t *table) {
	if t.has("tools") && s.Tools == nil {
		s.Tools = []string{}
	}
	if t.isGood("command") && t.isGood("url") && (len(s.Command) == 0) == (s.URL == "") {
		t.faultHere("needs either command or url")
		return
	}
	for key, with := range map[string]bool{"cwd": s.URL == "", "env": s.URL == "",
		"headers": s.URL != ""} {
		if t.has(key) && !with {
			t.fault(key, "goes with %s",
				map[bool]string{true: "command", false: "url"}[s.URL != ""])
		}
	}
}

// checkTogether adds faults for values that exclude each other: at their places in t, or at t
// itself for values of another file.
func (p *Profile) checkTogether(t *table) {
	if p.SystemMessage.Text != "" && p.SystemMessage.File != "" {
		t.fault("system_message.file", "either text or file")
	}
	if f := p.Infinite; f.BackgroundThreshold >= f.ExhaustionThreshold {
		t.fault("infinite.background_threshold",
			"%v must be below exhaustion_threshold, which is %v", f.BackgroundThreshold,
			f.ExhaustionThreshold)
	}
	if len(p.AvailableTools) > 0 && len(p.ExcludedTools) > 0 {
		t.fault("excluded_tools",
			"available_tools lists all tools of the session: remove the tool there instead")
	}
	p.Provider.checkTogether(t)
	if m := p.Provider.Models; p.Model != "" && len(m) > 0 && !slices.Contains(m, p.Model) {
		t.fault("model", "%q is not one of models: %s", p.Model, strings.Join(m, ", "))
	}
}
