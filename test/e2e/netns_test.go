//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// defaultPort is where examples look for the gateway.
const defaultPort = "9400"

// hostNetwork is held by the one test that has the machine's own default port.
var hostNetwork sync.Mutex

// isolate gives a home a network of its own, so that its default port is free
// whatever listens on this machine. Where the system refuses that, tests take
// turns on the machine's own.
func (h *home) isolate() {
	h.t.Helper()
	unshare := []string{"--net"}
	enter := []string{"nsenter", "--net"}
	if os.Getuid() != 0 {
		unshare = append(unshare, "--user", "--map-root-user")
		enter = append(enter, "--user", "--preserve-credentials")
	}
	const ready = "network ready"
	// cat holds the namespace until its stdin is closed, with us at the latest.
	holder := exec.Command("unshare",
		append(unshare, "sh", "-c", "ip link set lo up && echo "+ready+" && exec cat")...)
	holder.Env = h.env
	if why := probe(unshare); why != "" {
		h.t.Logf("no network of its own (%s): waiting for port %s", why, defaultPort)
		h.takePort()
		return
	}
	p := start(h.t, "network", holder)
	p.expect(ready)
	h.in = append(enter, "--target", fmt.Sprint(p.pid()), "--")
}

// probe says why there can be no network namespace, "" when there can.
func probe(unshare []string) string {
	var out bytes.Buffer
	cmd := exec.Command("unshare", append(unshare, "ip", "link", "set", "lo", "up")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return strings.TrimSpace(fmt.Sprintf("%v %s", err, out.String()))
	}
	return ""
}

// takePort waits for this test's turn on the machine's default port.
func (h *home) takePort() {
	h.t.Helper()
	hostNetwork.Lock()
	h.t.Cleanup(hostNetwork.Unlock)
	l, err := net.Listen("tcp", "127.0.0.1:"+defaultPort)
	if err != nil {
		h.t.Fatalf(
			"port %s is taken (%v): stop what listens there, or install util-linux and iproute2 and allow user namespaces", defaultPort, err)
	}
	_ = l.Close()
}
