package copilot

import (
	"testing"

	"github.com/github/copilot-sdk/go/rpc"

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
		t.Error("a model that is not offered")
	}
	r.Configure(Options{Models: []string{"other"}, ProviderURL: "http://127.0.0.1:1/v1", MaxRounds: 3, Permissions: Permissions{Shell: Allow}})
	after, err := begin("other")
	if err != nil {
		t.Fatal(err)
	}
	shell := &rpc.PermissionRequestShell{}
	was, _ := before.policy(shell)
	is, _ := after.policy(shell)
	if was == "" || is != "" {
		t.Errorf("shell is denied before: %q, after: %q", was, is)
	}
	if before.o.MaxRounds != DefaultMaxRounds || after.o.MaxRounds != 3 {
		t.Errorf("rounds before %d, after %d", before.o.MaxRounds, after.o.MaxRounds)
	}
}
