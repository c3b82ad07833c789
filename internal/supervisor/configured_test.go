package supervisor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
)

// TestConfiguredProvidersSayHowTheyAre: a reader of the list knows what runs, and how to help the
// providers that do not.
func TestConfiguredProvidersSayHowTheyAre(t *testing.T) {
	r := newRig(t)
	r.put("ed", "kind = \"connect\"\nprefix = \"ed_\"\nsessions = \"all\"\n")
	r.put("mine", r.file("tool", `sessions = { label = "label-mine" }`))
	r.s.Reload()
	is := func(name, state, reason string) {
		t.Helper()
		r.eventually(func() error {
			all := r.s.Configured()
			i := slices.IndexFunc(all, func(v adminapi.ConfiguredProvider) bool {
				return v.Name == name
			})
			if i < 0 || all[i].State != state || !strings.Contains(all[i].Reason, reason) ||
				(reason == "") != (all[i].Reason == "") {
				return fmt.Errorf("%s is not %s (%s): %+v, want %s", name, state, reason, all,
					state)
			}
			if file := filepath.Join(r.dir, name+".toml"); all[i].File != file {
				t.Errorf("%s is of file %s, want %s", name, all[i].File, file)
			}
			return nil
		})
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

// TestActionsOfConfiguredProviders: a reader of the list knows which commands act on a provider,
// the name of its program, and when one that ended is started again.
func TestActionsOfConfiguredProviders(t *testing.T) {
	r := newRig(t)
	r.session("desk")
	r.put("runs", r.file("tool", `sessions = "all"`))
	r.put("ends", "kind = \"command\"\ncommand = [\"false\"]\nsessions = \"all\"\n")
	r.put("waits", r.file("tool2", `sessions = { label = "nobody" }`))
	r.put("off", r.file("tool3", `enabled = false`))
	r.put("wrong", "kind = \"command\"\ncomand = [\"false\"]\n")
	r.s.Reload()
	find := func(name string) (found adminapi.ConfiguredProvider) {
		for _, v := range r.s.Configured() {
			if v.Name == name {
				found = v
			}
		}
		return found
	}
	is := func(name string, actions ...string) {
		t.Helper()
		r.eventually(func() error {
			if got := find(name); !slices.Equal(got.Actions, actions) {
				return fmt.Errorf("%s: got %+v, want the actions %q", name, got, actions)
			}
			return nil
		})
	}
	is("runs", adminapi.ActionRestart, adminapi.ActionStop)
	is("waits", adminapi.ActionStop)
	is("off")
	is("wrong")
	// It is started again a few times. Its waits are told; then it has failed.
	sawWait := false
	r.eventually(func() error {
		v := find("ends")
		if at := v.StartsAt; !at.IsZero() {
			sawWait = true
			if until := time.Until(at); until > longestWait {
				t.Errorf("it is started again in %s, want at most %s", until, longestWait)
			}
		}
		if v.State != adminapi.ConfiguredFailed {
			return fmt.Errorf("got %+v, want it to have failed", v)
		}
		return nil
	})
	if !sawWait {
		t.Error("nothing said when it would be started again")
	}
	if at := find("ends").StartsAt; !at.IsZero() {
		t.Errorf("it has failed, and is said to start at %s, want no time", at)
	}
	is("ends", adminapi.ActionStart, adminapi.ActionStop)
	r.eventually(func() error {
		if len(find("runs").Connected) == 0 {
			return errors.New("its program is not connected")
		}
		return nil
	})
	if p := r.g.Providers(); len(p) != 1 ||
		!slices.Equal(find("runs").Connected, []string{p[0].ID}) {
		t.Errorf("it has the connections %q, want the id of %+v", find("runs").Connected, p)
	}
	for name := range map[string]bool{"runs": true, "ends": true} {
		if _, err := r.s.Stop(name); err != nil {
			t.Fatal(err)
		}
		is(name, adminapi.ActionStart)
		if ids := find(name).Connected; len(ids) > 0 {
			t.Errorf("it was stopped, and has the connections %q, want none", ids)
		}
	}
}

// The user's file takes the place of one of the gateway's own providers, and no project's file
// does.
func TestOnlyTheUserReplacesAnOwnProvider(t *testing.T) {
	for what, tt := range map[string]struct {
		file configs.ProviderFile
		want bool
	}{
		"the user's": {configs.ProviderFile{Provider: &configs.Provider{Name: "tap"}}, false},
		"trusted": {configs.ProviderFile{Provider: &configs.Provider{Name: "tap",
			Project: "/p"}}, true},
		"left out": {configs.ProviderFile{Provider: &configs.Provider{}, LeftOut: true}, true},
		"faulty": {configs.ProviderFile{Provider: &configs.Provider{},
			Faults: make(configs.Faults, 1)}, true},
	} {
		s := New(Options{Own: []configs.Provider{{Name: "tap", Kind: configs.KindTap}}})
		tt.file.Name, tt.file.File = "tap", "/p/tap.toml"
		s.setFiles([]configs.ProviderFile{tt.file})
		if got := len(s.files) == 2; got != tt.want {
			t.Errorf("beside a file tap.toml, %s: got the gateway's own provider: %v, want %v",
				what, got, tt.want)
		}
		s.Close()
	}
}

// A project's file that is left out and is wrong besides shows its own fault, which comes before
// the question of trust.
func TestFaultOfALeftOutFile(t *testing.T) {
	file := "/p/tap.config.json"
	ask := configs.Fault{File: file, Line: 1, Column: 1, Message: "left out"}
	for _, test := range []struct {
		faults        configs.Faults
		state, reason string
	}{
		{configs.Faults{ask}, adminapi.ConfiguredWaiting, "left out"},
		{configs.Faults{{File: file, Line: 3, Message: "no"}, ask}, adminapi.ConfiguredFailed,
			"line 3: no"},
	} {
		s := New(Options{})
		p := &configs.Provider{}
		f := configs.ProviderFile{Name: "tap", File: file, Provider: p, LeftOut: true,
			Faults: test.faults}
		if state, reason := s.stateOf(f, p, false); state != test.state || reason != test.reason {
			t.Errorf("%v: got %s, %q, want %s, %q", test.faults, state, reason, test.state,
				test.reason)
		}
		s.Close()
	}
}
