package configs

import (
	"testing"
	"time"
)

// sourceSamples are what the samples of kind source say.
func sourceSamples() map[string]Provider {
	sources := map[string]Source{
		"build": {
			Run: []string{
				"make",
				"build",
			}, Every: []time.Duration{2 * time.Minute}, Compare: CompareExit, Level: "inject",
		},
		"loop": {
			Prompt: "Go on with the next open item of TODO.md. Stop if there is none.", Idle: true,
			Runs: 20, Every: []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute},
		},
		"nightly": {
			Prompt: "Check the dependencies for new versions, and report what needs work.",
			Cron:   "30 2 * * *", Zone: "Europe/Berlin", Missed: MissedOnce,
		},
		"release": {
			Run: []string{"sh", "-c",
				"git log --oneline $(git describe --tags --abbrev=0)..HEAD"},
			Level: "inject", At: time.Date(2030, 1, 7, 8, 0, 0, 0, time.UTC),
		},
		"changed-files": {
			Files: []string{"migrations/**/*.sql"}, Text: EventText{{Arg: "file"}, {Text: " was "},
				{Arg: "change"}},
			Stream: "migrations",
		},
		"docs-page": {
			URL:     "https://status.example/api/incidents",
			Headers: map[string]string{"Accept": "application/json"},
			Every:   []time.Duration{10 * time.Minute}, Compare: "/incidents/0/id",
			Text: EventText{{Arg: "incidents.0.name"}, {Text: ": "}, {Arg: "incidents.0.status"}},
			Filter: []FilterRule{
				{Match: "scheduled maintenance", Outcome: "drop"},
				{Match: "major|critical", Outcome: "inject"},
			},
		},
		"ci-hook": {
			Webhook: true, SecretEnv: "CI_HOOK_SECRET",
			Text: EventText{
				{Arg: "workflow_run.name"}, {Text: " on "}, {Arg: "workflow_run.head_branch"},
				{Text: ": "},
				{Arg: "workflow_run.conclusion"},
			},
			Filter: []FilterRule{{Match: ": failure$", Outcome: "inject"},
				{Match: "", Outcome: "keep"}},
		},
	}
	samples := map[string]Provider{}
	for name, s := range sources {
		p := Provider{Kind: KindSource, CWD: ".", Sessions: Sessions{Mode: SessionsAll},
			Enabled: true}
		if s.Prompt != "" {
			p.Sessions.Mode, p.Grants = SessionsEach, []string{"questions"}
		}
		if name == "loop" {
			p.Sessions.Label = "autopilot"
		}
		s.Stderr = true
		if s.Level == "" {
			s.Level = "surface"
		}
		if s.Missed == "" {
			s.Missed = MissedSkip
		}
		if s.Stream == "" {
			s.Stream = name
		}
		p.Source = &s
		samples[name] = p
	}
	return samples
}

func TestSourceFaults(t *testing.T) {
	const kind = "kind = \"source\"\n"
	checkProviderFaults(t, []faultTest{
		{"none", kind,
			[]string{"1:1: kind: \"source\" needs one of run, prompt, files, url and webhook = true"}},
		{"two", kind + `run = "x"` + "\n" + `prompt = "y"`,
			[]string{"prompt: excludes run: a file has one source"}},
		{"an empty command", kind + `run = " "`, []string{"run: must be a command"}},
		{"no words", kind + `run = []`, []string{"run: must be a command such as"}},
		{"a blank prompt", kind + `prompt = " "`, []string{"prompt: must be a text"}},
		{"files outside", kind + `files = ["../x"]`, []string{"leads out of cwd"}},
		{"a glob without end", kind + `files = ["[a"]`, []string{"is not a glob of files"}},
		{"a URL that nobody asks", kind + `url = "http://x/"`, []string{"url: needs every"}},
		{"a webhook without a secret", kind + "webhook = true",
			[]string{"webhook: needs secret_env"}},
		{"too often", kind + "run = \"x\"\nevery = \"10ms\"",
			[]string{"every: 10ms is not from 1s"}},
		{"no time", kind + "run = \"x\"\nevery = \"often\"",
			[]string{`every: "often" is not a time`}},
		{"no times", kind + "run = \"x\"\nevery = []", []string{"every: must have a time"}},
		{"two schedules", kind + "run = \"x\"\nevery = \"1m\"\ncron = \"* * * * *\"",
			[]string{"cron: excludes every: a source has one schedule"}},
		{
			"a cron of four fields",
			kind + "run = \"x\"\ncron = \"* * * *\"",
			[]string{"cron: \"* * * *\" must have five fields"},
		},
		{
			"no zone",
			kind + "run = \"x\"\ncron = \"* * * * *\"\nzone = \"Mars\"",
			[]string{"zone: \"Mars\" is no time zone"},
		},
		{"a zone without cron", kind + "run = \"x\"\nzone = \"UTC\"",
			[]string{"zone: goes with cron"}},
		{
			"a time without a zone",
			kind + "run = \"x\"\nat = 2030-01-01T00:00:00",
			[]string{"at: must be a time with its distance"},
		},
		{"a day", kind + "run = \"x\"\nat = 2030-01-01",
			[]string{"at: must be a time with its distance"}},
		{"idle commands", kind + "run = \"x\"\nidle = true",
			[]string{"idle: goes with prompt, not with run"}},
		{"a loop without end", kind + "prompt = \"x\"\nidle = true",
			[]string{"idle: needs max_runs"}},
		{"a level of prompts", kind + "prompt = \"x\"\nlevel = \"keep\"",
			[]string{"level: goes with run and files"}},
		{
			"compare once",
			kind + "run = \"x\"\ncompare = \"exit\"",
			[]string{"compare: goes with a command that runs again"},
		},
		{
			"compare what",
			kind + "run = \"x\"\nevery = \"1m\"\ncompare = \"all\"",
			[]string{`compare: "all" is none of`},
		},
		{"a stream's name", kind + "run = \"x\"\nstream = \"A b\"",
			[]string{"is not a stream's name"}},
		{"a brace", kind + "run = \"x\"\ntext = \"{\"", []string{"text: has a {"}},
		{
			"a pattern",
			kind + "run = \"x\"\nfilter = [{ match = \"(\", outcome = \"drop\" }]",
			[]string{"filter[0].match"},
		},
		{"tools", kind + "run = \"x\"\nprefix = \"a\"",
			[]string{"prefix: belongs to a provider of kind"}},
		{
			"another kind's key",
			"kind = \"tools\"\ndir = \"x\"\nevery = \"1m\"",
			[]string{"every: belongs to a provider of kind"},
		},
	})
}
