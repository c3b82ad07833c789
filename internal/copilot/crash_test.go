//go:build runtime && unix

package copilot

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// runtimePID is the process that serves the sessions now.
func (g *rig) runtimePID() int {
	g.t.Helper()
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	if g.r.proc == nil || g.r.proc.pid == 0 {
		g.t.Fatal("no runtime runs, want one")
	}
	return g.r.proc.pid
}

func (g *rig) signal(sig syscall.Signal) {
	g.t.Helper()
	if err := syscall.Kill(g.runtimePID(), sig); err != nil {
		g.t.Fatal(err)
	}
}

func TestRuntimeKilledInMidTurn(t *testing.T) {
	g := newRig(t)
	s, other := g.start(), g.start()
	started, ended := make(chan struct{}), make(chan struct{})
	s.tool("slow", func(ctx context.Context, _ string) gateway.Outcome {
		close(started)
		<-ctx.Done()
		close(ended)
		return gateway.Outcome{}
	})
	s.tool("quick", text("here I am"))
	other.tool("quick", text("me too"))
	other.turn("remember me")
	s.turn("remember this")
	s.send("call:slow")
	within(t, started, "the call")
	before := g.runtimePID()

	g.signal(syscall.SIGKILL)
	within(t, ended, "the call's end")
	s.waitIdle(2)
	other.waitIdle(2)
	if errs := s.errors(); len(errs) != 1 ||
		!strings.Contains(errs[0], "the turn is lost: the Copilot runtime ended") {
		t.Errorf(
			`errors of the session with a turn: %q, want one, "the turn is lost: the Copilot runtime ended"`,
			errs,
		)
	}
	if errs := other.errors(); len(errs) != 0 {
		t.Errorf("errors of the other: %q, want none", errs)
	}
	for _, x := range []*fakeSession{s, other} {
		if !strings.Contains(x.allNotes(), "died and was started again") {
			t.Errorf(`notes: %s, want "died and was started again" in it`, x.allNotes())
		}
	}
	if g.runtimePID() == before {
		t.Error("it is the same process, want another one after the crash")
	}
	// The tools are there again, and so is what was said before.
	s.turn("call:quick")
	other.turn("call:quick")
	if s.lastSaid() != "here I am" || other.lastSaid() != "me too" {
		t.Errorf(`after the restart: %q, %q, want "here I am" and "me too"`, s.lastSaid(),
			other.lastSaid())
	}
	reqs := g.model.Requests()
	if body := string(reqs[len(reqs)-1].Body); !strings.Contains(body, "remember me") {
		t.Error("the history before the kill is gone, want it in the next request")
	}
	var open int
	for _, e := range s.allEvents() {
		switch e.Callback {
		case gateway.OnStartToolExecution:
			open++
		case gateway.OnEndToolExecution:
			open--
		}
	}
	if open != 0 {
		t.Errorf("%d tool executions have no end, want 0", open)
	}
}

// TestPromptBeforeTheSessionIsKnownToBeBack: a prompt that is sent to the next runtime
// before the session was told that it is back makes one turn, with one end.
func TestPromptBeforeTheSessionIsKnownToBeBack(t *testing.T) {
	g := newRig(t)
	s := g.start()
	lost, goOn := make(chan struct{}), make(chan struct{})
	s.hears = func(e gateway.Event) {
		if strings.Contains(e.SessionError, "the turn is lost") {
			close(lost)
			<-goOn
		}
	}
	s.tool("slow", func(ctx context.Context, _ string) gateway.Outcome {
		g.signal(syscall.SIGKILL)
		<-ctx.Done()
		return gateway.Outcome{}
	})
	s.send("call:slow")
	within(t, lost, "the end of the runtime")
	s.prompt(gateway.Prompt{ID: "second", Text: "hello again"})
	close(goOn)
	s.wait("the turn's end", func() bool { _, over := s.over["second"]; return over })
	s.waitIdle(1)
	s.turn("and again")
	if s.busy != 3 || s.idle != 2 || s.said()[0] != "You said: hello again" ||
		s.over["second"] != "" {
		t.Errorf(
			`busy %d times, idle %d times, said %q, %q, want busy 3, idle 2, "You said: hello again" and ""`,
			s.busy, s.idle, s.said(), s.over,
		)
	}
}

// A session of which nothing was saved is made anew.
func TestRuntimeKilledBeforeTheFirstTurn(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.tool("quick", text("here I am"))
	g.signal(syscall.SIGKILL)
	s.waitIdle(1)
	s.turn("call:quick")
	if s.lastSaid() != "here I am" {
		t.Errorf(`the model said %q, want "here I am"`, s.lastSaid())
	}
}

// What the gateway asks while the runtime is down happens when it is back.
func TestRuntimeDown(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.turn("hello")
	for range 3 {
		g.signal(syscall.SIGKILL)
		s.tool("quick", text("here I am"))
		s.host.Log(adminapi.LogInfo, "a line meanwhile")
		if _, err := s.host.Interrupt(g.ctx, "meanwhile"); err != nil &&
			!strings.Contains(err.Error(), "the Copilot runtime ended") {
			t.Errorf(`interrupting: %v, want no error or "the Copilot runtime ended" in it`, err)
		}
		n := s.idles()
		s.waitIdle(n)
		if err := s.host.Send(g.ctx,
			gateway.Prompt{Text: "call:quick", Source: gateway.SourceUser}); err != nil {
			if !strings.Contains(err.Error(), "the Copilot runtime ended") {
				t.Errorf(`sending: %v, want "the Copilot runtime ended" in it`, err)
			}
			s.turn("call:quick")
		}
		s.wait("the tool's answer", func() bool {
			last := ""
			for _, e := range s.events {
				if e.Callback == gateway.OnEndMessage {
					last = e.Content
				}
			}
			return last == "here I am"
		})
		s.removeTool("quick")
		s.turn("done")
	}
}

// A runtime that does not come up again is given up, and its sessions end.
func TestRuntimeGivenUp(t *testing.T) {
	var flag string
	g := newRig(t, func(o *Options) {
		dir := t.TempDir()
		flag = filepath.Join(dir, "broken")
		script := filepath.Join(dir, "copilot")
		body := fmt.Sprintf(
			"#!/bin/sh\n[ -e %q ] && { echo out of order >&2; exit 3; }\nexec %q \"$@\"\n", flag,
			o.CLI)
		if err := os.WriteFile(script, []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
		o.CLI = script
	})
	s := g.start()
	s.turn("hello")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	g.signal(syscall.SIGKILL)
	s.wait("the end", func() bool { return s.ended != "" })
	if !strings.Contains(s.ended, "out of order") ||
		!strings.Contains(s.ended, "5 times within a minute") {
		t.Errorf(
			`the session ended because %q, want "out of order" and "5 times within a minute" in it`,
			s.ended)
	}
	if err := s.host.Send(g.ctx, gateway.Prompt{Text: "x"}); err == nil {
		t.Error("an ended session took a prompt, want an error")
	}
	if err := s.host.Close(g.ctx, "ended"); err != nil {
		t.Errorf("closing an ended session: %v", err)
	}
	// When it is mended, new sessions start.
	if err := os.Remove(flag); err != nil {
		t.Fatal(err)
	}
	again := g.start()
	again.turn("hello")
}

// A runtime that hangs is ended and replaced.
func TestRuntimeHangs(t *testing.T) {
	g := newRig(t)
	s := g.start()
	s.turn("hello")
	g.r.mu.Lock()
	p := g.r.proc
	g.r.mu.Unlock()
	p.ping = 100 * time.Millisecond
	g.signal(syscall.SIGSTOP)
	// It may answer a last time before the signal stops it.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !p.hasEnded() {
		p.checkAlive()
		select {
		case <-tick.C:
		case <-g.ctx.Done():
			t.Fatal("a hung runtime was left alone, want its end")
		}
	}
	s.waitIdle(2)
	s.turn("hello again")
	if s.lastSaid() != "You said: hello again" {
		t.Errorf(`the model said %q, want "You said: hello again"`, s.lastSaid())
	}
}

// A session whose runtime can't be stopped politely is closed in time.
func TestCloseOfAHungRuntime(t *testing.T) {
	g := newRig(t)
	g.start()
	g.signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.r.Close(ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
	}()
	within(t, done, "Close")
}

const orphanEnv = "TAPGW_TEST_ORPHAN"

// A session that is resumed in a new runtime reads as before.
func TestSectionsSurviveCrash(t *testing.T) {
	g := newRig(t)
	e := &editor{marks: map[string]string{"guidelines": "STATE"}}
	s := g.start()
	s.transform, s.varies = e.transform, true
	s.turn("hello")
	g.signal(syscall.SIGKILL)
	s.waitIdle(2)
	s.turn("hello again")
	reqs := g.model.Requests()
	if last := reqs[len(reqs)-1].System(); !strings.Contains(last, "STATE (2)") ||
		strings.Count(last, repeatNotice) != 1 {
		t.Errorf(
			`after the crash the model was told %q, want "STATE (2)" in it and %q once`,
			between(last, "STATE", ")"), repeatNotice,
		)
	}
}

// TestOrphan is the victim of TestNothingIsLeftOfAKilledGateway: it starts a
// session, says which process serves it and waits to be killed.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphanEnv) == "" {
		return
	}
	g := newRig(t, func(o *Options) {
		o.Env = func() []string {
			return []string{"TAP_GATEWAY_URL=ws://here", "TAP_ADMIN_TOKEN=from the caller"}
		}
	})
	g.start().turn("hello")
	fmt.Fprintf(os.Stdout, "\nserved by %d\n", g.runtimePID())
	<-g.ctx.Done()
}

func TestNothingIsLeftOfAKilledGateway(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestOrphan$", "-test.v")
	cmd.Env = append(
		os.Environ(), orphanEnv+"=1", "COPILOT_CLI_PATH="+testRuntime(t),
		"TAP_ADMIN_TOKEN=adm-secret",
		"TMPDIR="+t.TempDir(),
	)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	var seen strings.Builder
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		seen.WriteString(lines.Text() + "\n")
		if text, ok := strings.CutPrefix(lines.Text(), "served by "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	if pid == 0 {
		_ = cmd.Wait()
		t.Fatalf("no session came up: %s, want a runtime for it", seen.String())
	}
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("process group of the runtime %d: %d, %v, want no error and %d", pid, group, err,
			pid)
	}
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil {
		if strings.Contains(string(env), "TAP_ADMIN_TOKEN") ||
			!strings.Contains(string(env), "TAP_GATEWAY_URL=ws://here\x00") {
			t.Errorf(
				`environment of the runtime: %q, want no "TAP_ADMIN_TOKEN" in it and %q in it`,
				env, "TAP_GATEWAY_URL=ws://here\x00",
			)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); alive(pid); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the runtime %d still runs %v after the gateway was killed, want its end", pid,
				time.Since(began))
		}
	}
}

// alive reports whether a process runs; a zombie, which nobody may reap in a
// container, does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// TestShellHasItsOwnSession: the shell of each session has what is the session's alone,
// whatever becomes of the runtime, and the runtime's environment has it not. It is gone
// with the session.
func TestShellHasItsOwnSession(t *testing.T) {
	g := newRig(t, func(o *Options) {
		o.Permissions.Shell = configs.Allow
		o.SessionEnv = func(session string) []string {
			return []string{"TAP_OWN=it's " + session, "TAP_ADMIN_TOKEN=never"}
		}
	})
	one, two := g.start(), g.start()
	says := func(s *fakeSession, when string) {
		t.Helper()
		n := s.idles()
		s.send(shellCall(`sh -c 'echo "own: $TAP_OWN admin: $TAP_ADMIN_TOKEN."'`))
		s.waitIdle(n + 1)
		if want := "own: it's " + s.id + " admin: ."; !strings.Contains(s.lastSaid(), want) {
			t.Errorf("%s: the shell says %q, want %q", when, s.lastSaid(), want)
		}
	}
	says(one, "at first")
	says(two, "at first")
	if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", g.runtimePID())); err == nil &&
		strings.Contains(string(env), "TAP_OWN") {
		t.Errorf(`environment of the runtime: %q, want no "TAP_OWN" in it`, env)
	}
	one.preToolUse = func(string, protocol.Raw) gateway.Decision { return gateway.Decision{} }
	says(one, "with hooks")
	g.signal(syscall.SIGKILL)
	one.waitIdle(3)
	two.waitIdle(2)
	says(one, "in the next runtime")
	says(two, "in the next runtime")
	file := one.host.(*session).shellFile
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the shell's file: %v, %v, want no error and 0o600", info, err)
	}
	if err := one.host.Close(g.ctx, "test"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the shell's file is there after its session ended, want no file")
	}
}
