package copilot

import (
	"errors"
	"strings"
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// What changes while the gateway runs is for sessions that start from then on.
func TestConfigure(t *testing.T) {
	r := New(Options{Models: []string{"m"}, ProviderURL: "http://127.0.0.1:1/v1"})
	t.Cleanup(func() { _ = r.Close(t.Context()) })
	begin := func(model string) (*session, error) {
		return r.newSession(t.Context(), "0", gateway.StartRequest{CWD: t.TempDir(), Model: model})
	}
	before, err := begin("m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := begin("other"); err == nil {
		t.Error("begin with a model that is not offered: no error, want one")
	}
	r.Configure(Options{
		Models: []string{"other"}, ProviderURL: "http://127.0.0.1:1/v1", MaxRounds: 3,
		Permissions: configs.Permissions{Shell: configs.Allow},
	})
	after, err := begin("other")
	if err != nil {
		t.Fatal(err)
	}
	shell := &rpc.PermissionRequestShell{}
	was, _ := before.policy(shell)
	is, _ := after.policy(shell)
	if was == "" || is != "" {
		t.Errorf("shell is denied before: %q, after: %q, want a denial before and none after", was,
			is)
	}
	// In a project that says something of its sessions they go by that, and by nothing
	// where it has a fault.
	project := t.TempDir()
	var broken error
	r.Configure(Options{
		Models:      []string{"other"},
		ProviderURL: "http://127.0.0.1:1/v1",
		At: func(dir string) (*Options, error) {
			if dir != project {
				return nil, nil
			}
			return &Options{
				Models: []string{"theirs"}, ProviderURL: "http://127.0.0.1:1/v1",
				Permissions: configs.Permissions{Write: configs.Allow},
			}, broken
		},
	})
	in := func(dir, model string) (*session, error) {
		return r.newSession(t.Context(), "0", gateway.StartRequest{CWD: dir, Model: model})
	}
	theirs, err := in(project, "theirs")
	if err != nil || theirs.o.Permissions.Write != configs.Allow ||
		theirs.o.Permissions.Shell != configs.Deny || theirs.o.MaxRounds != DefaultMaxRounds {
		t.Errorf(
			"in the project: %+v, %v, want no error, Write %v, Shell %v and MaxRounds %v",
			theirs, err, configs.Allow, configs.Deny, DefaultMaxRounds,
		)
	}
	if other, err := in(t.TempDir(), "other"); err != nil ||
		other.o.Permissions.Write != configs.Deny {
		t.Errorf("elsewhere: %+v, %v, want no error and Write %v", other, err, configs.Deny)
	}
	broken = errors.New("x.toml:1:1: unknown key")
	if _, err := in(project, "theirs"); err == nil ||
		!strings.Contains(err.Error(), "unknown key") {
		t.Errorf(`with a fault: %v, want an error and "unknown key" in it`, err)
	}
	if before.o.MaxRounds != DefaultMaxRounds || after.o.MaxRounds != 3 {
		t.Errorf("rounds before %d, after %d, want %d and 3", before.o.MaxRounds, after.o.MaxRounds,
			DefaultMaxRounds)
	}
}
