package configs

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Trust is of content: what comes, changes or goes among the files that count, and
// those that they name, is named and does not count; all else may change.
func TestTrustIsOfContent(t *testing.T) {
	atHome(t)
	for path, counts := range map[string]bool{
		".tapgw/tapgw.toml": true, ".tapgw/lsclient.toml": true, "configs/tapgw.toml": true,
		".tapgw/providers/a.toml": true, ".tapgw/providers/new.toml": true,
		".tapgw/tools/a.py": true, ".tapgw/tools/lib/b.py": true, ".tapgw/tools/new.py": true,
		"configs/tools/run": true, "server.py": true, "server/main.go": true, "server/new.go": true,
		"mine/tool.py": true, "mine/below/part.py": true, "hook.sh": true,
		".github/hooks/x.json": true, ".github/lsp.json": true, ".claude/agents/a.md": true,
		".mcp.json": true, ".vscode/mcp.json": true, "later.sh": true,
		"README.md": false, "main.go": false, ".tapgw/notes.txt": false,
		".tapgw/providers/x.toml.sample": false, "server/below/x.go": false,
		".tapgw/tools/__pycache__/a.pyc": false, "work/x": false,
	} {
		dir := real(t)
		for file, text := range map[string]string{
			".tapgw/tapgw.toml": "copilot.max_rounds = 5",
			".tapgw/providers/a.toml": `kind = "command"` + "\n" +
				`command = ["python3", "./server.py", "./later.sh"]` + "\ncwd = \"work\"",
			".tapgw/providers/b.toml": `kind = "command"` + "\n" +
				`command = ["go", "run", "./server"]`,
			".tapgw/providers/c.toml": "kind = \"tools\"\ndir = \"mine\"",
			".tapgw/tools/a.py":       "", ".tapgw/tools/lib/b.py": "", "server.py": "",
			"server/main.go": "", "mine/tool.py": "", "mine/below/part.py": "",
			".github/hooks/x.json": `{"hooks":{"preToolUse":[{"bash":"./hook.sh"}]}}`,
			"hook.sh":              "", "work/x": "",
		} {
			write(t, filepath.Join(dir, file), text)
		}
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
		if ok, err := Trusted(dir); err != nil || !ok {
			t.Fatalf("trusted: %v, %v, want true", ok, err)
		}
		write(t, filepath.Join(dir, path), "something else")
		ok, err := Trusted(dir)
		if err != nil || ok == counts {
			t.Errorf("%s has changed: trusted %v, %v, want no error and not %v", path, ok, err,
				counts)
		}
		p, _, _ := loadTrust(dir)
		if changes, err := p.Changes(); err != nil ||
			counts && (len(changes) == 0 || changes[0].Path != path &&
				path != ".tapgw/providers/a.toml") {
			t.Errorf("%s: %v, %v", path, changes, err)
		}
		if _, changes, err := Trust(dir); err != nil || counts && len(changes) == 0 {
			t.Errorf("%s: trusted once more: %v, %v", path, changes, err)
		}
		if ok, err := Trusted(dir); err != nil || !ok {
			t.Errorf("%s: trusted once more: %v, %v, want true", path, ok, err)
		}
	}
}

// What a file says to run is found however it names it: from the directory to run in,
// as a word of a shell's line, behind an option's "=", by another name of the project.
func TestTrustFindsWhatIsRun(t *testing.T) {
	atHome(t)
	for file, text := range map[string]string{
		".tapgw/providers/in.toml":     "kind = \"command\"\ncommand = [\"node\", \"run.js\"]\ncwd = \"work\"",
		".tapgw/providers/line.toml":   "kind = \"command\"\ncommand = [\"sh\", \"-c\", \"exec './work/run.js' --x\"]",
		".tapgw/providers/option.toml": "kind = \"command\"\ncommand = [\"node\", \"--require=./work/run.js\"]",
		".tapgw/providers/env.toml":    "kind = \"command\"\ncommand = [\"node\"]\nenv.NODE_OPTIONS = \"--require ./work/run.js\"",
		".tapgw/providers/alias.toml":  "kind = \"command\"\ncommand = [\"ALIAS/work/run.js\"]",
		".tapgw/providers/chain.toml":  "kind = \"command\"\ncommand = [\"server\", \"one.json\"]",
		".tapgw/providers/source.toml": "kind = \"source\"\nrun = \"node work/run.js --flag\"\nevery = \"1m\"",
		".tapgw/providers/words.toml":  "kind = \"source\"\nrun = [\"sh\", \"-c\", \"./work/run.js && true\"]",
		".github/hooks/hook.json":      `{"hooks":{"preToolUse":[{"bash":"./work/run.js --strict"}]}}`,
		".tapgw/lsclient.toml":         "[tools]\ndirs = [\"../work\"]",
		".mcp.json":                    `{"mcpServers":{"x":{"command":"node","args":["run.js"],"cwd":"work"}}}`,
	} {
		t.Run(file, func(t *testing.T) {
			dir, alias := real(t), filepath.Join(real(t), "alias")
			if err := os.Symlink(dir, alias); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, file), strings.ReplaceAll(text, "ALIAS", alias))
			if strings.Contains(file, "chain") { // of which another file has read the end before
				write(
					t,
					filepath.Join(dir, ".tapgw/providers/a.toml"),
					"kind = \"command\"\ncommand = [\"server\", \"three.json\"]",
				)
				write(t, filepath.Join(dir, "one.json"), `["two.json"]`)
				write(t, filepath.Join(dir, "two.json"), `["three.json"]`)
				write(t, filepath.Join(dir, "three.json"), `["work/run.js"]`)
			}
			write(t, filepath.Join(dir, "work/run.js"), "")
			if _, _, err := Trust(dir); err != nil {
				t.Fatal(err)
			}
			if err := Unchanged(dir, filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "work/run.js"), "something else")
			if err := Unchanged(dir, filepath.Join(dir, file)); err == nil {
				t.Error("Unchanged after a change: no error, want one")
			}
		})
	}
}

// A provider whose program has changed is left out, and says which command brings it
// back; the others stay.
func TestChangedProgram(t *testing.T) {
	atHome(t)
	dir := real(t)
	write(t, filepath.Join(dir, ".tapgw/providers/a.toml"),
		`kind = "command"`+"\n"+`command = ["./a.sh"]`)
	write(t, filepath.Join(dir, ".tapgw/providers/b.toml"),
		`kind = "command"`+"\n"+`command = ["./b.sh"]`)
	write(t, filepath.Join(dir, "a.sh"), "a")
	write(t, filepath.Join(dir, "b.sh"), "b")
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	f := Files{Workdir: "/", dir: filepath.Join(UserDir(), providerDirName)}
	before := f.Providers()
	write(t, filepath.Join(dir, "a.sh"), "evil")
	got := f.Providers()
	if summary(got) != "a: left out; b: command; " ||
		!strings.Contains(got[0].Faults.Error(),
			"a.sh has changed since you trusted it: run tapgw trust "+dir) {
		t.Errorf(
			`%s: %v, want "a: left out; b: command; " and %q in it`,
			summary(got), got[0].Faults, "a.sh has changed since you trusted it: run tapgw trust "+
				dir,
		)
	}
	if err := Unchanged(dir, filepath.Join(dir, ".tapgw/providers/a.toml")); err == nil {
		t.Error("Unchanged after a change: no error, want one")
	}
	if err := Unchanged(dir, filepath.Join(dir, ".tapgw/providers/b.toml")); err != nil {
		t.Errorf("the other may not be started: %v", err)
	}
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	if again := f.Providers(); summary(again) != "a: command; b: command; " ||
		again[0].Provider.Digest == before[0].Provider.Digest ||
		again[1].Provider.Digest != before[1].Provider.Digest {
		t.Errorf(
			`trusted once more: %+v, want "a: command; b: command; ", Digest not %v and Digest %v`,
			again, before[0].Provider.Digest, before[1].Provider.Digest,
		)
	}
	if err := os.Chmod(filepath.Join(dir, "b.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := summary(f.Providers()); got != "a: command; b: left out; " {
		t.Errorf(`it can be run now: %s, want "a: command; b: left out; "`, got)
	}
}

// A file of every key with its default asks for no trust, and is no fault once it has
// it: a clone of this very project is clean.
func TestSampleAsksForNoTrust(t *testing.T) {
	atHome(t)
	dir := real(t)
	for _, file := range []string{"tapgw.toml", "lsclient.toml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "configs", file), string(data))
	}
	for range 2 {
		f, err := Find(dir, "")
		if err != nil || f.Project != "" || len(f.Notes()) > 0 || len(f.Providers()) > 0 {
			t.Errorf(`%+v, %v, notes %v, want no error, Project "", none and none`, f, err,
				f.Notes())
		}
		if _, project, err := f.LoadAt(dir); err != nil || project != "" {
			t.Errorf(`for sessions: %s, %v, want no error and ""`, project, err)
		}
		ls, err := FindLSClient(dir, "")
		if err != nil || ls.Untrusted != "" || ls.Project != "" {
			t.Errorf(`%+v, %v, want no error, Untrusted "" and Project ""`, ls, err)
		}
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// Two projects may have providers of one name, unless these start themselves: their
// tokens lie in files of their names.
func TestProjectsWithOneName(t *testing.T) {
	atHome(t)
	one, two := real(t), real(t)
	for _, dir := range []string{one, two} {
		write(t, filepath.Join(dir, ".tapgw/providers/own.toml"), `kind = "connect"`)
		write(t, filepath.Join(dir, ".tapgw/providers/run.toml"),
			"kind = \"command\"\ncommand = [\"sh\"]")
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
	}
	f := Files{Workdir: "/", dir: filepath.Join(UserDir(), providerDirName)}
	if got := summary(
		f.Providers()); got != "own: connect; own: left out; run: command; run: command; " {
		t.Errorf("the provider files are %q, want own and run, and the changed one left out", got)
	}
}

// What is recorded is the user's alone to read, is bounded, and takes a directory of
// any name; a record under another's name is none.
func TestTrustRecord(t *testing.T) {
	user := atHome(t)
	dir := filepath.Join(real(t), "a\nb\x1b[2J\xff /etc")
	write(t, filepath.Join(dir, ".tapgw/tapgw.toml"), "copilot.max_rounds = 5")
	write(t, filepath.Join(dir, ".tapgw/tools/large"), strings.Repeat("x", maxKeptFile+1))
	for i := range 40 {
		write(t, filepath.Join(dir, fmt.Sprintf(".tapgw/tools/%d", i)),
			strings.Repeat("x", maxKeptFile))
	}
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	projects, err := TrustedProjects()
	if err != nil || len(projects) != 1 {
		t.Fatalf("trusted: %v, %v, want no error and 1", len(projects), err)
	}
	if ok, _ := Trusted(filepath.Dir(dir)); ok {
		t.Error("the directory above is trusted, want only the one that was")
	}
	var size int64
	err = filepath.WalkDir(filepath.Join(user, "trust"),
		func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += info.Size()
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v, want 0", path, info.Mode())
			}
			return nil
		})
	if err != nil || size > 2*maxKept {
		t.Errorf("%d bytes, %v, want no error and at most %d", size, err, 2*maxKept)
	}
	other := TrustedProject{Dir: "/", Files: content{}}
	data, _ := json.Marshal(other.spelled(strconv.QuoteToASCII))
	write(t, filepath.Join(user, "trust", sum([]byte("/elsewhere"))+".json"), string(data))
	if ok, _ := Trusted("/usr"); ok {
		t.Error("a record under another name counts, want not")
	}
	for i := range maxTrustedFiles {
		write(t, filepath.Join(dir, fmt.Sprintf(".tapgw/tools/more%d", i)), "")
	}
	if _, _, err := Trust(dir); err == nil ||
		!strings.Contains(err.Error(), "trust a smaller directory") {
		t.Errorf(`too many files: %v, want an error and "trust a smaller directory" in it`, err)
	}
	if was, err := Untrust(dir); !was || err != nil {
		t.Errorf("untrusted: %v, %v, want true", was, err)
	}
}

// Whatever a project's files hold, it can be looked at what they name.
func FuzzNames(f *testing.F) {
	f.Add("a.toml", `command = ["./x", "../..", "/etc/passwd"]`)
	f.Add("a.json", `{"a":[{"b":["x",["y"]]}]}`)
	f.Fuzz(func(t *testing.T, file, text string) {
		r := &reader{dir: "/etc", found: content{}}
		for _, n := range r.names(file, []byte(text)) {
			if !filepath.IsLocal(n.rel) || n.rel == "." {
				t.Errorf("%q, want a relative path below the directory", n.rel)
			}
		}
	})
}

// A trusted project's directory of tools stays the project's when a link takes its
// place that leads elsewhere, or the trust is taken back.
func TestToolsBehindALink(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string){
		"a link": func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, ".tapgw"),
				filepath.Join(real(t), "was")); err != nil {
				t.Fatal(err)
			}
			elsewhere := real(t)
			write(t, filepath.Join(elsewhere, "tools/evil.py"), "")
			if err := os.Symlink(elsewhere, filepath.Join(dir, ".tapgw")); err != nil {
				t.Fatal(err)
			}
		},
		"untrusted": func(t *testing.T, dir string) {
			if was, err := Untrust(dir); err != nil || !was {
				t.Fatalf("Untrust = %v, %v, want true", was, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			atHome(t)
			dir := real(t)
			write(t, filepath.Join(dir, ".tapgw/tools/good.py"), "")
			before, err := FindLSClient(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := Trust(dir); err != nil {
				t.Fatal(err)
			}
			files, err := FindLSClient(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			tools := filepath.Join(dir, ".tapgw/tools")
			if err := files.CheckTools(tools); err != nil {
				t.Fatal(err)
			}
			change(t, dir)
			if err := files.CheckTools(tools); err == nil {
				t.Error("CheckTools after a change: no error, want one")
			}
			// found before it was trusted
			if err := before.CheckTools(tools); name == "a link" && err == nil {
				t.Error("CheckTools of tools that were found before: no error, want one")
			}
		})
	}
}

// Trust in a source says what the source does.
func TestTrustShowsSources(t *testing.T) {
	atHome(t)
	dir := real(t)
	var want []Count
	for _, test := range []struct{ name, text, does string }{
		{"a", `run = ["make", "check"]` + "\n" + `every = "1h"`, "runs make check"},
		{"b", `run = "make check | tail"`, "runs sh -c make check | tail"},
		{"c", `prompt = "look\naround"`, "prompts: look\naround"},
		{"d", `files = ["**/*.go", "go.mod"]`, "watches the files **/*.go, go.mod"},
		{"e", `url = "https://example.org/status"` + "\n" + `every = "1h"`,
			"reads https://example.org/status"},
		{"f", `webhook = true` + "\n" + `secret_env = "SECRET"`, "takes requests to its webhook"},
	} {
		write(t, filepath.Join(dir, ".tapgw/providers", test.name+".toml"),
			"kind = \"source\"\n"+test.text)
		want = append(want, Count{
			".tapgw/providers/" + test.name + ".toml",
			"sessions here have the source " + test.name + ", which " + test.does,
		})
	}
	if counts, err := WhatCounts(dir); err != nil || !slices.Equal(counts, want) {
		t.Errorf("what counts: got %q, %v, want %q", counts, err, want)
	}
}

// What starts programs counts in the very directory that is trusted, unchanged, and with the user's
// own config only.
func TestTrustsAt(t *testing.T) {
	atHome(t)
	dir := real(t)
	write(t, filepath.Join(dir, ".github/lsp.json"), `{"lspServers":{"a":{"command":"./server"}}}`)
	write(t, filepath.Join(dir, "server"), "")
	write(t, filepath.Join(dir, "below/x"), "")
	link := filepath.Join(real(t), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	check := func(when string, f Files, at string, want bool) {
		t.Helper()
		if got := f.TrustsAt(at); got != want {
			t.Errorf("%s: trusts %s: %v, want %v", when, at, got, want)
		}
	}
	check("before", Files{}, dir, false)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	check("trusted", Files{}, dir, true)
	check("by another name", Files{}, link, true)
	check("below", Files{}, filepath.Join(dir, "below"), false)
	check("above", Files{}, filepath.Dir(dir), false)
	check("gone", Files{}, filepath.Join(dir, "none"), false)
	check("with a named config", Files{isNamed: true}, dir, false)
	write(t, filepath.Join(dir, "server"), "something else")
	check("changed", Files{}, dir, false)
}
