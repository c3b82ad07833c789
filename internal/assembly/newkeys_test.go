package assembly

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/copilot"
	"tapgw/internal/gateway"
)

// still is a session's host that does nothing.
type still struct{}

func (still) SetTools(context.Context, uint64, []gateway.Tool) error        { return nil }
func (still) Send(context.Context, gateway.Prompt) error                    { return nil }
func (still) Log(adminapi.LogLevel, string)                                 {}
func (still) Interrupt(context.Context, string) (dropped []string, e error) { return nil, nil }
func (still) Close(context.Context, string) error                           { return nil }

// An edit that running sessions do not hear of says so, in the log and, while there
// are such sessions, in the status.
func TestEditsForNewSessionsSaySo(t *testing.T) {
	var log bytes.Buffer
	p := &Process{log: slog.New(slog.NewTextHandler(&log, nil)),
		gateway: gateway.New(gateway.Options{})}
	start := func(kind string) *gateway.Session {
		s, err := p.gateway.Register(gateway.SessionSpec{CWD: "/c"}, gateway.HostInfo{Kind: kind},
			still{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Stop(context.Background(), "over") })
		return s
	}
	files := configs.Files{User: "tapgw.toml"}
	start(gateway.HostLocal)
	p.noteNewKeys(files, []string{"copilot.permissions.shell"})
	if f := p.newKeyFaults(); len(f) > 0 || log.Len() > 0 {
		t.Errorf("without a session that it is about: %v, %s, want none and at most 0", f, &log)
	}
	s := start(copilot.Kind)
	for time.Since(s.View().CreatedAt) <= 0 { // the clock may be coarse
	}
	p.noteNewKeys(files, []string{"copilot.permissions.shell", "log_level"})
	f := p.newKeyFaults()
	if len(f) != 1 || f[0].File != "tapgw.toml" ||
		f[0].Message != "copilot.permissions.shell: has changed and holds for new sessions; 1 running session keeps the old value" {
		t.Errorf(
			`the status says %v, want 1 of them, File "tapgw.toml" and Message %q`,
			f,
			"copilot.permissions.shell: has changed and holds for new sessions; 1 running session keeps the old value",
		)
	}
	if !strings.Contains(log.String(), "the setting holds for new sessions") ||
		!strings.Contains(log.String(), "key=copilot.permissions.shell") {
		t.Errorf(
			`the log says %s, want "the setting holds for new sessions" and "key=copilot.permissions.shell" in it`,
			&log,
		)
	}
	if err := s.Stop(t.Context(), "over"); err != nil {
		t.Fatal(err)
	}
	start(copilot.Kind)
	if f := p.newKeyFaults(); len(f) > 0 {
		t.Errorf("when all have heard of it: %v, want none", f)
	}
}
