package configs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const heartbeat = `{"emitters":[{"name":"Heart Beat","command":"node ./x.mjs","every":"15m","cwd":"work"}]}`

// emitters are what Find and Providers make of the tap.config.json of a project.
func emitters(t *testing.T, dir string) []ProviderFile {
	t.Helper()
	f, err := Find(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return f.Providers()
}

// A trusted project's emitters are sources for sessions in it, as those that an import writes.
func TestTapConfig(t *testing.T) {
	for _, rel := range []string{"tap.config.json", ".github/tap.config.json"} {
		atHome(t)
		dir := real(t)
		file := write(t, filepath.Join(dir, rel), heartbeat)
		write(t, filepath.Join(dir, "work/x.mjs"), "")
		found := emitters(t, dir)
		if got, want := summary(found), "tap.config.json: left out; "; got != want {
			t.Fatalf("%s, not trusted: found %s, want %s", rel, got, want)
		}
		if got := found[0].Faults.Error(); !strings.HasPrefix(got, file+":1:1: ") ||
			!strings.Contains(got, TrustCommand(dir)) {
			t.Errorf("%s, not trusted: got %q, want its name and the command that trusts", rel, got)
		}
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
		found = emitters(t, dir)
		if got, want := summary(found), "heart-beat: source; "; got != want {
			t.Fatalf("%s: found %s, want %s", rel, got, want)
		}
		p := found[0].Provider
		if p.File != file || p.CWD != filepath.Join(dir, "work") || p.Project != dir ||
			p.Digest == "" || !p.Enabled ||
			!slices.Equal(p.Source.Run, []string{"bash", "-lc", "node ./x.mjs"}) ||
			!slices.Equal(p.Source.Every, []time.Duration{15 * time.Minute}) {
			t.Errorf("%s: got %+v, %+v", rel, p, p.Source)
		}
		for at, want := range map[string]bool{dir: true, filepath.Join(dir, "work"): true,
			real(t): false} {
			if got := p.Sessions.Match("", at, "local"); got != want {
				t.Errorf("%s: matches a session in %s: got %v, want %v", rel, at, got, want)
			}
		}
		write(t, filepath.Join(dir, "work/x.mjs"), "something else")
		found = emitters(t, dir)
		if got, want := summary(found), "tap.config.json: left out; "; got != want ||
			!strings.Contains(found[0].Faults.Error(),
				"work/x.mjs has changed since you trusted it") {
			t.Errorf("%s, its program has changed: found %s (%v), want %s", rel, got,
				found[0].Faults, want)
		}
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
		if got, want := summary(emitters(t, dir)), "heart-beat: source; "; got != want {
			t.Errorf("%s, trusted again: found %s, want %s", rel, got, want)
		}
	}
}

// The file in the directory counts before that in .github, also when it comes later.
func TestTapConfigInTwoPlaces(t *testing.T) {
	atHome(t)
	dir := real(t)
	write(t, filepath.Join(dir, ".github/tap.config.json"), heartbeat)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	first := write(t, filepath.Join(dir, "tap.config.json"),
		`{"emitters":[{"name":"first","prompt":"x"}]}`)
	if got, want := summary(emitters(t, dir)), "tap.config.json: left out; "; got != want {
		t.Errorf("a new file: found %s, want %s", got, want)
	}
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(emitters(t, dir)), "first: source; "; got != want {
		t.Errorf("two files: found %s, want %s", got, want)
	}
	counts, err := WhatCounts(dir)
	want := []Count{
		{".github/tap.config.json", "nothing, because tap.config.json counts before it"},
		{"tap.config.json", "sessions here have the sources first, which prompts: x"},
	}
	if err != nil || !slices.Equal(counts, want) {
		t.Errorf("what counts: got %v, %v, want %v", counts, err, want)
	}
	if err := os.Remove(first); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(emitters(t, dir)), "heart-beat: source; "; got != want {
		t.Errorf("the first is gone: found %s, want %s", got, want)
	}
	if err := os.Mkdir(first, 0o700); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(emitters(t, dir)), "tap.config.json: left out; "; got != want {
		t.Errorf("a directory: found %s, want %s", got, want)
	}
}

// A provider file has the name that an emitter has: only the file runs, whoever has it and whatever
// it says.
func TestTapConfigGivesWay(t *testing.T) {
	user, dir := atHome(t), real(t)
	write(t, filepath.Join(dir, "tap.config.json"), `{"emitters":[{"name":"a","command":"x"},
		{"name":"b","command":"x"},{"name":"c","command":"x","autoStart":false}]}`)
	own := write(t, filepath.Join(dir, ".tapgw/providers/b.toml"),
		`kind = "source"`+"\n"+`run = "y"`)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	users := write(t, filepath.Join(user, "providers/a.toml"), `kind = "source"`+"\n"+`run = "y"`)
	found := emitters(t, dir)
	if got, want := summary(found), "a: source; b: source; c: source; "; got != want {
		t.Fatalf("found %s, want %s", got, want)
	}
	if found[0].File != users || found[1].File != own || found[2].Provider.Enabled {
		t.Errorf("got %s, %s and c enabled %v, want %s, %s and not enabled",
			found[0].File, found[1].File, found[2].Provider.Enabled, users, own)
	}
	write(t, own, `kind = "source"`+"\n"+`run = "other"`)
	if got, want := summary(emitters(t, dir)), "a: source; b: left out; c: source; "; got != want {
		t.Errorf("the project's own has changed: found %s, want %s", got, want)
	}
}

// Each entry that can't be used has a fault with its place, and the others run.
func TestTapConfigFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{\n": "1:2: is not what it should be", "[]": "1:1: ",
		`{"emitters":3}`: "1:1: emitters must be a list",
		`{"emitters":[
 {"name":"good","command":"x"},
  {"name":"bad"}]}`: `3:3: the emitter "bad": it needs`,
		`{"emitters":[

 {"command":"x"}]}`: `3:2: the emitter "emitters[0]": it has no name`,
		`{"streams":[1]}`: `1:13: the stream "streams[0]": `,
		`{"emitters":[{"name":"a","command":"x"},
{"name":"a","command":"y"}]}`: `2:1: the emitter "a": another`,
		`{"emitters":[{"name":"a","command":"x","maxRuns":99999999}]}`: `1:14: the emitter "a": max_runs`,
		`{"emitters":[{"name":"a","command":"x","cwd":"../b"}]}`:       `1:14: the emitter "a": its cwd`,
	} {
		atHome(t)
		dir := real(t)
		file := write(t, filepath.Join(dir, "tap.config.json"), text)
		if _, _, err := Trust(dir); err != nil {
			t.Fatal(err)
		}
		var faults Faults
		good := 0
		for _, f := range emitters(t, dir) {
			if faults = append(faults, f.Faults...); len(f.Faults) == 0 {
				good++
			}
		}
		if len(faults) != 1 || !strings.HasPrefix(faults[0].Error(), file+":"+want) {
			t.Errorf("%s: got %v, want %s", text, faults, want)
		}
		if want := strings.Contains(text, "good") ||
			strings.Contains(text, `"y"`); (good == 1) != want {
			t.Errorf("%s: %d emitters are good, want one: %v", text, good, want)
		}
		f, err := Find(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		if files, found, err := f.CheckAll(); err != nil || !slices.Equal(files, []string{file}) ||
			!slices.Equal(found, faults) {
			t.Errorf("%s: checked %q with %v, %v, want %v", text, files, found, err, faults)
		}
	}
}

// A file that can't count says what is wrong with it before it asks for trust: with trust it would
// be as wrong.
func TestTapConfigBeforeTrust(t *testing.T) {
	loud := `{"streams":[{"name":"a","sessionInjector":{"delivery":"loud"}}],"emitters":[{"name":"b","command":"x"}]}`
	atHome(t)
	dir := real(t)
	file := filepath.Join(dir, "tap.config.json")
	wants := func(when string, isAsked bool, wants ...string) {
		t.Helper()
		found := emitters(t, dir)
		if got, want := summary(found), "tap.config.json: left out; "; got != want {
			t.Fatalf("%s: found %s, want %s", when, got, want)
		}
		for i, fault := range found[0].Faults {
			isLast := i == len(found[0].Faults)-1
			if !isLast && strings.Contains(fault.Message, "tapgw trust") ||
				len(found[0].Faults) != len(wants) || !strings.Contains(fault.Message, wants[i]) {
				t.Fatalf("%s: got %q, want %q", when, found[0].Faults, wants)
			}
			if asks := strings.Contains(fault.Message, TrustCommand(dir)); isLast &&
				asks != isAsked {
				t.Errorf("%s: got %q, want the command that trusts: %v", when, fault.Message,
					isAsked)
			}
		}
	}
	pipe := func() {
		t.Helper()
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	large := `{"emitters":[]}` + strings.Repeat(" ", maxFile)

	write(t, file, loud)
	wants("not trusted", true, `its delivery "loud" is none of`, "left out")
	write(t, file, large)
	wants("not trusted and too large", false, "is larger than 1048576 bytes")
	write(t, file, `{"emitters":[{"name":"b","command":"x","excludePattern":"(\u001b[2J"}]}`)
	wants("not trusted, for a terminal", true, `(\x1b[2J`, "left out")
	pipe()
	wants("not trusted and a pipe", false, "no file but a device, a pipe or a socket")
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	wants("trusted and a pipe", false, "no file but a device, a pipe or a socket")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write(t, file, loud)
	wants("new", true, `its delivery "loud" is none of`, "tap.config.json has changed")
	write(t, file, large)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	wants("trusted and too large", false, "is larger than 1048576 bytes")
	counts, err := WhatCounts(dir)
	if want := []Count{{"tap.config.json",
		"nothing, because it has more than 1024 KiB"}}; err != nil ||
		!slices.Equal(counts, want) {
		t.Errorf("too large: got %v, %v, want %v", counts, err, want)
	}
	pipe()
	wants("a pipe in place of a file", false, "no file but a device, a pipe or a socket")
}

// A file counts up to the size that an import reads, whatever else of the project is kept.
func TestTapConfigLarge(t *testing.T) {
	atHome(t)
	dir := real(t)
	write(t, filepath.Join(dir, "tap.config.json"),
		heartbeat+strings.Repeat(" ", maxFile-len(heartbeat)))
	for i := range maxKept/maxKeptFile + 1 {
		write(t, filepath.Join(dir, ".tapgw/tools", strings.Repeat("t", i+1)),
			strings.Repeat("x", maxKeptFile))
	}
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(emitters(t, dir)), "heart-beat: source; "; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}
