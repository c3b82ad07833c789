package configs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A file with every key of a profile, and its values.
const everyKey = `
model = "m"
effort = "xhigh"
reasoning_summary = "concise"
context_tier = "long_context"
available_tools = ["bash", "mcp:*"]
directories = ["../lib"]
config_dir = "state"
config_discovery = true
agent = "reviewer"
excluded_agents = ["explore"]
skills = false
skill_directories = ["skills"]
disabled_skills = ["pdf"]
disabled_mcp_servers = ["github"]
streaming = false
github_token_env = "WORK_TOKEN"
system_message = { mode = "replace", file = "system.md" }
instructions = { enabled = false, on_demand = false, directories = ["/etc/how"], organization = "Be kind." }
tool_search = { enabled = false, threshold = 5 }
infinite = { enabled = false, background_threshold = 0.5, exhaustion_threshold = 1 }
large_output = { enabled = false, max_bytes = 9 }
provider = { kind = "azure", url = "https://x.example", wire = "responses", transport = "websockets", api_version = "2024-10-21", key_env = "K", headers = { "X-Team" = "${TEAM}" }, models = ["m"], model_id = "gpt-5", wire_model = "deployed", max_prompt_tokens = 7, max_output_tokens = 8 }
mcp.files = { command = ["mcp-files", "."], cwd = "srv", env = { A = "b" }, tools = [], timeout = "3s" }
mcp.far = { url = "https://t.example/mcp", headers = { Authorization = "Bearer ${T}" }, tools = ["a"] }
agents.reviewer = { display_name = "R", description = "d", prompt = "p", tools = [], model = "m2", effort = "low", skills = ["s"], infer = false }
agents.writer = { prompt_file = "w.md" }
`

func wholeProfile(dir string) Profile {
	return Profile{
		Model: "m", Effort: "xhigh", ReasoningSummary: "concise", ContextTier: "long_context",
		AvailableTools: []string{"bash", "mcp:*"},
		Directories: []string{
			filepath.Join(filepath.Dir(dir), "lib"),
		}, ConfigDir: filepath.Join(dir, "state"), ConfigDiscovery: true,
		Agent: "reviewer", ExcludedAgents: []string{"explore"},
		SkillDirectories: []string{
			filepath.Join(dir, "skills"),
		}, DisabledSkills: []string{"pdf"}, DisabledMCPServers: []string{"github"},
		GitHubTokenEnv: "WORK_TOKEN",
		SystemMessage:  SystemMessage{Mode: SystemReplace, File: filepath.Join(dir, "system.md")},
		Instructions:   Instructions{Directories: []string{"/etc/how"}, Organization: "Be kind."},
		ToolSearch:     ToolSearch{Threshold: 5},
		Infinite:       Infinite{BackgroundThreshold: 0.5, ExhaustionThreshold: 1},
		LargeOutput:    LargeOutput{MaxBytes: 9},
		Provider: Endpoint{
			Kind: EndpointAzure, URL: "https://x.example", Wire: WireResponses,
			Transport: TransportWebSockets, APIVersion: "2024-10-21", KeyEnv: "K",
			Headers: map[string]string{"X-Team": "${TEAM}"},
			Models:  []string{"m"},
			ModelID: "gpt-5", WireModel: "deployed", MaxPromptTokens: 7, MaxOutputTokens: 8,
		},
		MCP: map[string]SessionMCP{
			"files": {
				Command: []string{"mcp-files", "."},
				CWD:     filepath.Join(dir, "srv"),
				Env:     map[string]string{"A": "b"},
				Tools:   []string{},
				Timeout: 3 * time.Second,
			},
			"far": {
				URL:     "https://t.example/mcp",
				Headers: map[string]string{"Authorization": "Bearer ${T}"},
				Tools:   []string{"a"},
			},
		},
		Agents: map[string]Agent{
			"reviewer": {
				DisplayName: "R",
				Description: "d",
				Prompt:      "p",
				Tools:       []string{},
				Model:       "m2",
				Effort:      "low",
				Skills:      []string{"s"},
			},
			"writer": {PromptFile: filepath.Join(dir, "w.md"), Infer: true},
		},
	}
}

// Every key says the same in [copilot], in a profile, and in a profile that takes
// it from [copilot].
func TestProfileTakesEveryKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tapgw.toml")
	want := wholeProfile(dir)
	for name, text := range map[string]string{
		"in a profile":   "[copilot.profile.p]\n" + everyKey,
		"from [copilot]": "[copilot]\n" + everyKey + "\n[copilot.profile.p]\n",
	} {
		t.Run(name, func(t *testing.T) {
			c, faults := Parse(file, []byte(text))
			if len(faults) > 0 {
				t.Fatalf("faults: %v, want none", lines(faults))
			}
			if diff := cmp.Diff(want, c.Copilot.Profiles["p"]); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A profile changes what it says and nothing else, neither in [copilot] nor in
// another profile.
func TestProfilesInherit(t *testing.T) {
	c, faults := Parse("/etc/tapgw.toml", []byte(`
[copilot]
provider_url = "http://127.0.0.1:1/v1"
models = ["a", "b"]
model = "a"
excluded_tools = ["bash"]
system_message.text = "everywhere"
mcp.one.command = ["one"]
[copilot.profile.same]
[copilot.profile.more]
model = "b"
excluded_tools = []
system_message.file = "f.md"
mcp.two.url = "http://127.0.0.1:2/"
[copilot.profile.elsewhere]
model = "c"
provider.url = "http://127.0.0.1:3/v1"
[copilot.profile.github]
model = "gpt"
provider.url = ""
[copilot.profile.token]
provider.bearer_token_env = "T"
`))
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", lines(faults))
	}
	got := c.Copilot.Profiles
	if diff := cmp.Diff(c.Copilot.Profile, got["same"]); diff != "" {
		t.Errorf("a profile that says nothing:\n%s", diff)
	}
	more := got["more"]
	if more.Model != "b" || len(more.ExcludedTools) != 0 || more.SystemMessage.Text != "" ||
		more.SystemMessage.File != "/etc/f.md" ||
		len(more.MCP) != 2 {
		t.Errorf(`more: %+v, want Model "b", none, Text "", File "/etc/f.md" and 2 of them`, more)
	}
	if base := c.Copilot.Profile; base.Model != "a" || len(base.MCP) != 1 ||
		base.SystemMessage.Text != "everywhere" || base.Provider.KeyEnv != "TAP_MODEL_KEY" {
		t.Errorf(
			`[copilot]: %+v, want Model "a", 1 of them, Text "everywhere" and KeyEnv "TAP_MODEL_KEY"`, base)
	}
	// The key of one endpoint must not go to another.
	if e := got["elsewhere"].Provider; e.KeyEnv != "" || len(e.Models) != 0 ||
		e.URL != "http://127.0.0.1:3/v1" {
		t.Errorf(`another endpoint: %+v, want KeyEnv "", none and URL "http://127.0.0.1:3/v1"`, e)
	}
	if diff := cmp.Diff(defaults[Endpoint](), got["github"].Provider); diff != "" {
		t.Errorf("GitHub's models again:\n%s", diff)
	}
	if e := got["token"].Provider; e.KeyEnv != "" || e.BearerTokenEnv != "T" ||
		e.URL != "http://127.0.0.1:1/v1" {
		t.Errorf(
			`a token instead of the key: %+v, want KeyEnv "", BearerTokenEnv "T" and URL "http://127.0.0.1:1/v1"`,
			e,
		)
	}
}

// A profile takes what the nearest file says in [copilot], and a project's profile
// comes over the user's.
func TestProfilesOfTwoFiles(t *testing.T) {
	dir := t.TempDir()
	user, project := filepath.Join(dir, "user.toml"), filepath.Join(dir, "project.toml")
	write := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(
		user,
		"[copilot]\nmodel='u'\neffort='low'\nprovider_url='http://127.0.0.1:1/v1'\n[copilot.profile.p]\nexcluded_tools=['bash']\n",
	)
	write(project, "[copilot]\nmodel='p'\n[copilot.profile.p]\nstreaming=false\n")
	c, err := withProject(user, project)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Copilot.Profiles["p"]
	if p.Model != "p" || p.Effort != "low" || p.Streaming ||
		!cmp.Equal(p.ExcludedTools, []string{"bash"}) ||
		p.Provider.URL != "http://127.0.0.1:1/v1" {
		t.Errorf(`%+v, want "p", effort low, no streaming, without bash, at http://127.0.0.1:1/v1`,
			p)
	}
	// What goes together only in one of them is a fault of the file where it shows.
	write(project, "[copilot]\n\navailable_tools=['view']\n")
	_, err = withProject(user, project)
	faults, _ := err.(Faults) //nolint:errorlint // Load returns it as it is
	if len(faults) != 1 || faults[0].File != user || faults[0].Line != 6 {
		t.Errorf("%v, want 1 of them, File %v and Line 6", err, user)
	}
}

// faultTest is a file with faults and the beginnings of their messages.
type faultTest struct {
	name, text string
	want       []string
}

func checkFaults(t *testing.T, tests []faultTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := Parse("f.toml", []byte(tt.text))
			matchFaults(t, faults, tt.want)
		})
	}
}

func TestProfileFaults(t *testing.T) {
	checkFaults(t, []faultTest{
		{
			"unknown key",
			"[copilot.profile.p]\nmodle = 'x'",
			[]string{"2:1: unknown key copilot.profile.p.modle: there are model, effort,"},
		},
		{
			"keys of the gateway",
			"[copilot.profile.p]\nmax_rounds = 3\ncli = 'x'",
			[]string{"2:1: unknown key copilot.profile.p.max_rounds",
				"3:1: unknown key copilot.profile.p.cli"},
		},
		{"name", "[copilot.profile.'a b']\n", []string{`1:18: copilot.profile."a b"`}},
		{
			"effort",
			"[copilot]\neffort = 'huge'",
			[]string{`2:1: copilot.effort: "huge" is not one of "", "low", "medium", "high", "xhigh", "max"`},
		},
		{
			"both lists of tools",
			"[copilot]\navailable_tools=['a']\n[copilot.profile.p]\nexcluded_tools=['b']",
			[]string{"4:1: copilot.profile.p.excluded_tools: available_tools lists all tools of the session"},
		},
		{
			"both texts",
			"[copilot.system_message]\ntext='a'\nfile='b'",
			[]string{"3:1: copilot.system_message.file: either text or file"},
		},
		{
			"token in place of its name",
			"[copilot]\ngithub_token_env='ghp_sec-ret'",
			[]string{"is not the name of an environment variable"},
		},
		{"host with scheme", "[copilot]\ngithub_host='https://octo.ghe.com'",
			[]string{"is not a host name"}},
		{
			"tool",
			"[copilot]\nexcluded_tools=['a b']",
			[]string{`2:17: copilot.excluded_tools[0]: "a b" never matches`},
		},
	})
}

func TestInfiniteSessionFaults(t *testing.T) {
	checkFaults(t, []faultTest{
		{
			"thresholds",
			"[copilot.infinite]\nbackground_threshold=0.96",
			[]string{
				"2:1: copilot.infinite.background_threshold: 0.96 must be below exhaustion_threshold, which is 0.95",
			},
		},
		{
			"threshold",
			"[copilot.infinite]\nbackground_threshold=80",
			[]string{"2:1: copilot.infinite.background_threshold: 80 is not from 0.01 to 1"},
		},
		{
			"threshold of words",
			"[copilot.infinite]\nexhaustion_threshold='all'",
			[]string{"must be a number, found a string"},
		},
		{
			"not a number",
			"[copilot.infinite]\nexhaustion_threshold=nan",
			[]string{"2:1: copilot.infinite.exhaustion_threshold: NaN is not from"},
		},
	})
}

func TestAgentAndMCPFaults(t *testing.T) {
	checkFaults(t, []faultTest{
		{
			"agent without prompt",
			"[copilot.agents.a]\ndescription='d'",
			[]string{"copilot.agents.a: needs either prompt or prompt_file"},
		},
		{"MCP server of nothing", "[copilot.mcp.a]\ntools=[]",
			[]string{"copilot.mcp.a: needs either command or url"}},
		{
			"MCP server of both",
			"[copilot.mcp.a]\ncommand=['x']\nurl='http://h/'",
			[]string{"copilot.mcp.a: needs either command or url"},
		},
		{
			"headers of a program",
			"[copilot.mcp.a]\ncommand=['x']\nheaders={A='b'}",
			[]string{"3:1: copilot.mcp.a.headers: goes with url"},
		},
		{
			"environment of a URL",
			"[copilot.mcp.a]\nurl='http://h/'\nenv={A='b'}",
			[]string{"3:1: copilot.mcp.a.env: goes with command"},
		},
	})
}

func TestEndpointFaults(t *testing.T) {
	checkFaults(t, []faultTest{
		{
			"kind",
			"[copilot.provider]\nurl='http://h/'\nkind='google'",
			[]string{`3:1: copilot.provider.kind: "google" is not one of "openai", "azure", "anthropic"`},
		},
		{
			"kind without URL",
			"[copilot.provider]\nkind='azure'",
			[]string{"2:1: copilot.provider.kind: needs url beside it"},
		},
		{
			"key without URL",
			"[copilot.provider]\nkey_env='K'",
			[]string{"2:1: copilot.provider.key_env: needs url beside it"},
		},
		{
			"limits without URL",
			"[copilot.profile.p.provider]\nmax_prompt_tokens=1",
			[]string{"2:1: copilot.profile.p.provider.max_prompt_tokens: needs url"},
		},
		{
			"version of OpenAI",
			"[copilot.provider]\nurl='http://h/'\napi_version='1'",
			[]string{`3:1: copilot.provider.api_version: goes with kind = "azure" only`},
		},
		{
			"wire of Anthropic",
			"[copilot.provider]\nurl='http://h/'\nkind='anthropic'\nwire='responses'",
			[]string{`4:1: copilot.provider.wire: does not go with kind = "anthropic"`},
		},
		{
			"sockets of completions",
			"[copilot.provider]\nurl='http://h/'\ntransport='websockets'",
			[]string{`3:1: copilot.provider.transport: "websockets" goes with wire = "responses" only`},
		},
		{
			"key and token",
			"[copilot.provider]\nurl='http://h/'\nkey_env='K'\nbearer_token_env='T'",
			[]string{"4:1: copilot.provider.bearer_token_env: either key_env or bearer_token_env"},
		},
		{
			"two URLs",
			"[copilot]\nprovider_url='http://h/'\nprovider.url='http://i/'",
			[]string{"3:10: copilot.provider.url: provider_url names another endpoint"},
		},
		{
			"header",
			"[copilot.provider]\nurl='http://h/'\nheaders={'a b'='c'}",
			[]string{`copilot.provider.headers."a b": is not a header`},
		},
		{
			"header's variable",
			"[copilot.provider]\nurl='http://h/'\nheaders={A='${sec-ret}'}",
			[]string{"copilot.provider.headers.A: ${sec-ret} is not the name of an environment variable"},
		},
		{"URL with a key", "[copilot.provider]\nurl='http://h/?key=secret'",
			[]string{"nothing behind a ?"}},
		{
			"model that is not offered",
			"[copilot]\nprovider_url='http://h/'\nmodels=['a']\n[copilot.profile.p]\nmodel='b'",
			[]string{`5:1: copilot.profile.p.model: "b" is not one of models: a`},
		},
		{"negative", "[copilot.provider]\nurl='http://h/'\nmax_output_tokens=-1",
			[]string{"-1 is not from 0 to"}},
	})
}

// A project's file says neither where the traffic goes nor with whose rights.
func TestProjectSetsNoEndpoint(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tapgw.toml")
	for name, text := range map[string]string{
		"endpoint":               "[copilot.provider]\nurl = 'http://evil.example/v1'\n",
		"endpoint of a profile":  "[copilot.profile.p]\nprovider.url = 'http://evil.example/v1'\n",
		"token":                  "[copilot]\ngithub_token_env = 'AWS_SECRET'\n",
		"token of a profile":     "[copilot.profile.p]\ngithub_token_env = 'AWS_SECRET'\n",
		"host":                   "[copilot]\ngithub_host = 'evil.example'\n",
		"config directory":       "[copilot]\nconfig_dir = 'x'\n",
		"directory of a profile": "[copilot.profile.p]\nconfig_dir = 'x'\n",
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := withProject("", file)
			faults, _ := err.(Faults) //nolint:errorlint // Load returns it as it is
			if len(faults) != 1 || faults[0].Line == 0 || !cmp.Equal(faults[0].File, file) {
				t.Errorf("%v, want one with a line of %s", err, file)
			}
		})
	}
	// What it leaves alone stays the user's.
	user := filepath.Join(dir, "user.toml")
	for path, text := range map[string]string{user: "[copilot.provider]\nurl='http://127.0.0.1:1/v1'\nkey_env='K'\n", file: "[copilot]\nmodel='m'\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := withProject(user, file)
	if err != nil || c.Copilot.Provider.URL != "http://127.0.0.1:1/v1" ||
		c.Copilot.Provider.KeyEnv != "K" || c.Copilot.Model != "m" {
		t.Errorf(`%+v, %v, want no error, URL "http://127.0.0.1:1/v1", KeyEnv "K" and Model "m"`,
			c.Copilot, err)
	}
}

// An endpoint that a flag names takes the place of the file's, in profiles too.
func TestUseEndpoint(t *testing.T) {
	c, faults := Parse(
		"f.toml",
		[]byte(
			"[copilot.provider]\nurl='http://h/v1'\nkind='azure'\nkey_env='K'\n[copilot.profile.same]\n[copilot.profile.own]\nprovider.url='http://own/v1'\n",
		),
	)
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", lines(faults))
	}
	c.Copilot.UseEndpoint("http://flag/v1", "F")
	want := defaults[Endpoint]()
	want.URL, want.KeyEnv = "http://flag/v1", "F"
	endpoints := map[string]Endpoint{"[copilot]": c.Copilot.Provider,
		"same": c.Copilot.Profiles["same"].Provider}
	for name, got := range endpoints {
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if got := c.Copilot.Profiles["own"].Provider; got.URL != "http://own/v1" || got.KeyEnv != "" {
		t.Errorf(`an endpoint of a profile's own: %+v, want URL "http://own/v1" and KeyEnv ""`, got)
	}
}
