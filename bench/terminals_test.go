package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/scriptmodel"
)

const (
	turnCalls    = 30 // calls of a model in one turn
	cliPatience  = 5 * time.Minute
	modelKey     = "key-of-the-scripted-model"
	extensionsOn = "COPILOT_CLI_ENABLED_FEATURE_FLAGS=EXTENSIONS"
)

// stage is a tmux server for Copilot CLIs that people run.
type stage struct {
	rig
	cli    string
	dir    string // where the CLI unpacks itself
	socket string
}

func newStage(b *testing.B) *stage {
	b.Helper()
	found, err := filepath.Glob("../.runtime/node_modules/@github/copilot-*-*/copilot")
	if err != nil || len(found) != 1 {
		b.Fatalf("there is no Copilot CLI in .runtime (%v): run `make runtime` first", err)
	}
	dir, err := os.MkdirTemp("", "tmux") // short, because the paths of sockets are
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &stage{rig: rig{B: b}, dir: dir, socket: filepath.Join(dir, "s")}
	if s.cli, err = filepath.Abs(found[0]); err != nil {
		b.Fatal(err)
	}
	start(b, nil, "tmux", "-S", s.socket, "-f", "/dev/null", "-D")
	s.until("", func() bool {
		_, err := os.Stat(s.socket)
		return err == nil
	})
	// The terminals end first: a CLI makes its directories again when they are gone.
	b.Cleanup(func() { _, _ = s.tmux(context.Background(), "kill-server") })
	return s
}

func (s *stage) tmux(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"-u", "-S", s.socket}, args...)
	out, err := exec.CommandContext(ctx, "tmux", args...).CombinedOutput()
	return string(out), err
}

func (s *stage) must(args ...string) {
	s.Helper()
	if out, err := s.tmux(s.Context(), args...); err != nil {
		s.Fatalf("tmux %q: %v: %s", args, err, out)
	}
}

func (s *stage) screen(name string) string {
	out, _ := s.tmux(s.Context(), "capture-pane", "-p", "-t", name)
	return out
}

// until waits for something that the terminal of a name shows or does.
func (s *stage) until(name string, done func() bool) {
	s.Helper()
	for began := time.Now(); !done(); pause(s.B, 10*time.Millisecond) {
		if time.Since(began) > cliPatience {
			s.Fatalf("waiting, while the terminal shows:\n%s", s.screen(name))
		}
	}
}

// open starts a CLI in a terminal of the gateway's user. It returns how long the CLI took to its
// prompt, and until it said that all is loaded.
func (s *stage) open(name string, m *middle, model string) (prompt, loaded time.Duration) {
	s.Helper()
	put(s.B, filepath.Join(m.home, "config.json"),
		fmt.Sprintf(`{"appTipShown": true, "trustedFolders": [%q]}`, m.home))
	args := []string{"new-session", "-d", "-s", name, "-c", m.home, "-x", "160", "-y", "50"}
	for _, v := range append(slices.Clone(m.env), extensionsOn, "COPILOT_PROVIDER_BASE_URL="+model,
		"COPILOT_PROVIDER_API_KEY="+modelKey, "COPILOT_MODEL="+scriptmodel.ModelID,
		"COPILOT_OFFLINE=true",
		"COPILOT_PKG_CACHE_HOME="+s.dir) {
		args = append(args, "-e", v)
	}
	began := time.Now()
	s.must(append(args, s.cli, "--no-auto-update", "--allow-all-tools")...)
	s.until(name, func() bool {
		screen := s.screen(name)
		if prompt == 0 && strings.Contains(screen, "\n❯") {
			prompt = time.Since(began)
		}
		loaded = time.Since(began)
		return strings.Contains(screen, "/ commands")
	})
	return prompt, loaded
}

// install gives the CLIs of a gateway's user the gateway's extension, and returns the extension's
// file.
func (m *middle) install() string {
	m.b.Helper()
	cmd := exec.CommandContext(m.b.Context(), program(m.b, "tapgw"), "install", "copilot", "--yes",
		"--extension")
	cmd.Env = append(os.Environ(), m.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.b.Fatalf("tapgw install copilot: %v: %s", err, out)
	}
	return filepath.Join(m.home, "extensions", "tapgw", "extension.mjs")
}

// BenchmarkTerminalStart is the start of a Copilot CLI with the gateway's extension, beside one
// without.
func BenchmarkTerminalStart(b *testing.B) {
	s := newStage(b)
	model := newModel(b)
	side := func(hasExtension bool) func() metrics {
		m := s.gateway("")
		if hasExtension {
			m.install()
		}
		return func() metrics {
			prompt, loaded := s.open("cli", m, model.URL)
			s.must("kill-session", "-t", "cli")
			return metrics{"prompt-ms": ms(prompt), "loaded-ms": ms(loaded)}
		}
	}
	compare(b, side(false), side(true))
}

// BenchmarkTerminalCall is a call of a provider's tool by the model of a terminal, beside one by
// the model of a session that the gateway runs itself, on the same CLI. The call lasts until the
// model's next request; a CLI with a screen takes longer for that than one without. The answer is
// what gateway and provider take of it, from the CLI's request on.
func BenchmarkTerminalCall(b *testing.B) {
	s := newStage(b)
	own, model := newModel(b), newModel(b)
	ownTap, ownLog := s.tap("own", s.cli)
	m := s.gateway(fmt.Sprintf("[copilot]\ncli = %q\n", ownTap))
	s.part(part{Role: "provider", URL: m.url, Token: m.token, Providers: 1}).line()
	session := s.tapctl(m, "sessions", "start", "--host", "copilot",
		"--model", scriptmodel.ModelID, "--provider-url",
		own.URL)

	terminal := s.gateway("")
	s.part(part{Role: "provider", URL: terminal.url, Token: terminal.token, Providers: 1}).line()
	joinedLog := s.tapExtension(terminal.install())
	s.open("joined", terminal, model.URL)
	compare(b, func() metrics {
		return own.turn(ownLog, func() { s.tapctl(m, "sessions", "query", session, "Go on.") })
	}, func() metrics {
		return model.turn(joinedLog, func() {
			s.must("send-keys", "-t", "joined", "-l", "Go on.")
			s.until("joined", func() bool {
				return strings.Contains(s.screen("joined"), "\n❯ Go on.")
			})
			s.must("send-keys", "-t", "joined", "Enter")
			s.until("joined", func() bool {
				isOver := strings.Contains(s.screen("joined"), "/ commands")
				return isOver && model.made() == turnCalls
			})
		})
	})
}

func (s *stage) tapctl(m *middle, args ...string) string {
	s.Helper()
	args = append([]string{"--timeout", cliPatience.String()}, args...)
	cmd := exec.CommandContext(s.Context(), program(s.B, "tapctl"), args...)
	cmd.Env = append(append(os.Environ(), m.env...), "TAP_MODEL_KEY="+modelKey)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("tapctl %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// tap makes a program that stands in place of another and notes its calls in a log. The gateway
// also asks a CLI for its version, which is no JSON-RPC.
func (s *stage) tap(name, program string) (path string, log *tapLog) {
	s.Helper()
	log = &tapLog{path: filepath.Join(s.dir, name+".log")}
	path = filepath.Join(s.dir, name)
	variable, value, _ := strings.Cut(part{Role: "tap", Log: log.path}.variable(), "=")
	put(s.B, path, fmt.Sprintf("#!/bin/sh\n"+
		"if [ \"$1\" != --version ]; then export %s='%s'; exec '%s' '%s' \"$@\"; fi\n"+
		"exec '%[4]s' \"$@\"\n", variable, value, self(s.B), program))
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a program
		s.Fatal(err)
	}
	return path, log
}

// spawned is the program that the gateway's extension starts.
var spawned = regexp.MustCompile(`spawn\("([^"]*)"`)

// tapExtension puts a tap in place of the program that an extension starts.
func (s *stage) tapExtension(file string) *tapLog {
	s.Helper()
	source, err := os.ReadFile(file)
	found := spawned.FindSubmatch(source)
	if err != nil || found == nil {
		s.Fatalf("%s starts no program: %v", file, err)
	}
	path, log := s.tap("joined", string(found[1]))
	ours := fmt.Sprintf("spawn(%q", path)
	put(s.B, file, strings.Replace(string(source), string(found[0]), ours, 1))
	return log
}

// model calls a provider's tool many times in one turn. It measures the time from the end of its
// answer to its next request.
type model struct {
	*scriptmodel.Server
	b *testing.B

	mu    sync.Mutex
	left  int
	asked time.Time // when it made the last call
	want  string    // the result of that call
	took  []time.Duration
	wrong string // a result that is none of the tool's
}

func newModel(b *testing.B) *model {
	b.Helper()
	m := &model{b: b}
	var err error
	if m.Server, err = scriptmodel.Start("127.0.0.1:0", m.reply); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	return m
}

func (m *model) reply(r *scriptmodel.Request) scriptmodel.Reply {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked.IsZero() {
		m.took = append(m.took, time.Since(m.asked))
		m.asked = time.Time{}
		if got := r.LastResult(); !strings.Contains(got, m.want) {
			m.wrong = got
		}
	}
	if m.left == 0 {
		return scriptmodel.Reply{Text: "All is done."}
	}
	for _, name := range r.ToolNames() {
		if strings.HasSuffix(name, toolName(0, 0)) {
			m.left--
			m.asked = time.Now()
			call := arguments{toolArgs.Path, m.left + 1, toolArgs.Text} // each call is another one
			m.want = call.result()
			made := scriptmodel.ToolCall{Name: name, Args: string(marshal(call))}
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{made}}
		}
	}
	return scriptmodel.Reply{Text: "There is no tool."}
}

// made returns how many calls of the turn have ended.
func (m *model) made() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.took)
}

// turn makes the calls of a turn that run runs to its end.
func (m *model) turn(log *tapLog, run func()) metrics {
	m.b.Helper()
	m.mu.Lock()
	m.left, m.took = turnCalls, nil
	m.mu.Unlock()
	run()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.took) != turnCalls || m.wrong != "" {
		m.b.Fatalf("%d of %d calls ended in the turn; one had the wrong result %q", len(m.took),
			turnCalls, m.wrong)
	}
	got := metrics{}
	got["call-p50-ms"], got["call-p99-ms"] = quantiles(m.took, ms)
	got["answer-p50-ms"], got["answer-p99-ms"] = quantiles(log.read(m.b), ms)
	return got
}

// tapLog reads what a tap has noted since the last time.
type tapLog struct {
	path string
	seen int
}

func (t *tapLog) read(b *testing.B) (took []time.Duration) {
	b.Helper()
	data, err := os.ReadFile(t.path)
	if err != nil {
		b.Fatal(err)
	}
	for _, word := range strings.Fields(string(data[t.seen:])) {
		ns, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Duration(ns))
	}
	t.seen = len(data)
	if len(took) != turnCalls {
		b.Fatalf("%s has %d calls of a turn, want %d", t.path, len(took), turnCalls)
	}
	return took
}

// runTap runs the program in its arguments, in whose place it stands: the JSON-RPC on stdin and
// stdout goes through it. For each call of a tool it notes how many nanoseconds passed from the
// CLI's request to the answer.
func runTap(ctx context.Context, p part) error {
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_ = os.Unsetenv(partVariable)
	cmd := exec.CommandContext(ctx, os.Args[1], os.Args[2:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	t := tap{asked: map[string]time.Time{}, log: log}
	go func() { // it ends with this process
		_ = t.relay(in, os.Stdin)
		_ = in.Close()
	}()
	if err = t.relay(os.Stdout, out); errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, cmd.Wait())
}

// tap sees the messages of both directions.
type tap struct {
	mu    sync.Mutex // guards the fields that follow
	asked map[string]time.Time
	log   io.Writer
}

// relay hands messages on until there are no more.
func (t *tap) relay(to io.Writer, from io.Reader) error {
	in := bufio.NewReaderSize(from, 64<<10)
	for {
		data, err := jsonrpc.ReadFrame(in, 64<<20)
		if err != nil {
			return err
		}
		if err := t.see(data, time.Now()); err != nil {
			return err
		}
		if _, err := to.Write(jsonrpc.AppendFrame(nil, data)); err != nil {
			return err
		}
	}
}

// see notes the request of a call, and how long its answer took.
func (t *tap) see(data []byte, now time.Time) error {
	const request, answer = "external_tool.requested", "session.tools.handlePendingToolCall"
	if !bytes.Contains(data, []byte(`"`+request+`"`)) &&
		!bytes.Contains(data, []byte(`"`+answer+`"`)) {
		return nil
	}
	var m struct {
		Params struct {
			RequestID string
			Event     struct {
				Type string
				Data struct{ RequestID string }
			}
		}
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if m.Params.Event.Type == request {
		t.asked[m.Params.Event.Data.RequestID] = now
	} else if asked, ok := t.asked[m.Params.RequestID]; ok {
		delete(t.asked, m.Params.RequestID)
		_, err := fmt.Fprintln(t.log, now.Sub(asked).Nanoseconds())
		return err
	}
	return nil
}
