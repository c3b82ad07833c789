package supervisor

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

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
