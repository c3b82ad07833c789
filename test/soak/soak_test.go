//go:build soak

// Package soak runs a real gateway for a while and looks at what is left over.
package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/protocol"
)

const (
	rounds  = 4
	cycles  = 5_000
	workers = 16
	atMost  = 5 * time.Minute
)

// process is a gateway in a home of its own.
type process struct {
	cmd          *exec.Cmd
	url          string
	token, admin string
	fds          int // after the first round
}

func serve(t *testing.T) *process {
	t.Helper()
	dir := t.TempDir()
	binary := filepath.Join(dir, "tapgw")
	if out, err := exec.Command("go", "build", "-o", binary,
		"tapgw/cmd/tapgw").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	home := filepath.Join(dir, "home")
	cmd := exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--log-level", "error")
	cmd.Env = append(os.Environ(), "HOME="+home, "COPILOT_HOME="+home, "XDG_CONFIG_HOME="+home)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("waiting for the URL: %v", err)
	}
	p := &process{cmd: cmd, url: strings.TrimSpace(line)}
	for file, to := range map[string]*string{".provider-token": &p.token,
		".admin-token": &p.admin} {
		b, err := os.ReadFile(filepath.Join(home, "extensions", "tap", file))
		if err != nil {
			t.Fatal(err)
		}
		*to = strings.TrimSpace(string(b))
	}
	return p
}

func (p *process) api(t *testing.T, method, path, body string, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method,
		"http"+strings.TrimPrefix(p.url, "ws")+"/api/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s, want less than 300", method, path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

func (p *process) measure(t *testing.T) (fds, residentMiB int) {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(proc + "statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(b), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return len(entries), pages * os.Getpagesize() >> 20
}

// cycle is the life of one provider: it joins, and then its connection breaks,
// now and then with half a message sent, without a goodbye.
func (p *process) cycle(ctx context.Context, session string, worker, n int) error {
	c, resp, err := websocket.Dial(ctx, p.url, nil)
	if err != nil {
		if resp != nil && resp.StatusCode == http.StatusServiceUnavailable {
			return nil // connections that were killed are not all noticed yet
		}
		return err
	}
	defer func() { _ = c.CloseNow() }()
	if err := c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"auth","token":%q}`,
		p.token)); err != nil {
		return err
	}
	for {
		_, frame, err := c.Read(ctx)
		if err != nil {
			return fmt.Errorf("cycle %d: %w", n, err)
		}
		var m struct{ Type, Code, Message string }
		if err := json.Unmarshal(frame, &m); err != nil {
			return err
		}
		switch m.Type {
		case "sessions":
			hello := fmt.Appendf(
				nil,
				`{"type":"hello","name":"soak-%d","protocolVersion":2,"session":%q,"tools":[{"name":"tool_%d","description":"d","parameters":{"type":"object"}}]}`,
				worker,
				session,
				n,
			)
			if err := c.Write(ctx, websocket.MessageText, hello); err != nil {
				return err
			}
		case "error":
			return fmt.Errorf("cycle %d: %s: %s", n, m.Code, m.Message)
		case "hello.ack":
			if n%3 == 0 {
				w, err := c.Writer(ctx, websocket.MessageText)
				if err != nil {
					return err
				}
				_, err = w.Write([]byte(`{"type":"push","level":"keep",`))
				return err
			}
			return c.Write(ctx, websocket.MessageText,
				[]byte(`{"type":"push","level":"keep","event":"bye"}`))
		}
	}
}

func TestSoakProvidersComeAndBreak(t *testing.T) {
	p := serve(t)
	var session struct{ ID string }
	p.api(t, http.MethodPost, "sessions", `{"host":"local","cwd":"/","label":"soak"}`, &session)

	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	run := func(count int) {
		var next atomic.Int64
		var wg sync.WaitGroup
		for worker := range workers {
			wg.Go(func() {
				for {
					n := int(next.Add(1))
					if n > count || t.Failed() {
						return
					}
					if err := p.cycle(ctx, session.ID, worker, n); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	settled := func() (fds, resident int) {
		for {
			var providers []struct{}
			p.api(t, http.MethodGet, "providers", "", &providers)
			http.DefaultClient.CloseIdleConnections()
			fds, resident = p.measure(t)
			if len(providers) == 0 && (p.fds == 0 || fds <= p.fds) {
				return fds, resident
			}
			select {
			case <-ctx.Done():
				t.Fatalf(
					"%d providers and %d descriptors (%d at first) are left over, want none and as many as at first",
					len(providers), fds, p.fds,
				)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	var resident []int // MiB, after each round
	for range rounds {
		run(cycles)
		if t.Failed() {
			return
		}
		fds, mib := settled()
		if p.fds == 0 {
			p.fds = fds
		}
		resident = append(resident, mib)
		// What a gateway remembers of a connection goes with the time to come back.
		select {
		case <-ctx.Done():
		case <-time.After(protocol.ReconnectWindow + time.Second):
		}
	}
	t.Logf("resident after each %d cycles, in MiB: %v", cycles, resident)
	// The heap finds its size in the first rounds.
	if before, last := resident[rounds-2], resident[rounds-1]; last > before+16 {
		t.Errorf("resident memory grew from %d to %d MiB, want at most 16 MiB more", before, last)
	}
	var tools []struct{}
	if p.api(t, http.MethodGet, "tools?session="+session.ID, "", &tools); len(tools) > 0 {
		t.Errorf("%d tools are left over, want none", len(tools))
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("ending: %v", err)
	}
}
