package supervisor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Whatever is done to the directory, what runs is what its files last said while
// they could be used; what was not touched is left alone; nothing is left at the
// end.
func TestRandomEdits(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 100
	}
	t.Run("in process", func(t *testing.T) {
		var alive sync.WaitGroup
		var r *rig
		instance := &atomic.Int64{}
		r = newRig(t, func(o *Options) {
			g := o.Gateway
			o.Launch = map[string]Launcher{configs.KindCommand: func(ctx context.Context, run Run) error {
				alive.Add(1)
				defer alive.Done()
				offer(ctx, g, run, fmt.Sprint("instance ", instance.Add(1)))
				return nil
			}}
		})
		randomEdits(t, r, n, func(tool, sessions string) string {
			return fmt.Sprintf("kind = \"command\"\ncommand = [\"none\"]\n%s\nenv = { TOOL = %q }\n", sessions, tool)
		})
		r.s.Close()
		alive.Wait()
	})
	t.Run("processes", func(t *testing.T) {
		r := newRig(t)
		randomEdits(t, r, n, func(tool, sessions string) string {
			more := []string{sessions, "VERSION=pid", "TOOL=" + tool}
			if sessions == forAll {
				more = append(more, "ALL=1")
			}
			return r.file("plain", more...)
		})
	})
}

// offer is a provider in this process: its tool says which instance it is of.
func offer(ctx context.Context, g *gateway.Gateway, run Run, about string) {
	c := g.Connect(silent{}, gateway.ConnOptions{})
	defer c.Closed()
	c.ReceiveMessage(&protocol.Auth{Token: run.Token})
	version := protocol.Version
	c.ReceiveMessage(&protocol.Hello{Name: run.Provider.Name, ProtocolVersion: &version, Session: run.Session,
		Tools: []protocol.Tool{{Name: run.Provider.Env["TOOL"], Description: about, Parameters: protocol.Raw(`{}`)}}})
	<-ctx.Done()
}

type silent struct{}

func (silent) Send(protocol.Message)            {}
func (silent) Flush()                           {}
func (silent) Close(protocol.CloseCode, string) {}

// directory is what the model knows of the files.
type directory struct {
	good    map[string]string // the tool that a file last named while it could be used, of those that are there
	touched map[string]bool   // since the last look
}

// settled waits until all that should run does, and nothing else.
func (r *rig) settled() {
	r.t.Helper()
	timeout, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		settled := true
		r.s.do(func() {
			for _, sl := range r.s.slots {
				settled = settled && sl.next == nil && sl.now.isBound() && !sl.isOutgoing
			}
		})
		if settled {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			r.t.Fatalf("not all that should run does: faults %v", r.s.Faults())
		}
	}
}

func randomEdits(t *testing.T, r *rig, n int, valid func(tool, sessions string) string) {
	session, _ := r.session("one")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	d := directory{map[string]string{}, map[string]bool{}}
	names := []string{"a", "b", "c", "d", "e"}
	path := func(name string) string { return filepath.Join(r.dir, name+".toml") }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	replace := func(name, text string) {
		must(os.WriteFile(path(name)+".new", []byte(text), 0o600))
		must(os.Rename(path(name)+".new", path(name)))
	}
	instances := map[string]string{}
	for i := range n {
		name := names[rnd.IntN(len(names))]
		tool := fmt.Sprintf("t%d", i)
		text := valid(tool, []string{forEach, forAll, forOne, forTests}[rnd.IntN(4)])
		_, statErr := os.Lstat(path(name))
		exists := statErr == nil
		op := rnd.IntN(10)
		if rnd.IntN(40) == 0 {
			op = 10
		}
		d.touched[name] = d.touched[name] || op < 8
		switch op {
		case 0, 1: // written in place
			must(os.WriteFile(path(name), []byte(text), 0o600))
			d.good[name] = tool
		case 2: // as editors do
			replace(name, text)
			d.good[name] = tool
		case 3: // a link that is swapped for another
			target := filepath.Join(t.TempDir(), "target")
			must(os.WriteFile(target, []byte(text), 0o600))
			_ = os.Remove(path(name) + ".link")
			must(os.Symlink(target, path(name)+".link"))
			must(os.Rename(path(name)+".link", path(name)))
			d.good[name] = tool
		case 4: // cut to nothing
			must(os.WriteFile(path(name), nil, 0o600))
		case 5: // half of it
			must(os.WriteFile(path(name), []byte(text[:rnd.IntN(8)+2]), 0o600))
		case 6: // a fault
			replace(name, text+"nonsense = 1\n")
		case 7:
			if exists {
				must(os.Remove(path(name)))
			}
			delete(d.good, name)
		case 8: // another name: the tool moves with it
			to := names[rnd.IntN(len(names))]
			if !exists || to == name {
				break
			}
			d.touched[name], d.touched[to] = true, true
			// What it says counts under the new name, if it can be used.
			data, err := os.ReadFile(path(name))
			must(err)
			must(os.Rename(path(name), path(to)))
			if p, faults := configs.ParseProvider(path(to), data); len(faults) == 0 {
				d.good[to] = p.Env["TOOL"]
			}
			delete(d.good, name)
		case 9: // what it says already
			if data, err := os.ReadFile(path(name)); err == nil {
				replace(name, string(data))
			}
		case 10: // the whole directory goes, and comes again with one file
			must(os.RemoveAll(r.dir))
			if rnd.IntN(2) == 0 {
				r.s.Reload()
			}
			must(os.Mkdir(r.dir, 0o700))
			for _, name := range names {
				d.touched[name] = true
			}
			clear(d.good)
			replace(name, text)
			d.good[name] = tool
		}
		r.s.Reload()
		if rnd.IntN(4) > 0 && i < n-1 {
			continue // the next comes while this one is being acted on
		}
		r.settled()
		now := map[string]string{}
		tools := session.Tools()
		for name, tool := range d.good {
			if k := slices.IndexFunc(tools, func(t adminapi.Tool) bool { return t.Name == tool }); k >= 0 {
				now[name] = tools[k].Description
			}
		}
		if len(now) != len(d.good) || len(tools) != len(d.good) {
			t.Fatalf("step %d: the files say %v, the session has %v", i, d.good, tools)
		}
		for name, about := range instances {
			if !d.touched[name] && now[name] != about {
				t.Errorf("step %d: %s was left alone, and started again: %s, then %s", i, name, about, now[name])
			}
		}
		instances = now
		clear(d.touched)
	}
}
