package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// process is a child process. The driver reads its stdout line by line; it ends when its stdin is closed.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
	name  string
}

// start runs a command; pin stands before it.
func start(ctx context.Context, env, pin []string, argv ...string) (*process, error) {
	name := strings.Join(argv[:min(2, len(argv))], " ")
	argv = slices.Concat(pin, argv)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	return &process{cmd, in, bufio.NewReader(out), name}, nil
}

// line waits for the next line of output.
func (p *process) line() (string, error) {
	s, err := p.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("reading from %s: %w", p.name, err)
	}
	return strings.TrimSpace(s), nil
}

func (p *process) expect(want string) error {
	got, err := p.line()
	if err == nil && got != want {
		err = fmt.Errorf("%s said %q, want %q", p.name, got, want)
	}
	return err
}

// round asks a host for one round of calls.
func (p *process) round(workers, calls int) (Load, error) {
	if _, err := fmt.Fprintln(p.in, workers, calls); err != nil {
		return Load{}, fmt.Errorf("asking %s: %w", p.name, err)
	}
	s, err := p.line()
	if err != nil {
		return Load{}, err
	}
	var l Load
	if err := json.Unmarshal([]byte(s), &l); err != nil {
		return Load{}, fmt.Errorf("reading from %s: %w", p.name, err)
	}
	if l.Error != "" {
		return Load{}, fmt.Errorf("%s: %s", p.name, l.Error)
	}
	return l, nil
}

// stop ends the process: it closes stdin, sends SIGINT, and sends SIGKILL after 20 s, a gateway's own deadline.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	kill := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

// cpu returns the CPU time of all threads of the process.
func (p *process) cpu() (time.Duration, error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("reading the CPU time of %s: no schedstat in /proc", p.name)
	}
	var sum time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that ended
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(b), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", f, err)
		}
		sum += time.Duration(ns)
	}
	return sum, nil
}

// memory is the memory of a process as smaps_rollup reports it, in bytes.
type memory struct{ resident, anonymous int64 }

func (p *process) memory() (m memory, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		kb, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		switch f[0] {
		case "Rss:":
			m.resident = kb << 10
		case "Anonymous:":
			m.anonymous = kb << 10
		}
	}
	return m, nil
}

// middle is the process between host and provider: the relay or the gateway.
type middle struct {
	*process
	url           string
	env           []string // where its programs find it
	token, admin  string
	ready         time.Duration // from its start to its URL
	removeHomeDir string
}

func startRelay(ctx context.Context, self string, pin []string) (*middle, error) {
	p, err := start(ctx, nil, pin, self, "relay")
	if err != nil {
		return nil, err
	}
	url, err := p.line()
	return &middle{process: p, url: url}, err
}

// startGateway runs the gateway's binary in a home directory of its own.
func startGateway(ctx context.Context, binary string, pin []string) (*middle, error) {
	return startGatewayWith(ctx, binary, pin, "")
}

// startGatewayWith is startGateway with more in tapgw.toml.
func startGatewayWith(ctx context.Context, binary string, pin []string, settings string) (*middle, error) {
	home, err := os.MkdirTemp("", "tapgw-bench-")
	if err != nil {
		return nil, err
	}
	env := []string{"HOME=" + home, "COPILOT_HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_STATE_HOME=" + home}
	// Nothing that the other side of a comparison lacks: no tap_* tools.
	config := filepath.Join(home, "tapgw", "tapgw.toml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(config, []byte("[tap]\ntools = false\n"+settings), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	p, err := start(ctx, env, pin, binary, "serve", "--listen", "127.0.0.1:0", "--log-level", "error")
	if err != nil {
		return nil, err
	}
	m := &middle{process: p, removeHomeDir: home, env: env}
	if m.url, err = p.line(); err != nil {
		return nil, err
	}
	m.ready = time.Since(began)
	for file, to := range map[string]*string{".provider-token": &m.token, ".admin-token": &m.admin} {
		b, err := os.ReadFile(filepath.Join(home, "extensions", "tap", file))
		if err != nil {
			return nil, fmt.Errorf("reading a token: %w", err)
		}
		*to = strings.TrimSpace(string(b))
	}
	return m, nil
}

func (m *middle) stop() {
	m.process.stop()
	if m.removeHomeDir != "" {
		_ = os.RemoveAll(m.removeHomeDir)
	}
}

// system is a middle with host and provider.
type system struct {
	*middle
	provider, host *process
}

// endpoints describe the host and the providers of a system.
type endpoints struct {
	providers, tools int  // tools of each
	rules            int  // hook rules of each
	noHooks          bool // the gateway applies the rules, because the host has no hooks
}

// join starts providers and host. The providers come first, because the relay must know them when the host sends.
func join(ctx context.Context, self string, pin []string, m *middle, e endpoints) (*system, error) {
	p, err := start(ctx, nil, pin, self, "provider", "-url", m.url, "-token", m.token,
		"-n", strconv.Itoa(e.providers), "-tools", strconv.Itoa(e.tools), "-rules", strconv.Itoa(e.rules))
	if err != nil {
		return nil, err
	}
	if err := p.expect("connected"); err != nil {
		return nil, err
	}
	h, err := start(ctx, nil, pin, self, "host", "-url", m.url, "-token", m.admin, "-n", strconv.Itoa(e.providers),
		"-hooks="+strconv.FormatBool(!e.noHooks))
	if err != nil {
		return nil, err
	}
	return &system{m, p, h}, h.expect("ready")
}

func (s *system) stop() {
	s.host.stop()
	s.provider.stop()
	s.middle.stop()
}

// sample is the result of one round.
type sample struct {
	Load
	cpu time.Duration // of the middle, per call
}

func (s *system) sample(workers, calls int) (sample, error) {
	before, err := s.cpu()
	if err != nil {
		return sample{}, err
	}
	l, err := s.host.round(workers, calls)
	if err != nil {
		return sample{}, err
	}
	after, err := s.cpu()
	return sample{l, (after - before) / time.Duration(calls)}, err
}
