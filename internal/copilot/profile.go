package copilot

import (
	"cmp"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/statedir"
)

// Profiles of the config, and their form for the SDK.

// customTools names all tools of providers in a list of tools.
const customTools = "custom:*"

// fillProfile sets a zero profile to the default, and gives it the endpoint of ProviderURL if it
// lacks one.
func (o *Options) fillProfile() {
	if reflect.ValueOf(o.Profile).IsZero() {
		o.Profile = configs.DefaultProfile()
	}
	if o.ProviderURL != "" && o.Profile.Provider.URL == "" {
		o.Profile.Provider.URL, o.Profile.Provider.Models = o.ProviderURL, o.Models
	}
}

// usesGitHub reports whether a session may use GitHub's models.
func (o *Options) usesGitHub() bool {
	for _, p := range o.Profiles {
		if p.Provider.URL == "" {
			return true
		}
	}
	return o.Profile.Provider.URL == ""
}

// profileFor returns the profile that a request names, changed by the request's own options. The
// error is INVALID_JSON.
func (o *Options) profileFor(req gateway.StartRequest) (configs.Profile, error) {
	p := o.Profile
	if req.Profile != "" {
		named, ok := o.Profiles[req.Profile]
		if !ok {
			return p, invalidRequest("profile: there is no profile %q; %s", req.Profile,
				o.profileNames())
		}
		p = named
	}
	p.Model, p.Effort = cmp.Or(req.Model, p.Model), cmp.Or(req.Effort, p.Effort)
	if req.ProviderURL != "" {
		p.Provider = configs.DefaultProfile().Provider
		p.Provider.URL = req.ProviderURL
	}
	return p, nil
}

func (o *Options) profileNames() string {
	if len(o.Profiles) == 0 {
		return "tapgw.toml has none: write a table [copilot.profile.NAME]"
	}
	return "there are " + strings.Join(slices.Sorted(maps.Keys(o.Profiles)), ", ")
}

// runtimeHome returns the directory of the user's own files for the runtime.
func (s *session) runtimeHome() (string, error) {
	if home := cmp.Or(s.baseConfig.ConfigDirectory, s.o.Home); home != "" {
		return home, nil
	}
	return statedir.Home()
}

// newBaseConfig makes the part of a session's description that stays the same for its life. The
// files that a profile names are read now, once. Errors are INVALID_STATE.
func newBaseConfig(p configs.Profile, cwd, outputDir string) (*sdk.SessionConfig, error) {
	c := &sdk.SessionConfig{
		ClientName:                     clientName,
		WorkingDirectory:               cwd,
		AdditionalDirectories:          p.Directories,
		ConfigDirectory:                p.ConfigDir,
		EnableConfigDiscovery:          pointerUnless(p.ConfigDiscovery, false),
		ReasoningSummary:               sdk.ReasoningSummary(p.ReasoningSummary),
		ContextTier:                    sdk.ContextTier(p.ContextTier),
		AvailableTools:                 withCustom(p.AvailableTools),
		ExcludedTools:                  p.ExcludedTools,
		ExcludedBuiltInAgents:          p.ExcludedAgents,
		Agent:                          p.Agent,
		EnableSkills:                   pointerUnless(p.Skills, true),
		SkillDirectories:               p.SkillDirectories,
		DisabledSkills:                 p.DisabledSkills,
		DisabledMCPServers:             p.DisabledMCPServers,
		Streaming:                      new(p.Streaming),
		IncludeSubAgentStreamingEvents: new(false),
		LargeOutput: &sdk.LargeToolOutputConfig{
			OutputDirectory: outputDir, Enabled: pointerUnless(p.LargeOutput.Enabled, true),
		},
	}
	d := configs.DefaultProfile()
	if p.LargeOutput.MaxBytes != d.LargeOutput.MaxBytes {
		c.LargeOutput.MaxSizeBytes = new(int64(p.LargeOutput.MaxBytes))
	}
	if f := p.Infinite; f != d.Infinite {
		if !f.Enabled { // the runtime uses the thresholds even then
			f.BackgroundThreshold, f.ExhaustionThreshold = 1, 1
		}
		c.InfiniteSessions = &sdk.InfiniteSessionConfig{
			Enabled: &f.Enabled, BackgroundCompactionThreshold: &f.BackgroundThreshold,
			BufferExhaustionThreshold: &f.ExhaustionThreshold,
		}
	}
	if t := p.ToolSearch; t != d.ToolSearch {
		c.ToolSearch = &sdk.ToolSearchConfig{Enabled: &t.Enabled, DeferThreshold: &t.Threshold}
	}
	text, err := textOf("system_message.file", p.SystemMessage.Text, p.SystemMessage.File)
	if err != nil {
		return nil, err
	}
	c.SystemMessage = &sdk.SystemMessageConfig{Mode: p.SystemMessage.Mode, Content: text}
	if c.CustomAgents, err = customAgents(p.Agents); err != nil {
		return nil, err
	}
	c.MCPServers, err = mcpServers(p.MCP, cwd)
	return c, err
}

// pointerUnless returns nil if v is the default. The runtime then uses its own default, which
// differs by version and model.
func pointerUnless[T comparable](v, def T) *T {
	if v == def {
		return nil
	}
	return &v
}

// withCustom adds the providers' tools to a list of available tools, because most versions of the
// runtime have them in any case.
func withCustom(tools []string) []string {
	if len(tools) == 0 || slices.Contains(tools, customTools) {
		return tools
	}
	return append(slices.Clip(tools), customTools)
}

// textOf returns a text of the config, or the content of the file that the config names instead.
func textOf(key, text, file string) (string, error) {
	if file == "" {
		return text, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", invalidState("reading %s in [copilot] of tapgw.toml: %v", key, err)
	}
	return string(data), nil
}

func customAgents(agents map[string]configs.Agent) ([]sdk.CustomAgentConfig, error) {
	var list []sdk.CustomAgentConfig
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		a := agents[name]
		prompt, err := textOf("agents."+name+".prompt_file", a.Prompt, a.PromptFile)
		if err != nil {
			return nil, err
		}
		list = append(list, sdk.CustomAgentConfig{
			Name: name, DisplayName: a.DisplayName, Description: a.Description, Prompt: prompt,
			Tools: a.Tools, Model: a.Model, ReasoningEffort: a.Effort, Skills: a.Skills,
			Infer: pointerUnless(a.Infer, true),
		})
	}
	return list, nil
}

func mcpServers(
	servers map[string]configs.SessionMCP, cwd string,
) (map[string]sdk.MCPServerConfig, error) {
	var made map[string]sdk.MCPServerConfig
	for name, m := range servers {
		if made == nil {
			made = map[string]sdk.MCPServerConfig{}
		}
		timeout := int(m.Timeout.Milliseconds())
		if m.URL == "" {
			made[name] = sdk.MCPStdioServerConfig{
				Command: m.Command[0], Args: m.Command[1:], Env: m.Env,
				WorkingDirectory: cmp.Or(m.CWD, cwd), Tools: m.Tools, Timeout: timeout,
			}
			continue
		}
		headers, err := expand("mcp."+name+".headers", m.Headers)
		if err != nil {
			return nil, err
		}
		made[name] = sdk.MCPHTTPServerConfig{URL: m.URL, Headers: headers, Tools: m.Tools,
			Timeout: timeout}
	}
	return made, nil
}

// expand replaces references to environment variables in headers. The error is INVALID_STATE for an
// unset variable.
func expand(key string, headers map[string]string) (map[string]string, error) {
	var missing error
	out := maps.Clone(headers)
	for name, value := range out {
		expanded, unset := configs.ExpandVariables(value)
		if unset != "" {
			missing = unsetVariable(key+"."+name, unset)
		}
		out[name] = expanded
	}
	return out, missing
}
