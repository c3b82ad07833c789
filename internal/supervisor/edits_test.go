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

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// After any edits of the directory, the running providers match the last usable version of its
// files; untouched ones are left alone; nothing is left at the end.
func TestRandomEdits(t *testing.T) {
	t.Parallel()
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
			o.Launch = map[string]Launcher{configs.KindCommand: func(
				ctx context.Context, run *Run) error {
				alive.Add(1)
				defer alive.Done()
				offer(ctx, g, run, fmt.Sprint("instance ", instance.Add(1)))
				return nil
			}}
		})
		randomEdits(t, r, n, func(tool, sessions string) string {
			return fmt.Sprintf(
				"kind = \"command\"\ncommand = [\"none\"]\n%s\nenv = { TOOL = %q }\n", sessions,
				tool)
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
func offer(ctx context.Context, g *gateway.Gateway, run *Run, about string) {
	c := g.Connect(silent{}, gateway.ConnOptions{})
	defer c.Closed()
	c.Receive(protocol.Append(nil, &protocol.Auth{Token: run.Token}))
	version := protocol.Version
	c.Receive(
		protocol.Append(nil, &protocol.Hello{Name: run.Provider.Name, ProtocolVersion: &version,
			Session: run.Session,
			Tools: []protocol.Tool{
				{Name: run.Provider.Env["TOOL"], Description: about,
					Parameters: protocol.Raw(`{}`)},
			}}),
	)
	<-ctx.Done()
}

type silent struct{}

func (silent) Send(protocol.Message)            {}
func (silent) Flush()                           {}
func (silent) Close(protocol.CloseCode, string) {}

// directory is the model's copy of the files.
type directory struct {
	// the tool that a file last named while it could be used, of those that are there
	good    map[string]string
	touched map[string]bool // since the last look
}

// waitSettled waits until all that should run does, and nothing else.
func (r *rig) waitSettled() {
	r.t.Helper()
	r.eventually(func() error {
		settled := true
		r.s.do(func() {
			for _, pl := range r.s.placements {
				settled = settled && pl.next == nil && pl.now.isBound() && !pl.isOutgoing
			}
		})
		if !settled {
			return fmt.Errorf("not all that should run does: faults %v", r.s.Faults())
		}
		return nil
	})
}

// editor changes provider files at random and remembers their content.
type editor struct {
	directory
	t         *testing.T
	r         *rig
	rnd       *rand.Rand
	session   *gateway.Session
	names     []string
	instances map[string]string // by name, the description of its tool at the last check
}

func (e *editor) path(name string) string { return filepath.Join(e.r.dir, name+".toml") }

func (e *editor) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *editor) replace(name, text string) {
	e.must(os.WriteFile(e.path(name)+".new", []byte(text), 0o600))
	e.must(os.Rename(e.path(name)+".new", e.path(name)))
}

func randomEdits(t *testing.T, r *rig, n int, valid func(tool, sessions string) string) {
	session, _ := r.session("one")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	e := &editor{
		directory: directory{map[string]string{}, map[string]bool{}},
		t:         t, r: r, rnd: rand.New(rand.NewPCG(seed, 0)), session: session,
		names: []string{"a", "b", "c", "d", "e"}, instances: map[string]string{},
	}
	for i := range n {
		tool := fmt.Sprintf("t%d", i)
		e.edit(tool, valid(tool, []string{forEach, forAll, forOne, forTests}[e.rnd.IntN(4)]))
		r.s.Reload()
		if e.rnd.IntN(4) > 0 && i < n-1 {
			continue // the next edit comes while this one is being applied
		}
		r.waitSettled()
		e.check(i)
	}
}

// edit changes one file. A valid file has text, which offers tool.
func (e *editor) edit(tool, text string) {
	name := e.names[e.rnd.IntN(len(e.names))]
	_, statErr := os.Lstat(e.path(name))
	exists := statErr == nil
	op := e.rnd.IntN(10)
	if e.rnd.IntN(40) == 0 {
		op = 10
	}
	e.touched[name] = e.touched[name] || op < 8
	switch op {
	case 0, 1: // written in place
		e.must(os.WriteFile(e.path(name), []byte(text), 0o600))
		e.good[name] = tool
	case 2: // as editors do
		e.replace(name, text)
		e.good[name] = tool
	case 3: // a link that is swapped for another
		target := filepath.Join(e.t.TempDir(), "target")
		e.must(os.WriteFile(target, []byte(text), 0o600))
		_ = os.Remove(e.path(name) + ".link")
		e.must(os.Symlink(target, e.path(name)+".link"))
		e.must(os.Rename(e.path(name)+".link", e.path(name)))
		e.good[name] = tool
	case 4: // cut to nothing
		e.must(os.WriteFile(e.path(name), nil, 0o600))
	case 5: // half of it
		e.must(os.WriteFile(e.path(name), []byte(text[:e.rnd.IntN(8)+2]), 0o600))
	case 6: // a fault
		e.replace(name, text+"nonsense = 1\n")
	case 7:
		if exists {
			e.must(os.Remove(e.path(name)))
		}
		delete(e.good, name)
	case 8: // another name: the tool moves with it
		to := e.names[e.rnd.IntN(len(e.names))]
		if !exists || to == name {
			break
		}
		e.touched[name], e.touched[to] = true, true
		// The content counts under the new name, if it can be used.
		data, err := os.ReadFile(e.path(name))
		e.must(err)
		e.must(os.Rename(e.path(name), e.path(to)))
		if p, faults := configs.ParseProvider(e.path(to), data); len(faults) == 0 {
			e.good[to] = p.Env["TOOL"]
		}
		delete(e.good, name)
	case 9: // the same content again
		if data, err := os.ReadFile(e.path(name)); err == nil {
			e.replace(name, string(data))
		}
	case 10: // the whole directory goes, and comes again with one file
		e.must(os.RemoveAll(e.r.dir))
		if e.rnd.IntN(2) == 0 {
			e.r.s.Reload()
		}
		e.must(os.Mkdir(e.r.dir, 0o700))
		for _, name := range e.names {
			e.touched[name] = true
		}
		clear(e.good)
		e.replace(name, text)
		e.good[name] = tool
	}
}

// check compares the session's tools with the files, and finds providers that were restarted
// without a reason.
func (e *editor) check(i int) {
	e.t.Helper()
	now := map[string]string{}
	tools := e.session.Tools()
	for name, tool := range e.good {
		if k := slices.IndexFunc(tools, func(t adminapi.Tool) bool {
			return t.Name == tool
		}); k >= 0 {
			now[name] = tools[k].Description
		}
	}
	if len(now) != len(e.good) || len(tools) != len(e.good) {
		e.t.Fatalf("step %d: the files say %v, the session has %v, want the same number of both", i,
			e.good, tools)
	}
	for name, about := range e.instances {
		if !e.touched[name] && now[name] != about {
			e.t.Errorf(
				"step %d: %s was left alone and ran as %s, now %s, want the same process",
				i, name, about, now[name],
			)
		}
	}
	e.instances = now
	clear(e.touched)
}
