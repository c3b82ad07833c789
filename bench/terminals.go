package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/scriptmodel"
)

const (
	hookRuns     = 200 // decisions of a hook
	modelCalls   = 30  // calls of a model in one turn
	modelRounds  = 5
	cliStarts    = 15
	cliPatience  = 5 * time.Minute
	extensionsOn = "COPILOT_CLI_ENABLED_FEATURE_FLAGS=EXTENSIONS"
)

// terminals measures what it costs a Copilot CLI that a person runs to be a session of the gateway.
func terminals(ctx context.Context, o options, r *report) error {
	found, err := filepath.Glob(".runtime/node_modules/@github/copilot-*-*/copilot")
	if err != nil || len(found) != 1 {
		return fmt.Errorf("there is no Copilot CLI in .runtime (%v): run `make runtime` first", err)
	}
	cli, err := filepath.Abs(found[0])
	if err != nil {
		return err
	}
	r.title("Terminals: Copilot CLIs that people run, as sessions", "metric\tfloor\ttapgw\tratio\tat most\t")
	if err := hookDecisions(ctx, o, r); err != nil {
		return fmt.Errorf("decisions of hooks: %w", err)
	}
	s, err := newStage(ctx, o, cli)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.calls(ctx, o, r); err != nil {
		return fmt.Errorf("calls of a terminal's model: %w", err)
	}
	_ = r.out.Flush() // the rest takes as long again
	if err := s.starts(ctx, r); err != nil {
		return fmt.Errorf("starting terminals: %w", err)
	}
	return nil
}

// hookDecisions measures `tapgw hook` about a call of the CLI's shell, with the start of its process.
func hookDecisions(ctx context.Context, o options, r *report) error {
	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m.stop()
	input, err := json.Marshal(map[string]any{
		"sessionId": "bench", "timestamp": time.Now().UnixMilli(), "cwd": m.removeHomeDir, "toolName": "bash",
		"toolArgs": map[string]any{"command": "echo hello", "description": "Says hello"},
	})
	if err != nil {
		return err
	}
	var floor, ours []time.Duration
	for range hookRuns {
		for took, argv := range map[*[]time.Duration][]string{
			&floor: {o.binary, "--version"}, &ours: {o.binary, "hook", "preToolUse"},
		} {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) //nolint:gosec // the table names it
			cmd.Env = append(os.Environ(), m.env...)
			cmd.Stdin = bytes.NewReader(input)
			began := time.Now()
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%q: %w", argv, err)
			}
			*took = append(*took, time.Since(began))
			if bytes.Contains(out, []byte("deny")) {
				return fmt.Errorf("the hook denies a call that no gate is about: %s", out)
			}
		}
	}
	version, _ := quantiles(floor)
	p50, p99 := quantiles(ours)
	r.row("a decision of a hook, p50 (15 ms); --version", fmt.Sprintf("%.1f ms", version),
		fmt.Sprintf("%.1f ms", p50), p50/15, 1, false)
	r.inform("a decision of a hook, p99; --version p50", fmt.Sprintf("%.1f ms", version),
		fmt.Sprintf("%.1f ms", p99), p99/version)
	return nil
}

// stage has two homes with a gateway each, and terminals in a tmux server.
type stage struct {
	cli    string
	tmux   *process
	socket string
	pkg    string // where the CLI unpacks itself
	// The gateway runs the session itself in own. In joined the session is a terminal.
	own, joined *middle
	// What passes between CLI and gateway in each.
	ownTap, joinedTap *tapped
}

func newStage(ctx context.Context, o options, cli string) (s *stage, err error) {
	s = &stage{cli: cli}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.pkg, err = os.MkdirTemp("", "tapgw-bench-cli-"); err != nil {
		return s, err
	}
	s.socket = filepath.Join(s.pkg, "tmux")
	s.ownTap, s.joinedTap = &tapped{path: filepath.Join(s.pkg, "own")}, &tapped{path: filepath.Join(s.pkg, "joined")}
	// The gateway also asks the CLI for its version, which is no JSON-RPC.
	between := filepath.Join(s.pkg, "cli")
	script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' --headless '*) exec '%s' tap '%s' '%s' \"$@\";; esac\n"+
		"exec '%[3]s' \"$@\"\n", o.self, s.ownTap.path, cli)
	if err := os.WriteFile(between, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		return s, err
	}
	settings := fmt.Sprintf("[copilot]\ncli = %q\n", between)
	if s.own, err = startGatewayWith(ctx, o.binary, nil, settings); err != nil {
		return s, err
	}
	if s.joined, err = startGateway(ctx, o.binary, nil); err != nil {
		return s, err
	}
	if s.tmux, err = start(ctx, nil, nil, "tmux", "-S", s.socket, "-f", "/dev/null", "-D"); err != nil {
		return s, err
	}
	return s, s.until(ctx, "", func() bool {
		_, err := os.Stat(s.socket)
		return err == nil
	})
}

// close ends the terminals first: a CLI makes its directories again when they are gone.
func (s *stage) close() {
	if s.tmux != nil {
		_, _ = s.command(context.Background(), "kill-server")
		s.tmux.stop()
	}
	for _, m := range []*middle{s.own, s.joined} {
		if m != nil {
			m.stop()
		}
	}
	_ = os.RemoveAll(s.pkg)
}

// until waits for something that the terminal of a name shows or does.
func (s *stage) until(ctx context.Context, name string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, cliPatience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting, while the terminal shows:\n%s", s.screen(context.WithoutCancel(ctx), name))
		}
	}
	return nil
}

func (s *stage) command(ctx context.Context, args ...string) ([]byte, error) {
	//nolint:gosec // our own words
	return exec.CommandContext(ctx, "tmux", append([]string{"-u", "-S", s.socket}, args...)...).CombinedOutput()
}

func (s *stage) screen(ctx context.Context, name string) string {
	out, _ := s.command(ctx, "capture-pane", "-p", "-t", name)
	return string(out)
}

// open starts a CLI in a terminal, and waits until it shows its prompt, and until it says that all is loaded.
func (s *stage) open(ctx context.Context, name, home, model string, env ...string) (prompt, loaded time.Duration,
	err error) {
	trust := fmt.Appendf(nil, `{"appTipShown": true, "trustedFolders": [%q]}`, home)
	if err := os.WriteFile(filepath.Join(home, "config.json"), trust, 0o600); err != nil {
		return 0, 0, err
	}
	args := []string{"new-session", "-d", "-s", name, "-c", home, "-x", "160", "-y", "50"}
	for _, v := range append(cliEnv(model, s.pkg), env...) {
		args = append(args, "-e", v)
	}
	began := time.Now()
	if out, err := s.command(ctx, append(args, s.cli, "--no-auto-update", "--allow-all-tools")...); err != nil {
		return 0, 0, fmt.Errorf("tmux: %w: %s", err, out)
	}
	err = s.until(ctx, name, func() bool {
		screen := s.screen(ctx, name)
		if prompt == 0 && strings.Contains(screen, "\n❯") {
			prompt = time.Since(began)
		}
		loaded = time.Since(began)
		return strings.Contains(screen, "/ commands")
	})
	return prompt, loaded, err
}

// end ends the CLI of a terminal.
func (s *stage) end(ctx context.Context, name string) error {
	if out, err := s.command(ctx, "kill-session", "-t", name); err != nil {
		return fmt.Errorf("tmux: %w: %s", err, out)
	}
	return nil
}

// cliEnv is what a CLI needs to be without account and network.
func cliEnv(model, pkg string) []string {
	return []string{"COPILOT_PROVIDER_BASE_URL=" + model, "COPILOT_PROVIDER_API_KEY=key-of-the-scripted-model",
		"COPILOT_MODEL=" + scriptmodel.ModelID, "COPILOT_OFFLINE=true", "COPILOT_PKG_CACHE_HOME=" + pkg}
}

// caller is a model that calls a provider's tool many times in one turn. It measures the time from the end of its
// answer to its next request.
type caller struct {
	*scriptmodel.Server

	mu    sync.Mutex
	left  int
	asked time.Time // when it made the last call
	want  string    // the result of that call
	took  []time.Duration
	wrong string // a result that is none of the tool's
}

func newCaller() (*caller, error) {
	c := &caller{}
	var err error
	c.Server, err = scriptmodel.Start("127.0.0.1:0", c.reply)
	return c, err
}

func (c *caller) reply(r *scriptmodel.Request) scriptmodel.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() {
		c.took = append(c.took, time.Since(c.asked))
		c.asked = time.Time{}
		if got := r.LastResult(); !strings.Contains(got, c.want) {
			c.wrong = got
		}
	}
	if c.left == 0 {
		return scriptmodel.Reply{Text: "All is done."}
	}
	for _, name := range r.ToolNames() {
		if strings.HasSuffix(name, toolName(0, 0)) {
			c.left--
			c.asked = time.Now()
			// Each call is another one.
			call := arguments{toolArgs.Path, c.left + 1, toolArgs.Text}
			c.want = call.result()
			args, err := json.Marshal(call)
			if err != nil {
				panic(err) // strings and a number
			}
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: name, Args: string(args)}}}
		}
	}
	return scriptmodel.Reply{Text: "There is no tool."}
}

// round makes the calls of a turn that begin starts, and returns the median of their times in milliseconds.
func (c *caller) round(begin func() error, wait func(done func() bool) error) (float64, error) {
	c.mu.Lock()
	c.left, c.took = modelCalls, nil
	c.mu.Unlock()
	if err := begin(); err != nil {
		return 0, err
	}
	err := wait(func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.took) == modelCalls
	})
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != "" {
		return 0, fmt.Errorf("a call has the result %q, which is none of the tool", c.wrong)
	}
	p50, _ := quantiles(c.took)
	return p50, nil
}

// ownTool is an extension that answers calls of its tool by itself: what the CLI needs for a call in any case.
const ownTool = `import { joinSession } from "@github/copilot-sdk/extension";
await joinSession({
    tools: [{
        name: %q,
        description: "Looks a line up",
        parameters: {
            type: "object",
            properties: { path: { type: "string" }, line: { type: "integer" }, text: { type: "string" } },
            required: ["path", "line", "text"],
        },
        handler: async (a) => ` + "`${a.path}:${a.line}: ${a.text}, and comes back`" + `,
    }],
});
`

// calls compares calls of a tool by models: of a session that the gateway runs itself, of a terminal whose extension
// answers by itself, and of a terminal that calls a provider through the gateway. All have the same CLI.
func (s *stage) calls(ctx context.Context, o options, r *report) error {
	var callers [3]*caller
	for i := range callers {
		c, err := newCaller()
		if err != nil {
			return err
		}
		defer c.Close()
		callers[i] = c
	}
	own, alone, joined := callers[0], callers[1], callers[2]
	ask := func(args ...string) (string, error) {
		tapctl := filepath.Join(filepath.Dir(o.binary), "tapctl")
		args = append([]string{"--timeout", cliPatience.String()}, args...)
		cmd := exec.CommandContext(ctx, tapctl, args...) //nolint:gosec // our own program
		cmd.Env = append(append(os.Environ(), s.own.env...), "TAP_MODEL_KEY=key-of-the-scripted-model")
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("tapctl %q: %w: %s", args, err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	session, err := ask("sessions", "start", "--host", "copilot", "--model", scriptmodel.ModelID, "--provider-url",
		own.URL)
	if err != nil {
		return err
	}
	if err := s.openAlone(ctx, alone.URL); err != nil {
		return err
	}
	if err := s.openJoined(ctx, o, joined.URL); err != nil {
		return err
	}
	for _, m := range []*middle{s.own, s.joined} {
		p, err := start(ctx, nil, nil, o.self, "provider", "-url", m.url, "-token", m.token)
		if err != nil {
			return err
		}
		defer p.stop()
		if err := p.expect("connected"); err != nil {
			return err
		}
	}
	var toOwn, toAlone, aloneToOwn, parts, onOneCLI series
	for round := range modelRounds + 1 {
		inOwn, err := own.round(
			func() error { _, err := ask("sessions", "query", session, "Go on."); return err },
			func(done func() bool) error {
				if !done() {
					return errors.New("the turn has ended before all calls were made")
				}
				return nil
			})
		if err != nil {
			return err
		}
		inAlone, err := s.turn(ctx, "alone", alone)
		if err != nil {
			return err
		}
		inJoined, err := s.turn(ctx, "joined", joined)
		if err != nil {
			return err
		}
		inOwnPart, err := s.ownTap.round(modelCalls)
		if err != nil {
			return err
		}
		inJoinedPart, err := s.joinedTap.round(modelCalls)
		if err != nil {
			return err
		}
		if round > 0 { // the first warms up
			parts.add(inOwnPart, inJoinedPart)
			onOneCLI.add(inOwn, inOwn-inOwnPart+inJoinedPart)
			toOwn.add(inOwn, inJoined)
			toAlone.add(inAlone, inJoined)
			aloneToOwn.add(inOwn, inAlone)
		}
	}
	// A CLI with a screen takes longer for a call than one without, whoever answers. So the ways are compared on one
	// CLI: a call of the gateway's own session, and the same call with what the terminal's way takes for the answer.
	onOneCLI.row(r, "a call in the gateway's own session, p50 ms; with the answer that came to a terminal", "%.1f", 1.2,
		false)
	parts.inform(r, "the answer alone, from the CLI's request on, p50 ms; the gateway's own session", "%.2f")
	const what = "from a model's call to its next request, p50 ms; "
	toAlone.inform(r, what+"a terminal whose extension answers", "%.1f")
	toOwn.inform(r, what+"the gateway's own session", "%.1f")
	aloneToOwn.inform(r, what+"that session, and in place of tapgw that terminal", "%.1f")
	return errors.Join(s.end(ctx, "alone"), s.end(ctx, "joined"))
}

// openAlone opens a terminal with an extension of its own, without the gateway.
func (s *stage) openAlone(ctx context.Context, model string) error {
	home := filepath.Join(s.pkg, "alone")
	extension := filepath.Join(home, "extensions", "alone", "extension.mjs")
	if err := os.MkdirAll(filepath.Dir(extension), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(extension, fmt.Appendf(nil, ownTool, toolName(0, 0)), 0o600); err != nil {
		return err
	}
	_, _, err := s.open(ctx, "alone", home, model, extensionsOn, "COPILOT_HOME="+home)
	return err
}

// spawned is what the extension of the gateway starts.
var spawned = regexp.MustCompile(`spawn\("[^"]*", \["`)

// openJoined opens a terminal with the extension of the gateway.
func (s *stage) openJoined(ctx context.Context, o options, model string) error {
	install := exec.CommandContext(ctx, o.binary, "install", "copilot", "--yes", "--extension") //nolint:gosec // ours
	install.Env = append(os.Environ(), s.joined.env...)
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("tapgw install copilot: %w: %s", err, out)
	}
	file := filepath.Join(s.joined.removeHomeDir, "extensions", "tapgw", "extension.mjs")
	source, err := os.ReadFile(file) //nolint:gosec // ours
	if err != nil {
		return err
	}
	program, args, _ := strings.Cut(strings.TrimPrefix(spawned.FindString(string(source)), "spawn("), ", [")
	tap := strings.Replace(string(source), program+", ["+args,
		fmt.Sprintf("%q, [\"tap\", %q, %s, %s", o.self, s.joinedTap.path, program, args), 1)
	if err := os.WriteFile(file, []byte(tap), 0o600); err != nil {
		return err
	}
	env := slices.Concat(s.joined.env, []string{extensionsOn})
	_, _, err = s.open(ctx, "joined", s.joined.removeHomeDir, model, env...)
	return err
}

// turn has the model of a terminal make its calls, and waits for the end of the turn.
func (s *stage) turn(ctx context.Context, name string, c *caller) (float64, error) {
	p50, err := c.round(
		func() error {
			if out, err := s.command(ctx, "send-keys", "-t", name, "-l", "Go on."); err != nil {
				return fmt.Errorf("tmux: %w: %s", err, out)
			}
			err := s.until(ctx, name, func() bool {
				return strings.Contains(s.screen(ctx, name), "\n❯ Go on.")
			})
			if err != nil {
				return err
			}
			_, err = s.command(ctx, "send-keys", "-t", name, "Enter")
			return err
		},
		func(done func() bool) error { return s.until(ctx, name, done) })
	if err != nil {
		return 0, err
	}
	return p50, s.until(ctx, name, func() bool { return strings.Contains(s.screen(ctx, name), "/ commands") })
}

// starts compares how long a CLI takes until it shows its prompt, without the gateway and with its extension.
func (s *stage) starts(ctx context.Context, r *report) error {
	model, err := newCaller()
	if err != nil {
		return err
	}
	defer model.Close()
	var prompt, loaded [2][]float64
	for range cliStarts {
		for i, m := range []*middle{s.own, s.joined} { // only the latter's home has the extension
			a, b, err := s.open(ctx, "cli", m.removeHomeDir, model.URL, slices.Concat(m.env, []string{extensionsOn})...)
			if err != nil {
				return err
			}
			if err := s.end(ctx, "cli"); err != nil {
				return err
			}
			prompt[i] = append(prompt[i], micros(a.Nanoseconds())/1e3)
			loaded[i] = append(loaded[i], micros(b.Nanoseconds())/1e3)
		}
	}
	more := median(prompt[1]) - median(prompt[0])
	r.row("start of a CLI to its prompt, ms; without extension (100 ms more)", fmt.Sprintf("%.0f", median(prompt[0])),
		fmt.Sprintf("%.0f", median(prompt[1])), more/100, 1, false)
	r.inform("start of a CLI until all is loaded, ms; without extension", fmt.Sprintf("%.0f", median(loaded[0])),
		fmt.Sprintf("%.0f", median(loaded[1])), median(loaded[1])/median(loaded[0]))
	return nil
}
