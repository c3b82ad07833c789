//go:build e2e && linux

package cluster

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// resident is the resident memory of a process in MiB.
func (p *process) resident() int { return p.status("VmRSS:") }

// mostResident is the most that it ever was.
func (p *process) mostResident() int { return p.status("VmHWM:") }

// status is a field of what the kernel says of a process, in MiB.
func (p *process) status(field string) int {
	p.t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field {
			kib, _ := strconv.Atoi(f[1])
			return kib >> 10
		}
	}
	p.t.Fatalf("the kernel says no %s of a process", field)
	return 0
}

// connect connects a provider with a tool that serves all sessions, by its bare messages.
func (m *machine) connect(name string) {
	m.t.Helper()
	ws, _, err := websocket.Dial(m.t.Context(), m.url, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	ws.SetReadLimit(-1)
	m.t.Cleanup(func() { _ = ws.CloseNow() })
	send := func(text string) {
		if err := ws.Write(m.t.Context(), websocket.MessageText, []byte(text)); err != nil {
			m.t.Fatal(err)
		}
	}
	send(fmt.Sprintf(`{"type":"auth","token":%q}`, m.token(".admin-token")))
	if _, _, err := ws.Read(m.t.Context()); err != nil { // the sessions
		m.t.Fatal(err)
	}
	send(fmt.Sprintf(`{"type":"hello","name":%q,"protocolVersion":2,"session":"all","tools":`+
		`[{"name":"%[1]s-tool","description":"d","parameters":{"type":"object"}}]}`, name))
	go func() {
		for {
			if _, _, err := ws.Read(m.t.Context()); err != nil {
				return
			}
		}
	}()
}

// TestScale has five gateways with 40 sessions and 100 providers each, and everybody shares
// everything: each of the 500 providers serves all of the 200 sessions. No gateway takes more than
// 60 MiB at any moment while they connect, and 40 at rest. It also looks at how long one that joins
// takes to see them.
func TestScale(t *testing.T) {
	const gateways, sessions, connected, maxResident, maxAtRest = 5, 40, 100, 60, 40
	urls := []string{natsNodes(t, 1)[0].url}
	machines := []*machine{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		machines = append(machines, newMachine(t, name, urls, admitting(name)))
	}
	for _, m := range machines {
		for i := range sessions {
			m.session(fmt.Sprintf("%s-%d", m.name, i))
		}
	}
	for i := range connected {
		for _, m := range machines {
			m.connect(fmt.Sprintf("%s-p%d", m.name, i))
		}
	}
	last := machines[gateways-1]
	seesAll := func() bool {
		state := last.cluster()
		n := 0
		for _, p := range state.Providers {
			if !p.Own {
				n++
			}
		}
		return len(state.Sessions) == gateways*sessions && n == gateways*connected
	}
	until(t, "the last gateway sees all", seesAll)
	for _, m := range machines {
		until(t, fmt.Sprintf("gateway %s takes at most %d MiB", m.name, maxAtRest), func() bool {
			return m.resident() <= maxAtRest
		})
		most := m.mostResident()
		t.Logf("gateway %s: at most %d MiB resident, %d at rest", m.name, most, m.resident())
		if most > maxResident {
			t.Errorf("gateway %s took %d MiB, want at most %d", m.name, most, maxResident)
		}
	}
	last.kill()
	last.boot()
	began := time.Now()
	until(t, "who joins sees all that the others share", func() bool {
		state := last.cluster()
		n := 0
		for _, p := range state.Providers {
			if p.Gateway != last.name {
				n++
			}
		}
		return len(state.Sessions) == (gateways-1)*sessions && n == (gateways-1)*connected
	})
	t.Logf("who joins sees all after %s", time.Since(began).Round(time.Millisecond))
}
