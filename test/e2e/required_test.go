//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/scriptmodel"
	"tapgw/providers"
)

// guarding is the program of a provider that denies each command of a shell. It adds its process to
// a file, and has a tool if one is named.
func guarding(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := providers.New("guard", nil)
	deny := func(context.Context, providers.GateCall) (providers.Decision, error) {
		return providers.Deny("guarded"), nil
	}
	if _, err := p.Gate(ctx, providers.Match{Tool: "shell"}, deny); err != nil {
		return err
	}
	for _, tool := range args[1:] {
		providers.AddTool(p, tool, "Greet", func(context.Context, struct{}) (string, error) {
			return "hello", nil
		})
	}
	f, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	fmt.Fprintln(f, os.Getpid())
	if err := f.Close(); err != nil {
		return err
	}
	return p.Run(ctx)
}

// required is a gateway with a required provider, whose sessions have a model that runs a shell.
type required struct {
	*home
	pids string // the file with the processes of the provider
	n    int
}

func newRequired(t *testing.T, tools ...string) *required {
	h := newHome(t)
	x := &required{home: h, pids: h.path("pids")}
	if err := os.Mkdir(h.path("providers"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"allow\"\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	words := append([]string{self, x.pids}, tools...)
	for i, word := range words {
		words[i] = strconv.Quote(word)
	}
	h.put("providers/guard.toml", fmt.Sprintf(
		"kind = \"command\"\ncommand = [%s]\ngrants = [\"gates\"]\nenv = { %s = \"guarding\" }\n",
		strings.Join(words, ", "), programVariable))
	h.serve("--config", h.path("tapgw.toml"))
	return x
}

// tries has the model run a command, and checks that it did not run.
func (x *required) tries(session, when string) {
	x.t.Helper()
	x.n++
	mark := x.path("work", fmt.Sprint("ran", x.n))
	answer := x.ask(session, fmt.Sprintf(`call:bash {"command":"touch %s","description":"x"}`,
		mark))
	if _, err := os.Stat(mark); err == nil {
		x.t.Errorf("%s: the command ran, want it denied: %s", when, answer)
	}
	if !strings.Contains(answer, "guarded") &&
		!strings.Contains(answer, "disconnected before it answered") {
		x.t.Errorf("%s: the model was told %q, want that it is guarded", when, answer)
	}
}

// kill kills the process of the provider that was started last and runs.
func (x *required) kill() {
	x.t.Helper()
	eventually(x.t, patience, func() error {
		data, err := os.ReadFile(x.pids)
		if err != nil {
			return err
		}
		for _, line := range slices.Backward(bytes.Fields(data)) {
			pid, err := strconv.Atoi(string(line))
			if err != nil {
				x.t.Fatal(err)
			}
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				return nil
			}
		}
		return errors.New("no process of the provider runs, want one")
	})
}

// TestRequiredProvider: no command of the runtime's own shell runs past a required provider: at the
// first prompt of a session, after the provider was killed, and while it is restarted.
func TestRequiredProvider(t *testing.T) {
	t.Parallel()
	x := newRequired(t)
	m := model(t, scriptmodel.Calls)
	const times = 10
	session := ""
	for i := range times {
		session = x.copilot(m)
		x.tries(session, fmt.Sprint("first prompt of session ", i))
		if i < times-1 {
			x.tapctl("sessions", "stop", session)
		}
	}
	for i := range times {
		x.kill()
		x.tries(session, fmt.Sprint("kill ", i))
		restart := x.start(tapctl, "providers", "restart", "guard")
		x.tries(session, fmt.Sprint("restart ", i))
		if code := restart.wait(patience); code != 0 {
			t.Errorf("restart %d: exit code %d, want 0", i, code)
		}
	}
}

// TestRestartedProviderHasItsTools: while a provider is restarted no call finds its tool away.
func TestRestartedProviderHasItsTools(t *testing.T) {
	t.Parallel()
	x := newRequired(t, "greet")
	session := x.local()
	x.waitTool(session, "greet")
	for i := range 5 {
		restart := x.start(tapctl, "providers", "restart", "guard")
		for range 5 {
			if got := x.call(session, "greet", "{}"); !strings.Contains(got, "hello") {
				t.Errorf("during restart %d: %s, want its tool there", i, got)
			}
		}
		if code := restart.wait(patience); code != 0 {
			t.Errorf("restart %d: exit code %d, want 0", i, code)
		}
	}
}
