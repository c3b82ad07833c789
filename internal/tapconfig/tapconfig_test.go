package tapconfig_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/tapconfig"
)

// emitter parses one entry of emitters.
func emitter(t *testing.T, entry string) tapconfig.Emitter {
	t.Helper()
	c, err := tapconfig.Parse([]byte(`{"emitters":[` + entry + `]}`))
	if err != nil || len(c.Emitters) != 1 {
		t.Fatalf("%s: got %+v, %v, want one emitter", entry, c, err)
	}
	return c.Emitters[0]
}

func TestKeysAndTheirAliases(t *testing.T) {
	e := emitter(t, `{"name":" Build / Watch! ","command":"make","channel":"Ops Room","runInterval":"Every 2 HRS",
		"maxRuns":2.9,"autoStart":false,"includeStderr":false,"managedBy":"modelOwned","cwd":"sub"}`)
	if e.Name != "build-watch" || e.Stream != "ops-room" || e.MaxRuns != 2 || e.AutoStart ||
		e.Stderr ||
		!e.ModelOwned || e.CWD != "sub" || !slices.Equal(e.Every, []time.Duration{2 * time.Hour}) ||
		e.Reason != "" {
		t.Errorf("got %+v, want all keys read by their other names", e)
	}
	e = emitter(
		t,
		`{"name":"a","command":"make","stream":"s","channel":"c","every":"1m","runInterval":"2m","autoStart":0}`,
	)
	if e.Stream != "s" || !slices.Equal(e.Every, []time.Duration{time.Minute}) || !e.AutoStart ||
		!e.Stderr {
		t.Errorf(
			"got %+v, want stream and every before their aliases, and only false to switch off", e)
	}
	if e = emitter(t, `{"name":"a","prompt":"go","everySchedule":["10s","idle","1d"]}`); !e.Idle ||
		!slices.Equal(e.Every, []time.Duration{10 * time.Second, 24 * time.Hour}) ||
		e.Stream != "a" {
		t.Errorf("got %+v, want a list of pauses when idle, and a stream of the emitter's name", e)
	}
}

func TestStreams(t *testing.T) {
	c, err := tapconfig.Parse([]byte(`{"streams":[
		{"name":"Ops","description":"d","sessionInjector":{"enabled":true,"delivery":"Important"}},
		{"name":"b","subscription":{"enabled":"true"}}, {"name":"c"},
		{"name":"d","sessionInjector":{"delivery":"loud"}}, {"name":"ops"}, {"name":"!"}, 7]}`))
	if err != nil || len(c.Streams) != 7 {
		t.Fatalf("got %+v, %v, want 7 streams", c, err)
	}
	s := c.Streams
	if s[0].Name != "ops" ||
		*s[0].Injector != (tapconfig.Injector{Enabled: true, Delivery: "important"}) {
		t.Errorf("got %+v, want the stream ops with its injector", s[0])
	}
	if *s[1].Injector != (tapconfig.Injector{Delivery: "surface"}) {
		t.Errorf("got %+v, want it off and surface: only true counts", *s[1].Injector)
	}
	if s[2].Injector != nil {
		t.Errorf("got %+v, want no injector", s[2].Injector)
	}
	for i, want := range map[int]string{3: `"loud" is none of`, 4: "another stream", 5: "no name",
		6: "no object"} {
		if !strings.Contains(s[i].Reason, want) {
			t.Errorf("streams[%d]: got the reason %q, want it to say %q", i, s[i].Reason, want)
		}
	}
}

func TestFilterForms(t *testing.T) {
	tests := []struct {
		entry string
		want  []tapconfig.Rule
	}{
		{`"eventFilter":[{"match":"a","outcome":"drop"},{"match":".*","outcome":"keep"}]`,
			[]tapconfig.Rule{{"a", "drop"}, {".*", "keep"}}},
		{`"eventFilter":{"rules":[{"match":"a","outcome":"inject"}]}`,
			[]tapconfig.Rule{{"a", "inject"}}},
		{`"eventFilter":{"includePattern":"i","excludePattern":"e","notifyPattern":"n","ownership":"userOwned"}`,
			[]tapconfig.Rule{{"e", "drop"}, {"n", "inject"}, {"i", "keep"}, {".*", "drop"}}},
		{`"classifier":{"notifyPattern":"n"}`, []tapconfig.Rule{{"n", "inject"}}},
		{`"excludePattern":"e","notifyPattern":"n"`,
			[]tapconfig.Rule{{"e", "drop"}, {"n", "inject"}}},
		{`"description":"none"`, nil},
	}
	for _, test := range tests {
		e := emitter(t, `{"name":"a","command":"c",`+test.entry+`}`)
		if !slices.Equal(e.Filter, test.want) || e.Reason != "" {
			t.Errorf("%s: got %v, %q, want %v", test.entry, e.Filter, e.Reason, test.want)
		}
	}
}

func TestEntriesThatCantBeUsed(t *testing.T) {
	tests := []struct{ entry, want string }{
		{`{"name":"a"}`, "exactly one of command and prompt"},
		{`{"name":"a","command":"c","prompt":"p"}`, "exactly one of command and prompt"},
		{`{"command":"c"}`, "no name"},
		{`"a"`, "no object"},
		{`{"name":"a","command":"c","every":"idle"}`,
			"a command can't run when the session is idle"},
		{`{"name":"a","command":"c","every":"soon"}`, `"soon" is no time between runs`},
		{`{"name":"a","command":"c","every":"0s"}`, "not from one second to a year"},
		{`{"name":"a","command":"c","every":"99999999999999999999d"}`,
			"not from one second to a year"},
		{`{"name":"a","command":"c","every":5}`, "must be a text"},
		{`{"name":"a","command":"c","eventFilter":[{"match":"ok","outcome":"keep"},{"match":"(","outcome":"keep"}]}`,
			"rule 2 of its filter"},
		{
			`{"name":"a","command":"c","eventFilter":[{"match":"a","outcome":"shout"}]}`,
			`the outcome "shout" is none of`,
		},
		{`{"name":"a","command":"c","eventFilter":[{"outcome":"keep"}]}`,
			"rule 1 of its filter has no match"},
		{`{"name":"a","command":"c","notifyPattern":"("}`, "its notifyPattern"},
		{`{"name":"a","command":"c","eventFilter":"a"}`, "must be a list"},
	}
	for _, test := range tests {
		if e := emitter(t, test.entry); !strings.Contains(e.Reason, test.want) {
			t.Errorf("%s: got the reason %q, want it to say %q", test.entry, e.Reason, test.want)
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := tapconfig.Read(dir); !errors.Is(err, tapconfig.ErrNone) {
		t.Errorf("without a file: got %v, want ErrNone", err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(".github/tap.config.json", `{"emitters":[{"name":"second"}]}`)
	if c, err := tapconfig.Read(dir); err != nil || c.Emitters[0].Name != "second" {
		t.Errorf("in .github: got %+v, %v, want its emitter", c, err)
	}
	write("tap.config.json", "\ufeff{\"emitters\":[{\"name\":\"first\"}]}")
	if c, err := tapconfig.Read(dir); err != nil || len(c.Emitters) != 1 ||
		c.Emitters[0].Name != "first" {
		t.Errorf("in both: got %+v, %v, want the first file alone", c, err)
	}
	for text, want := range map[string]string{
		"{\n  \"emitters\": [,]}":  "tap.config.json:2:16: ",
		"[]":                       "tap.config.json:1:1: ",
		`{"emitters":{}}`:          "emitters must be a list",
		"":                         "tap.config.json:1:1: ",
		"{\"streams\":[\"\xff\"]}": "not UTF-8",
		strings.Repeat(" ", 2<<20): "more than 1024 KiB",
		`{"streams":[` + strings.Repeat("0,", 1000) + "0]}": "at most 1000",
	} {
		write("tap.config.json", text)
		if _, err := tapconfig.Read(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want an error with %q", text, err, want)
		}
	}
}

// What is written is a provider file without faults, whatever the file holds, and it means what the
// emitter means.
func TestProviders(t *testing.T) {
	c, err := tapconfig.Parse([]byte(`{"streams":[
		{"name":"quiet","sessionInjector":{"enabled":false}}, {"name":"loud","sessionInjector":{"enabled":true,"delivery":"all"}},
		{"name":"gone","sessionInjector":{"enabled":true,"delivery":"drop"}}],
	 "emitters":[
		{"name":"Ops","description":"a\nb","command":"echo \"hi\"","includeStderr":false,"cwd":"sub","autoStart":false,
		 "eventFilter":[{"match":"Ready","outcome":"surface"},{"match":"error","outcome":"inject"},{"match":".*","outcome":"keep"}]},
		{"name":"q","command":"c","stream":"quiet","notifyPattern":"x"},
		{"name":"l","command":"c","stream":"loud","excludePattern":"x"},
		{"name":"g","command":"c","stream":"gone"},
		{"name":"loop","prompt":"go on","every":"idle"},
		{"name":"backoff","prompt":"look","everySchedule":["10s","1m"],"maxRuns":3},
		{"name":"out","command":"c","cwd":"../x"}, {"name":"..","command":"c"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	files := c.Providers("/src/[shop]")
	want := map[string]struct {
		check func(p configs.Provider) bool
		note  string
	}{
		"ops": {func(p configs.Provider) bool {
			return slices.Equal(p.Source.Run, []string{"bash", "-lc", `echo "hi"`}) &&
				p.CWD == "/src/[shop]/sub" &&
				!p.Enabled && !p.Source.Stderr && p.Source.Level == "keep" &&
				len(p.Source.Every) == 0 && p.Sessions.Match("", "/src/[shop]", "") &&
				!p.Sessions.Match("", "/src/s", "") &&
				slices.Equal(p.Source.Filter, []configs.FilterRule{
					{Match: "(?i:Ready)", Outcome: "surface"},
					{Match: "(?i:error)", Outcome: "inject"}, {Match: ".*", Outcome: "keep"},
				})
		}, ""},
		"q": {func(p configs.Provider) bool {
			return p.Source.Filter[0].Outcome == "keep"
		}, `"quiet"`},
		"l": {func(p configs.Provider) bool {
			return p.Source.Filter[0].Outcome == "drop" && p.Source.Level == "inject"
		}, `"loud"`},
		"g": {func(p configs.Provider) bool {
			return p.Source.Filter[0].Outcome == "drop"
		}, `"gone"`},
		"loop": {func(p configs.Provider) bool {
			return p.Source.Idle && p.Source.Runs == 10
		}, "max_runs = 10"},
		"backoff": {func(p configs.Provider) bool {
			return slices.Equal(p.Source.Every, []time.Duration{10 * time.Second, time.Minute}) &&
				p.Source.Runs == 3
		}, ""},
	}
	for _, f := range files {
		w, isFile := want[f.Name]
		if !isFile {
			if f.Reason == "" {
				t.Errorf("%s: got a file, want a reason against it", f.Emitter)
			}
			continue
		}
		p, faults := configs.ParseProvider(f.Name+".toml", f.Text)
		if len(faults) > 0 || !w.check(p) {
			t.Errorf("%s: got %v, %+v, want another one, of\n%s", f.Name, faults, p.Source, f.Text)
		}
		if notes := strings.Join(f.Notes, "\n"); w.note == "" != (notes == "") ||
			!strings.Contains(notes, w.note) {
			t.Errorf("%s: got the notes %q, want one of %q", f.Name, notes, w.note)
		}
	}
	if len(files) != 8 {
		t.Errorf("got %d files and reasons, want 8", len(files))
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"streams":[{"name":"ops","sessionInjector":{"enabled":true,"delivery":"keep"}}],
		"emitters":[{"name":"a","command":"x","stream":"ops","eventFilter":[{"match":"a\\b","outcome":"drop"}]}]}`))
	f.Add(
		[]byte(
			`{"emitters":[{"name":"p","prompt":"\u0000\r\n","everySchedule":["1s","2d"],"description":"\u0085\u001b"}]}`,
		),
	)
	f.Add(
		[]byte(
			`{"emitters":[{"name":"p","command":"x","cwd":"a/..","classifier":{"includePattern":"("}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := tapconfig.Parse(data)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("got the error %q, want one line", err)
			}
			return
		}
		for _, p := range c.Providers("/src") {
			if p.Reason != "" {
				continue
			}
			_, faults := configs.ParseProvider(p.Name+".toml", p.Text)
			for _, fault := range faults {
				if fault.Line == 1 || strings.Contains(fault.Message, "toml") {
					t.Errorf("got the fault %v, want none but of values, in\n%s", fault, p.Text)
				}
			}
		}
	})
}
