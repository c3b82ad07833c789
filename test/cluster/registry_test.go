//go:build e2e && linux

package cluster

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"tapgw/internal/cluster"
)

// What the messages of gateways have in bytes, by their formats: a message of a trunk begins with
// 25, and a record in it with 14; the first byte of a question says which it is, and the first of
// its answer whether it is one.
const (
	question  = 25 + 14 + 1
	emptyList = 25 + 14 + 1 + len(`{"sessions":[],"providers":[]}`)
)

// traffic is what a NATS server takes or gives.
type traffic struct{ messages, bytes float64 }

func (t *traffic) add(messages, bytes int) {
	t.messages += float64(messages)
	t.bytes += float64(messages * bytes)
}

func (t traffic) per(d time.Duration) traffic {
	return traffic{t.messages / d.Seconds(), t.bytes / d.Seconds()}
}

func (t traffic) String() string {
	return fmt.Sprintf("%.1f messages, %.0f bytes", t.messages, t.bytes)
}

// isNear reports whether a measured traffic is what was predicted, within a part of it.
func (t traffic) isNear(predicted traffic, part float64) bool {
	near := func(a, b float64) bool { return a >= b*(1-part) && a <= b*(1+part) }
	return near(t.messages, predicted.messages) && near(t.bytes, predicted.bytes)
}

// fleet is a number of gateways, of which each admits some others. None has connections to another.
type fleet struct {
	gateways, admitted int
	// bytes of a key, of the server's answer, and of a session or provider in a list
	beat, ack, row int
}

// beatEvery is the time between two writes of a gateway to the registry.
const beatEvery = 3 * time.Second

// simulate plays some beats of the fleet. rows says how many sessions and providers a gateway
// shares at a beat.
//
// At each beat a gateway writes its key, is answered, and everybody who watches the registry gets
// the key. When it shares something else than before, those whom it admits see that by the key,
// ask, and get the whole list.
func (f fleet) simulate(beats int, rows func(gateway, beat int) int) (in, out traffic) {
	for beat := range beats {
		for g := range f.gateways {
			in.add(1, f.beat)
			out.add(1, f.ack)
			out.add(f.gateways, f.beat)
			now := rows(g, beat)
			if beat == 0 || now == rows(g, beat-1) {
				continue
			}
			for _, t := range []*traffic{&in, &out} {
				t.add(f.admitted, question)
				t.add(f.admitted, emptyList+now*(f.row+1))
			}
		}
	}
	period := time.Duration(beats) * beatEvery
	return in.per(period), out.per(period)
}

// stored is how many bytes the registry has: NATS keeps 16 beside subject and value of each key.
func (f fleet) stored() int { return f.gateways * (f.beat + len("$KV.tapgw.a") + 16) }

func sizeOf(v any) int {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it is a struct of texts and numbers
	}
	return len(data)
}

// TestRegistryTraffic holds the simulation against five real gateways, at rest and while sessions
// start, and then prints what README.md says of larger fleets.
func TestRegistryTraffic(t *testing.T) {
	const gateways, beats, tolerance = 5, 10, 0.25
	s, err := server.NewServer(&server.Options{ServerName: "n", Host: "127.0.0.1", Port: -1,
		JetStream: true, StoreDir: t.TempDir(), JetStreamMaxMemory: 64 << 20, NoSigs: true,
		NoLog: true})
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
	started := 0
	start := func() {
		for _, m := range machines {
			m.session(fmt.Sprint("session-", started))
		}
		started++
	}
	start()
	session := machines[0].cluster().Sessions[0]
	session.Gateway, session.CWD = "", ""
	beat := cluster.Beat{Version: "devel", StartedAt: time.Now().UTC().Truncate(time.Millisecond),
		Lists: 1 << 63}
	f := fleet{gateways: gateways, admitted: gateways - 1, row: sizeOf(session), beat: sizeOf(beat),
		ack: len(`{"stream":"KV_tapgw","seq":100}`)}
	pause(2 * int(beatEvery.Seconds())) // the first sessions are known
	for _, phase := range []struct {
		name  string
		every int // beats between two starts of a session at each gateway; 0 for none
	}{{"at rest", 0}, {"while sessions start", 2}} {
		had, began := started, time.Now()
		before := varz(t, s)
		for beat := range beats {
			if phase.every > 0 && beat%phase.every == 0 {
				start()
			}
			pause(int(beatEvery.Seconds()))
		}
		after := varz(t, s)
		took := time.Since(began) // on a busy machine longer than the beats
		wantIn, wantOut := f.simulate(int((took+beatEvery/2)/beatEvery), func(_, beat int) int {
			if phase.every == 0 {
				return had
			}
			return min(had+(beat+1)/phase.every, started)
		})
		in := traffic{float64(after.InMsgs - before.InMsgs),
			float64(after.InBytes - before.InBytes)}
		out := traffic{float64(after.OutMsgs - before.OutMsgs),
			float64(after.OutBytes - before.OutBytes)}
		in, out = in.per(took), out.per(took)
		t.Logf("%s, a second: in %s (simulated: %s), out %s (simulated: %s)", phase.name, in,
			wantIn, out, wantOut)
		if !in.isNear(wantIn, tolerance) || !out.isNear(wantOut, tolerance) {
			t.Errorf("%s: in %s, out %s, want %s and %s within %.0f %%",
				phase.name, in, out, wantIn, wantOut, tolerance*100)
		}
	}
	js, err := s.Jsz(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the registry has %d bytes (simulated: %d)", js.Memory, f.stored())
	if stored := (traffic{1, float64(js.Memory)}); !stored.isNear(traffic{1, float64(f.stored())},
		tolerance) {
		t.Errorf("the registry has %d bytes, want %d within %.0f %%", js.Memory, f.stored(),
			tolerance*100)
	}
	for _, size := range []struct{ gateways, admitted int }{{100, 99}, {100, 10}, {1000, 999},
		{1000, 10}} {
		f.gateways, f.admitted = size.gateways, size.admitted
		_, quiet := f.simulate(20, func(int, int) int { return 1100 })
		// each changes once a minute
		_, busy := f.simulate(20, func(g, beat int) int { return 1100 + (beat+g)/20 })
		t.Logf(
			"%d gateways that admit %d, with 100 sessions and 1,000 providers each: the registry has %d bytes; "+
				"at rest %s out a second; if each list changes once a minute: %s", size.gateways,
			size.admitted, f.stored(), quiet, busy)
	}
}

func varz(t *testing.T, s *server.Server) *server.Varz {
	t.Helper()
	v, err := s.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
