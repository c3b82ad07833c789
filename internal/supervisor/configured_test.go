package supervisor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
)

// TestConfiguredProvidersSayHowTheyAre: whoever looks at the list knows what runs,
// and what to do about what does not.
func TestConfiguredProvidersSayHowTheyAre(t *testing.T) {
	r := newRig(t)
	r.put("ed", "kind = \"connect\"\nprefix = \"ed_\"\nsessions = \"all\"\n")
	r.put("mine", r.file("tool", `sessions = { label = "label-mine" }`))
	r.s.Reload()
	is := func(name, state, reason string) {
		t.Helper()
		var last []adminapi.ConfiguredProvider
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			last = r.s.Configured()
			for _, v := range last {
				if v.Name == name && v.State == state && strings.Contains(v.Reason, reason) &&
					(reason == "") == (v.Reason == "") {
					if v.File != filepath.Join(r.dir, name+".toml") {
						t.Errorf("%s is of file %s, want %s", name, v.File, filepath.Join(r.dir, name+".toml"))
					}
					return
				}
			}
		}
		t.Fatalf("%s is not %s (%s): %+v, want %s", name, state, reason, last, state)
	}
	is("ed", adminapi.ConfiguredWaiting, "has not joined a session")
	is("mine", adminapi.ConfiguredWaiting, "no session that it is for")
	_, h := r.session("mine")
	r.has(h, "t")
	connect(t, r, waitFile(t, r, filepath.Join(r.s.o.TokenDir, "ed.token")))
	is("ed", adminapi.ConfiguredRunning, "")
	is("mine", adminapi.ConfiguredRunning, "")
	if _, err := r.s.Stop("mine"); err != nil {
		t.Fatal(err)
	}
	is("mine", adminapi.ConfiguredStopped, "tapctl providers start mine")
}

// The user's file takes the place of one of the gateway's own providers, and no project's file does.
func TestOnlyTheUserReplacesAnOwnProvider(t *testing.T) {
	for what, tt := range map[string]struct {
		file configs.ProviderFile
		want bool
	}{
		"the user's": {configs.ProviderFile{Provider: &configs.Provider{Name: "tap"}}, false},
		"trusted":    {configs.ProviderFile{Provider: &configs.Provider{Name: "tap", Project: "/p"}}, true},
		"left out":   {configs.ProviderFile{Provider: &configs.Provider{}, LeftOut: true}, true},
		"faulty":     {configs.ProviderFile{Provider: &configs.Provider{}, Faults: make(configs.Faults, 1)}, true},
	} {
		s := New(Options{Own: []configs.Provider{{Name: "tap", Kind: configs.KindTap}}})
		tt.file.Name, tt.file.File = "tap", "/p/tap.toml"
		s.setFiles([]configs.ProviderFile{tt.file})
		if got := len(s.files) == 2; got != tt.want {
			t.Errorf("beside a file tap.toml, %s: got the gateway's own provider: %v, want %v", what, got, tt.want)
		}
		s.Close()
	}
}

// A project's file that is left out and is wrong besides shows its own fault, which comes before the question of trust.
func TestFaultOfALeftOutFile(t *testing.T) {
	file := "/p/tap.config.json"
	ask := configs.Fault{File: file, Line: 1, Column: 1, Message: "left out"}
	for _, test := range []struct {
		faults        configs.Faults
		state, reason string
	}{
		{configs.Faults{ask}, adminapi.ConfiguredWaiting, "left out"},
		{configs.Faults{{File: file, Line: 3, Message: "no"}, ask}, adminapi.ConfiguredFailed, "line 3: no"},
	} {
		s := New(Options{})
		p := &configs.Provider{}
		f := configs.ProviderFile{Name: "tap", File: file, Provider: p, LeftOut: true, Faults: test.faults}
		if state, reason := s.stateOf(f, p, false); state != test.state || reason != test.reason {
			t.Errorf("%v: got %s, %q, want %s, %q", test.faults, state, reason, test.state, test.reason)
		}
		s.Close()
	}
}
