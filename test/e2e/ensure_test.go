//go:build e2e && linux

package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEnsure starts ten at once, with a grace period that is shorter than a
// user's.
func TestEnsure(t *testing.T) {
	t.Parallel()
	const grace = (1 + 2*slowdown) * time.Second
	h := newHome(t)
	h.env = append(h.env, "TAPGW_GRACE="+grace.String())
	t.Cleanup(h.killGateway)

	var all []*process
	for range 10 {
		all = append(all, h.start(tapgw, "ensure", "--listen", "127.0.0.1:0"))
	}
	urls := map[string]int{}
	for _, p := range all {
		if code := p.wait(patience); code != 0 {
			t.Fatalf("tapgw ensure ended with code %d:\n%s, want 0", code, p.output())
		}
		urls[p.result()]++
	}
	info := h.gatewayInfo()
	if len(urls) != 1 || urls[info.URL] != 10 {
		t.Errorf("ten calls gave %v, gateway.json has %s, want that one 10 times", urls, info.URL)
	}
	if served := processesOf("serve\x00--on-demand"); len(h.ofThisHome(served)) != 1 {
		t.Errorf("%d gateways run: %q, want 1", len(h.ofThisHome(served)), h.ofThisHome(served))
	}

	// It stays while there is a session, and leaves when there is nobody.
	session := h.local()
	stays(t, grace+time.Second, func() error { return h.runs(info.PID) })
	before := time.Now()
	h.tapctl("sessions", "stop", session)
	h.waitEnded(info.PID)
	if after := time.Since(before); after < grace {
		t.Errorf("the gateway left %v after its last session, want %v", after, grace)
	}
	for _, file := range []string{".provider-token", ".admin-token", "gateway.json"} {
		if _, err := os.Lstat(h.state(file)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left over (%v), want no file", file, err)
		}
	}

	// The next one is another.
	if url := strings.TrimSpace(h.run(tapgw, "ensure", "--listen",
		"127.0.0.1:0").stdout); url == "" ||
		h.gatewayInfo().PID == info.PID {
		t.Errorf("after it left tapgw ensure gives %q, want the URL of a new gateway", url)
	}
}

type gatewayInfo struct {
	URL string
	PID int
}

// gatewayInfo returns what the gateway of this home says of itself.
func (h *home) gatewayInfo() gatewayInfo {
	h.t.Helper()
	return decode[gatewayInfo](h.t, h.read("gateway.json"))
}

// ofThisHome returns the processes of a list that belong to this home.
func (h *home) ofThisHome(list []string) []string {
	var found []string
	for _, ours := range processesOf(h.dir) {
		for _, other := range list {
			if ours == other {
				found = append(found, ours)
			}
		}
	}
	return found
}

// runs checks that a process of this home runs.
func (h *home) runs(pid int) error {
	for _, found := range processesOf(h.dir) {
		if strings.HasPrefix(found, fmt.Sprintf("%d ", pid)) {
			return nil
		}
	}
	return fmt.Errorf("process %d has ended", pid)
}

// waitEnded waits until a process of this home has ended.
func (h *home) waitEnded(pid int) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		if h.runs(pid) == nil {
			return errors.New("the gateway still runs")
		}
		return nil
	})
}

// killGateway ends a gateway that no test process is the parent of, and waits for
// its end: the home is about to be removed.
func (h *home) killGateway() {
	if data, err := os.ReadFile(h.state("gateway.json")); err == nil {
		pid := decode[gatewayInfo](h.t, string(data)).PID
		if h.runs(pid) == nil {
			_ = syscall.Kill(pid, syscall.SIGTERM)
			h.waitEnded(pid)
		}
	}
	if h.t.Failed() {
		log, _ := os.ReadFile(h.state("gateway.log"))
		h.t.Logf("gateway.log:\n%s", log)
	}
}

// stays checks that something holds for some time.
func stays(t testing.TB, d time.Duration, check func() error) {
	t.Helper()
	end := time.After(d)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := check(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}
