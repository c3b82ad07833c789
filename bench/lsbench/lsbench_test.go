//go:build runtime

package lsbench

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tapgw/internal/langserver"
	"tapgw/internal/proc"
	"tapgw/internal/taptest/cloud"
)

// stage is what both clients run on: a server's program, a stand-in for GitHub, a
// home and a workspace.
type stage struct {
	server    string
	env       map[string]string
	workspace string
}

func newStage(b *testing.B) stage {
	b.Helper()
	server := os.Getenv(langserver.EnvServer)
	if server == "" {
		const installed = "../../.runtime/node_modules/@github/copilot-language-server-*/copilot-language-server"
		found, err := filepath.Glob(installed)
		if err != nil || len(found) == 0 {
			b.Fatalf(
				"no Copilot language server at %s: run `make runtime`, want no error and at least one", installed)
		}
		if server, err = filepath.Abs(found[0]); err != nil {
			b.Fatal(err)
		}
	}
	c, err := cloud.Start(cloud.Calls)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	home := b.TempDir()
	s := stage{server: server, env: c.Env(), workspace: filepath.Join(home, "workspace")}
	maps.Copy(s.env,
		map[string]string{"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, ".config")})
	if err := os.Mkdir(s.workspace, 0o755); err != nil {
		b.Fatal(err)
	}
	return s
}

func (s stage) raw(b *testing.B) *raw {
	b.Helper()
	r, err := startRaw(s.server, s.workspace, proc.Environ(s.env))
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (s stage) client(b *testing.B) *langserver.Client {
	b.Helper()
	c, err := langserver.Start(b.Context(),
		langserver.Options{Command: s.server, Workspace: s.workspace, Env: s.env})
	if err != nil {
		b.Fatal(err)
	}
	if status, err := c.Status(b.Context()); err != nil || !status.OK {
		b.Fatalf("the server's status is %+v, %v; want OK", status, err)
	}
	return c
}

// times are what an operation took, once an iteration.
type times []time.Duration

func (t *times) add(do func()) {
	start := time.Now()
	do()
	*t = append(*t, time.Since(start))
}

func (t times) median() float64 {
	slices.Sort(t)
	return float64(t[len(t)/2]) / float64(time.Millisecond)
}

func report(b *testing.B, floor, client times) {
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(floor.median(), "floor-ms")
	b.ReportMetric(client.median(), "client-ms")
	b.ReportMetric(client.median()/floor.median(), "ratio")
}

// BenchmarkReady is the time from the start of the process to the answer that
// somebody is signed in.
func BenchmarkReady(b *testing.B) {
	s := newStage(b)
	s.raw(b).stop() // the server unpacks itself into a new home
	var floor, client times
	for b.Loop() {
		var r *raw
		floor.add(func() { r = s.raw(b) })
		r.stop()
		var c *langserver.Client
		client.add(func() { c = s.client(b) })
		c.Close()
	}
	report(b, floor, client)
}

// BenchmarkFirstToken is the time from the start of the process to the first text of the model.
// Target: 1.1 times the floor.
func BenchmarkFirstToken(b *testing.B) {
	s := newStage(b)
	s.raw(b).stop()
	var floor, client times
	for b.Loop() {
		var r *raw
		floor.add(func() {
			r = s.raw(b)
			if text, err := r.turn("hello"); err != nil || text == "" {
				b.Fatalf("a turn without the client: got %q and %v, want a text", text, err)
			}
		})
		r.stop()
		var c *langserver.Client
		var first time.Time
		start := time.Now()
		c = s.client(b)
		_, err := c.NewConversation(langserver.ConversationOptions{Model: "scripted"}).Turn(
			b.Context(), "hello",
			func(e langserver.Event) {
				if _, ok := e.(langserver.Text); ok && first.IsZero() {
					first = time.Now()
				}
			})
		if err != nil || first.IsZero() {
			b.Fatalf(
				"a turn: the first text came at %v, with the error %v; want a text and no error",
				first, err)
		}
		client = append(client, first.Sub(start))
		c.Close()
	}
	report(b, floor, client)
}

// BenchmarkTurn is an agent turn in which the model calls one tool and then says
// what it answered. Target: 1.15 times the floor.
func BenchmarkTurn(b *testing.B) {
	s := newStage(b)
	r := s.raw(b)
	defer r.stop()
	c := s.client(b)
	defer c.Close()
	if err := r.register("answers"); err != nil {
		b.Fatal(err)
	}
	faults, err := c.SetTools(b.Context(), []langserver.Tool{{
		Name: "answers", Description: "A tool.",
		Parameters: []byte(`{"type":"object","properties":{},"required":[]}`),
		Call: func(context.Context, langserver.Invocation) langserver.Outcome {
			return langserver.Succeeded("answered")
		},
	}})
	if err != nil || len(faults) > 0 {
		b.Fatalf("setting the tools: got the faults %v and %v, want none", faults, err)
	}
	check := func(text string, err error) {
		if err != nil || text != "answered" {
			b.Fatalf(`%q %v, want no error and "answered"`, text, err)
		}
	}
	byRaw := func() { check(r.turn("call:answers")) }
	byClient := func() {
		t, err := c.NewConversation(langserver.ConversationOptions{Model: "scripted"}).Turn(
			b.Context(), "call:answers",
			nil)
		check(t.Text, err)
	}
	for range 5 { // the first turns are slower, for both
		byRaw()
		byClient()
	}
	var floor, client times
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			floor.add(byRaw)
			client.add(byClient)
		} else {
			client.add(byClient)
			floor.add(byRaw)
		}
	}
	report(b, floor, client)
}
