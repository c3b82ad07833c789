//go:build e2e && linux

package cluster

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// registryTraffic is how many messages n gateways that admit each other, without connections between them, make a NATS
// server take and give in a second: each writes its key every 3 seconds, gets an answer, and everybody watches.
func registryTraffic(n float64) (in, out float64) {
	const beats = 1.0 / 3
	return n * beats, n*beats + n*n*beats
}

// TestRegistryTraffic holds the sum of docs/cluster.md against five real gateways.
func TestRegistryTraffic(t *testing.T) {
	const gateways, period = 5, 30 * time.Second
	s, err := server.NewServer(&server.Options{ServerName: "n", Host: "127.0.0.1", Port: -1, JetStream: true,
		StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server is not ready")
	}
	var machines []*machine
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		machines = append(machines, newMachine(t, name, []string{s.ClientURL()}, admitting(name)))
	}
	for _, m := range machines {
		until(t, m.name+" sees all", func() bool { return len(m.cluster().Gateways) == gateways-1 })
	}
	measure := func() *server.Varz {
		v, err := s.Varz(nil)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := measure()
	pause(int(period.Seconds()))
	after := measure()
	perSecond := func(a, b int64) float64 { return float64(b-a) / period.Seconds() }
	in, out := perSecond(before.InMsgs, after.InMsgs), perSecond(before.OutMsgs, after.OutMsgs)
	wantIn, wantOut := registryTraffic(gateways)
	t.Logf("messages a second: in %.1f (sum: %.1f), out %.1f (sum: %.1f); bytes a second: in %.0f, out %.0f",
		in, wantIn, out, wantOut, perSecond(before.InBytes, after.InBytes), perSecond(before.OutBytes, after.OutBytes))
	if in > 1.3*wantIn || in < 0.7*wantIn || out > 1.3*wantOut || out < 0.7*wantOut {
		t.Errorf("messages a second: in %.1f, out %.1f, want about %.1f and %.1f", in, out, wantIn, wantOut)
	}
}
