//go:build runtime

package copilot

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// withProfile makes a profile that of every session, on the scripted model.
func withProfile(change func(p *configs.Profile)) func(*Options) {
	return func(o *Options) {
		o.Profile = configs.DefaultProfile()
		change(&o.Profile)
	}
}

func (g *rig) lastRequest() *scriptmodel.Request {
	g.t.Helper()
	requests := g.model.Requests()
	if len(requests) == 0 {
		g.t.Fatal("the model was asked nothing, want a request")
	}
	return requests[len(requests)-1]
}

func writeFile(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProfileSystemMessage(t *testing.T) {
	file := writeFile(t, filepath.Join(t.TempDir(), "system.md"), "You are a teapot.")
	for name, tt := range map[string]struct {
		message configs.SystemMessage
		whole   bool
	}{
		"appended": {configs.SystemMessage{Mode: configs.SystemAppend,
			Text: "You are a teapot."}, false},
		"appended from file": {configs.SystemMessage{Mode: configs.SystemAppend, File: file},
			false},
		"replaced": {configs.SystemMessage{Mode: configs.SystemReplace,
			Text: "You are a teapot."}, true},
		"replaced from file": {configs.SystemMessage{Mode: configs.SystemReplace, File: file},
			true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, withProfile(func(p *configs.Profile) { p.SystemMessage = tt.message }))
			s := g.start()
			e := &editor{marks: map[string]string{"guidelines": "STATE"}}
			s.transform, s.varies = e.transform, true
			for range 2 { // the runtime makes it again for the second
				s.turn("hello")
			}
			system := g.lastRequest().System()
			if tt.whole {
				if strings.TrimSpace(system) != "You are a teapot." || s.info.CachesPrompt {
					t.Errorf(
						`the model was told %q; transforms %v, want "You are a teapot." and no transforms`,
						system, s.info.CachesPrompt,
					)
				}
				return
			}
			if !strings.Contains(system, "You are a teapot.") ||
				!strings.Contains(system, "STATE") || len(system) < 1000 {
				t.Errorf(
					`the model was told %q, want "You are a teapot." and "STATE" in 1000 bytes or more`, system)
			}
		})
	}
	t.Run("file is gone", func(t *testing.T) {
		g := newRig(t, withProfile(func(p *configs.Profile) { p.SystemMessage.File = file + "x" }))
		err := g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd, Model: scriptmodel.ModelID}, nil)
		if err == nil || !strings.Contains(err.Error(), "system_message.file") {
			t.Errorf(`error: %v, want an error and "system_message.file" in it`, err)
		}
	})
}

func TestProfileTools(t *testing.T) {
	for name, tt := range map[string]struct {
		change    func(p *configs.Profile)
		has, lack []string
	}{
		"available": {func(p *configs.Profile) { p.AvailableTools = []string{"view"} }, []string{
			"view", "quick",
		}, []string{"bash", "edit"}},
		"only those of ours": {func(p *configs.Profile) {
			p.AvailableTools = []string{"custom:*"}
		}, []string{
			"quick", "slow",
		}, []string{"bash", "view"}},
		"excluded": {func(p *configs.Profile) { p.ExcludedTools = []string{"bash"} }, []string{
			"view", "quick", "slow",
		}, []string{"bash"}},
		"excluded, ours too": {func(p *configs.Profile) {
			p.ExcludedTools = []string{"custom:slow"}
		}, []string{
			"view", "bash", "quick",
		}, []string{"slow"}},
		"all where none is in": {func(*configs.Profile) {},
			[]string{"bash", "view", "quick", "slow"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, withProfile(tt.change))
			s := g.start()
			e := &editor{marks: map[string]string{"guidelines": "STATE"}}
			s.transform, s.varies = e.transform, true
			s.tool("quick", text("here I am"))
			s.tool("slow", text("me too"))
			s.turn("hello")
			s.turn("hello again")
			r := g.lastRequest()
			for _, tool := range tt.has {
				if !r.HasTool(tool) {
					t.Errorf("the tools are %v, want %s among them", r.ToolNames(), tool)
				}
			}
			for _, tool := range tt.lack {
				if r.HasTool(tool) {
					t.Errorf("tool %s is offered, want it left out", tool)
				}
			}
			if !strings.Contains(r.System(), "STATE (2)") {
				t.Errorf(
					`the second prompt has the sections of the first: %q, want "STATE (2)" in it`,
					between(r.System(), "STATE", ")"),
				)
			}
		})
	}
}

func TestProfileEffort(t *testing.T) {
	for name, tt := range map[string]struct {
		wire, want string
	}{
		"completions": {configs.WireCompletions, `"reasoning_effort":"high"`},
		"responses":   {configs.WireResponses, `"effort":"high"`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, func(o *Options) {
				o.Profile = configs.DefaultProfile()
				o.Profile.Provider.URL, o.Profile.Provider.Wire = o.ProviderURL, tt.wire
				o.Profile.Effort = "high"
			})
			s := g.start()
			s.turn("hello")
			if body := string(g.lastRequest().Body); !strings.Contains(strings.ReplaceAll(body, " ",
				""), tt.want) {
				t.Errorf("got %.300s, want %s in it", body, tt.want)
			}
		})
	}
}

// What the request says counts over the profile that it names, and that over what
// holds for all.
func TestProfileOfARequest(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.Profile = configs.DefaultProfile()
		o.Profile.Model = "base"
		o.Profile.Provider.URL = o.ProviderURL
		named := o.Profile
		named.Model, named.ExcludedTools = "named", []string{"bash"}
		o.Profiles = map[string]configs.Profile{"named": named}
	})
	for _, tt := range []struct {
		req  gateway.StartRequest
		want string
		bash bool
	}{
		{gateway.StartRequest{}, "base", true},
		{gateway.StartRequest{Profile: "named"}, "named", false},
		{gateway.StartRequest{Profile: "named", Model: "asked"}, "asked", false},
	} {
		s := g.start(func(r *gateway.StartRequest) {
			r.Profile, r.Model = tt.req.Profile, tt.req.Model
		})
		s.turn("hello")
		if r := g.lastRequest(); r.Model != tt.want || r.HasTool("bash") != tt.bash {
			t.Errorf(
				"%+v: model %q, bash %v, want Model %q and %v",
				tt.req, r.Model, r.HasTool("bash"), tt.want, tt.bash,
			)
		}
	}
	err := g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd, Profile: "nobody"}, nil)
	if err == nil ||
		!strings.Contains(err.Error(), `profile: there is no profile "nobody"; there are named`) {
		t.Errorf("error: %v, want an error and %q in it", err,
			`profile: there is no profile "nobody"; there are named`)
	}
	err = g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd, Effort: "huge"}, nil)
	if err == nil ||
		!strings.Contains(err.Error(),
			`effort: there is no "huge"; there are low, medium, high, xhigh, max`) {
		t.Errorf(
			"error: %v, want an error and %q in it",
			err, `effort: there is no "huge"; there are low, medium, high, xhigh, max`,
		)
	}
}

func TestProfileStreaming(t *testing.T) {
	for _, streaming := range []bool{true, false} {
		g := newRig(t, withProfile(func(p *configs.Profile) { p.Streaming = streaming }))
		s := g.start()
		s.turn("say some words")
		s.mu.Lock()
		deltas := s.count(gateway.OnMessage)
		s.mu.Unlock()
		if (deltas > 0) != streaming || s.lastSaid() != "You said: say some words" {
			t.Errorf(
				`streaming %v: %d deltas, %q, want %v and "You said: say some words"`,
				streaming, deltas, s.lastSaid(), streaming,
			)
		}
	}
}

func TestProfileLargeOutput(t *testing.T) {
	long := strings.Repeat("0123456789 ", 300)
	for name, tt := range map[string]struct {
		change func(p *configs.Profile)
		whole  bool
	}{
		"under the size": {func(*configs.Profile) {}, true},
		"over the size":  {func(p *configs.Profile) { p.LargeOutput.MaxBytes = 1000 }, false},
		"not to be there": {func(p *configs.Profile) {
			p.LargeOutput = configs.LargeOutput{MaxBytes: 1000}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, withProfile(tt.change))
			s := g.start()
			s.tool("long", text(long))
			s.turn("call:long")
			if got := g.lastRequest().LastResult(); strings.Contains(got, long) != tt.whole {
				t.Errorf("the model was given %d bytes: %.200s, want whole: %v", len(got), got,
					tt.whole)
			}
		})
	}
}

func TestProfileInstructions(t *testing.T) {
	const (
		ofProject      = "The project says hello."
		ofDirectory    = "The directory says hello."
		ofOrganization = "The organization says hello."
	)
	more := t.TempDir()
	writeFile(t, filepath.Join(more, "AGENTS.md"), ofDirectory)
	writeFile(
		t, filepath.Join(more, ".github", "instructions", "more.instructions.md"),
		"---\napplyTo: \"**\"\n---\n"+ofDirectory,
	)
	for name, tt := range map[string]struct {
		change func(i *configs.Instructions)
		want   []string
	}{
		"of the project": {func(*configs.Instructions) {}, []string{ofProject}},
		"none":           {func(i *configs.Instructions) { i.Enabled = false }, nil},
		"of a directory": {func(i *configs.Instructions) {
			i.Directories = []string{more}
		}, []string{
			ofProject, ofDirectory,
		}},
		"of the organization": {
			func(i *configs.Instructions) { i.Organization = ofOrganization },
			[]string{ofProject, ofOrganization},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, withProfile(func(p *configs.Profile) { tt.change(&p.Instructions) }))
			writeFile(t, filepath.Join(g.cwd, "AGENTS.md"), ofProject)
			s := g.start()
			s.turn("hello")
			body := string(g.lastRequest().Body)
			for _, said := range []string{ofProject, ofDirectory, ofOrganization} {
				if strings.Contains(body, said) != slices.Contains(tt.want, said) {
					t.Errorf(
						"%q is said: %v, want %v",
						said, strings.Contains(body, said), slices.Contains(tt.want, said),
					)
				}
			}
		})
	}
}

func TestProfileSkills(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"brewing", "pouring"} {
		writeFile(
			t, filepath.Join(dir, name, "SKILL.md"),
			fmt.Sprintf(
				"---\nname: %s\ndescription: Knows all about %s tea.\n---\nFirst, boil water.\n",
				name, name),
		)
	}
	for name, tt := range map[string]struct {
		change           func(p *configs.Profile)
		brewing, pouring bool
	}{
		"of a directory": {func(*configs.Profile) {}, true, true},
		"one left out": {func(p *configs.Profile) {
			p.DisabledSkills = []string{"pouring"}
		}, true, false},
		"none": {func(p *configs.Profile) { p.Skills = false }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, withProfile(func(p *configs.Profile) {
				p.SkillDirectories = []string{dir}
				tt.change(p)
			}))
			s := g.start()
			s.turn("hello")
			body := string(g.lastRequest().Body)
			brewing, pouring := strings.Contains(body, "about brewing tea"),
				strings.Contains(body, "about pouring tea")
			if brewing != tt.brewing || pouring != tt.pouring {
				t.Errorf("brewing %v, pouring %v, want %v, %v", brewing, pouring, tt.brewing,
					tt.pouring)
			}
		})
	}
}

func TestProfileAgents(t *testing.T) {
	prompt := writeFile(t, filepath.Join(t.TempDir(), "p.md"), "You taste tea, and nothing else.")
	agents := map[string]configs.Agent{
		"taster": {Description: "Tastes what was brewed.", PromptFile: prompt, Infer: true},
	}
	t.Run("to hand work to", func(t *testing.T) {
		g := newRig(t, withProfile(func(p *configs.Profile) { p.Agents = agents }))
		s := g.start()
		s.turn("hello")
		if body := string(g.lastRequest().Body); !strings.Contains(body,
			"Tastes what was brewed.") ||
			strings.Contains(body, "and nothing else") {
			t.Errorf(
				"the model knows the agent: %v, its prompt: %v, want the description only",
				strings.Contains(body, "Tastes"), strings.Contains(body, "nothing else"),
			)
		}
	})
	t.Run("to begin with", func(t *testing.T) {
		g := newRig(t, withProfile(func(p *configs.Profile) {
			p.Agents, p.Agent = agents, "taster"
		}))
		s := g.start()
		s.turn("hello")
		if body := string(g.lastRequest().Body); !strings.Contains(body, "and nothing else") {
			t.Error("the request lacks the agent's prompt, want it there")
		}
	})
}

// A conversation is compacted where the profile says so, and not where it says not,
// although it fills more of its context than the runtime would let it by itself.
func TestProfileInfinite(t *testing.T) {
	for name, tt := range map[string]struct {
		infinite configs.Infinite
		words    int
		want     bool
	}{
		"from a threshold on": {
			configs.Infinite{Enabled: true, BackgroundThreshold: 0.05, ExhaustionThreshold: 0.9}, 1,
			true,
		},
		"not at all": {configs.Infinite{BackgroundThreshold: 0.05, ExhaustionThreshold: 0.9}, 420,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(
				t,
				withProfile(func(p *configs.Profile) {
					p.Provider.MaxPromptTokens, p.Infinite = 16_000, tt.infinite
				}),
			)
			s := g.start()
			full := func() bool {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.window.Tokens >= 8*s.window.Limit/10
			}
			for n := 0; n < 3 || !tt.want && n < 10 && !full(); n++ {
				s.turn("remember " + strings.Repeat("some words and ", tt.words))
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			got := slices.ContainsFunc(
				s.runtime, func(e adminapi.RuntimeEvent) bool {
					return e.Type == "session.compaction_start"
				},
			)
			if got != tt.want || !tt.want && s.window.Tokens < 8*s.window.Limit/10 {
				t.Errorf(
					"compacted: %v; of %d tokens %d are used, want %v at 8 tenths",
					got, s.window.Limit, s.window.Tokens, tt.want,
				)
			}
		})
	}
}

// What shows in nothing that the model reads is in what the runtime is told.
func TestProfileOnTheWire(t *testing.T) {
	var record string
	g := newRig(t, func(o *Options) {
		dir := t.TempDir()
		record = filepath.Join(dir, "told")
		script := filepath.Join(dir, "copilot")
		if err := os.WriteFile(script,
			[]byte(fmt.Sprintf("#!/bin/bash\nexec %q \"$@\" < <(exec tee %q 2>/dev/null)\n", o.CLI,
				record)), 0o755); err != nil {
			t.Fatal(err)
		}
		o.CLI = script
		o.Trusts = func(string) bool { return true }
	}, withProfile(func(p *configs.Profile) {
		p.ReasoningSummary, p.ContextTier = "concise", "long_context"
		p.Directories, p.ConfigDir, p.ConfigDiscovery = []string{"/srv"},
			filepath.Join(t.TempDir(), "config"), true
		p.ExcludedAgents = []string{"explore"}
		p.ToolSearch = configs.ToolSearch{Enabled: true, Threshold: 5}
		p.Instructions.OnDemand = false
		p.Infinite.BackgroundThreshold = 0.5
		p.LargeOutput.MaxBytes = 1234
		p.Provider.MaxPromptTokens, p.Provider.MaxOutputTokens = 4321, 321
	}))
	s := g.start()
	s.turn("hello")
	data, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	told := string(data)
	before, _, ok := strings.Cut(told, `"method":"session.create"`)
	if !ok {
		t.Fatalf("got %.500s, want the id of a session that was created", told)
	}
	var params map[string]protocol.Raw
	var request struct {
		Params map[string]json.RawMessage `json:"params"`
	}
	decoder := json.NewDecoder(strings.NewReader(told[strings.LastIndex(before, "{\"jsonrpc\""):]))
	if err := decoder.Decode(&request); err != nil {
		t.Fatal(err)
	}
	params = map[string]protocol.Raw{}
	for k, v := range request.Params {
		params[k] = protocol.Raw(v)
	}
	for key, want := range map[string]string{
		"reasoningSummary": `"concise"`, "contextTier": `"long_context"`,
		"additionalDirectories": `["/srv"]`, "enableConfigDiscovery": `true`,
		"excludedBuiltinAgents":              `["explore"]`,
		"toolSearch":                         `{"enabled":true,"deferThreshold":5}`,
		"enableOnDemandInstructionDiscovery": `false`,
		"skipCustomInstructions":             `true`,
		"enableFileHooks":                    `false`,
		"infiniteSessions":                   `{"enabled":true,"backgroundCompactionThreshold":0.5,"bufferExhaustionThreshold":0.95}`,
	} {
		if got := string(params[key]); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	for key, part := range map[string]string{
		"configDir": "config", "largeOutput": `"maxSizeBytes":1234`,
		"provider": `"maxPromptTokens":4321,"maxOutputTokens":321`,
	} {
		if !strings.Contains(string(params[key]), part) {
			t.Errorf("%s: %s, want %q in it", key, params[key], part)
		}
	}
}
