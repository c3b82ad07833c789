package gateway

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// TestPermitRead: a session without a host of its own reads in its directory only, and no private
// file of the gateway, whoever asks for it and however the path leads there.
func TestPermitRead(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"home/.copilot/tap", "home/src", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	for _, file := range []string{"home/.copilot/tap/.admin-token", "other/file"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", 300) // longer than the name of a file can be
	for link, to := range map[string]string{"out": "../other", "in": ".copilot/tap",
		"loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{
			Starters: map[string]Starter{HostLocal: LocalStarter{}},
			Private:  func() []string { return []string{filepath.Join(home, ".copilot")} },
		})
		s, err := g.Start(t.Context(), StartRequest{Host: HostLocal, CWD: home})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Drain(context.WithoutCancel(t.Context()))
		const inside, private, odd = "may read inside", "keep tokens", "can't be told where"
		for path, want := range map[string]struct{ model, person string }{
			"src/a":      {},
			"new":        {},
			"../other/a": {model: inside},
			"out/a":      {model: inside},
			// the same for the model as without the file
			"out/file/a":                    {inside, odd},
			"out/" + long:                   {inside, odd},
			"out/none/" + long:              {model: inside},
			"in/.admin-token/a":             {private, private},
			"in/" + long:                    {private, private},
			"loop":                          {odd, odd},
			".copilot/tap/.admin-token":     {private, private},
			".copilot":                      {private, private},
			"src/../.copilot/tap/none":      {private, private},
			"in/.admin-token":               {private, private},
			".COPILOT/tap/.admin-token":     {private, private},
			"src/.copilot/tap/.admin-token": {},
		} {
			for _, ask := range []struct {
				who, want string
				err       error
			}{
				{"the model", want.model, s.PermitRead(t.Context(), home+"/"+path, "look")},
				{"a person", want.person, s.PermitReadOfPerson(t.Context(), home+"/"+path)},
			} {
				if (ask.err != nil) != (ask.want != "") ||
					!strings.Contains(errorText(ask.err), ask.want) {
					t.Errorf("%s for %s: %v, want %q", path, ask.who, ask.err, ask.want)
				}
			}
		}
	})
}
