//go:build runtime

package copilot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// next is another Runtime on the same home, as the next gateway has it.
func (g *rig) next(change ...func(*Options)) *rig {
	g.t.Helper()
	o := g.r.o
	for _, c := range change {
		c(&o)
	}
	n := *g
	n.r = New(o)
	g.t.Cleanup(func() {
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.r.Close(closing); err != nil {
			g.t.Errorf("closing the next runtime: %v", err)
		}
	})
	return &n
}

// resume brings a session back in this runtime, with tools that its provider has.
func (g *rig) resume(
	id string, req gateway.ResumeRequest, tools map[string]toolFunc,
) (*fakeSession, error) {
	g.t.Helper()
	s := &fakeSession{
		t: g.t, ctx: g.ctx, changed: make(chan struct{}), tools: map[string]toolFunc{},
		over: map[string]string{},
	}
	err := g.r.restore(g.ctx, id, req,
		func(spec gateway.SessionSpec, info gateway.HostInfo, h gateway.Host) (gateway.HostCalls,
			error) {
			s.id, s.host, s.info, s.spec = spec.ID, h, info, spec
			return s, nil
		})
	if err != nil {
		return nil, err
	}
	for name, f := range tools {
		s.tool(name, f)
	}
	return s, nil
}

func coded(err error) protocol.Code {
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Code
	}
	return ""
}

// startReview starts a session of the profile review, which has no bash, and has it say something
// and call a tool.
func startReview(t *testing.T) (*rig, *fakeSession) {
	t.Helper()
	profiles := func(o *Options) {
		o.Profile = configs.DefaultProfile()
		o.Profile.Provider.URL = o.ProviderURL
		review := o.Profile
		review.ExcludedTools = []string{"bash"}
		o.Profiles = map[string]configs.Profile{"review": review}
	}
	g := newRig(t, profiles)
	s := g.start(func(r *gateway.StartRequest) {
		r.Label, r.Profile, r.Effort = "tea@main", "review", "high"
	})
	s.tool("quick", text("the tea is ready"))
	s.turn("remember the kettle")
	s.turn("call:quick")
	return g, s
}

// stop ends the session, and then its runtime.
func (g *rig) stop(s *fakeSession) {
	g.t.Helper()
	if err := s.host.Close(g.ctx, "stopped"); err != nil {
		g.t.Fatal(err)
	}
	if err := g.r.Close(g.ctx); err != nil {
		g.t.Fatal(err)
	}
}

// TestSessionInUse: a session that another runtime has can't be resumed or deleted, and is listed
// as in use.
func TestSessionInUse(t *testing.T) {
	g, s := startReview(t)
	n := g.next()
	if _, err := n.resume(s.id, gateway.ResumeRequest{},
		nil); coded(err) != protocol.CodeInvalidState ||
		!strings.Contains(err.Error(), fmt.Sprintf("in use by process %d", g.runtimePID())) {
		t.Errorf(
			"resuming a session that runs elsewhere: %v, want %v and %q in it",
			err, protocol.CodeInvalidState, fmt.Sprintf("in use by process %d", g.runtimePID()),
		)
	}
	if err := n.r.Delete(n.ctx, s.id); coded(err) != protocol.CodeInvalidState {
		t.Errorf("deleting a session that runs elsewhere: %v, want %v", err,
			protocol.CodeInvalidState)
	}
	views, err := n.r.Persisted(n.ctx, gateway.PersistedFilter{})
	if err != nil || len(views) != 1 || views[0].State != adminapi.PersistedInUse {
		t.Fatalf("on disk: %+v, %v, want one, %v", views, err, adminapi.PersistedInUse)
	}
}

// TestPersisted: a session that has ended is listed with what it was, for its directory and for no
// other.
func TestPersisted(t *testing.T) {
	g, s := startReview(t)
	g.stop(s)
	n := g.next()
	views, err := n.r.Persisted(n.ctx, gateway.PersistedFilter{CWD: g.cwd})
	if err != nil || len(views) != 1 {
		t.Fatalf("on disk: %+v, %v, want one", views, err)
	}
	v := views[0]
	if v.ID != s.id || v.Label != "tea@main" || v.Profile != "review" ||
		v.Model != scriptmodel.ModelID || v.Host != Kind ||
		v.CWD != g.cwd ||
		v.State != adminapi.PersistedStored ||
		v.UsedAt.IsZero() {
		t.Errorf(
			"on disk: %+v, want ID %v, label tea@main, profile review, model %v, host %v, directory %v, %v and a time",
			v, s.id, scriptmodel.ModelID, Kind, g.cwd, adminapi.PersistedStored,
		)
	}
	if views, err := n.r.Persisted(n.ctx, gateway.PersistedFilter{CWD: "/elsewhere"}); err != nil ||
		len(views) != 0 {
		t.Errorf("of another directory: %+v, %v, want no error and none", views, err)
	}
}

// TestResume: a session goes on with its label, profile, history and timeline.
func TestResume(t *testing.T) {
	g, s := startReview(t)
	before := time.Now()
	s.host.Log(adminapi.LogWarning, "ci: the build is red")
	g.stop(s)
	n := g.next()
	again, err := n.resume(s.id, gateway.ResumeRequest{},
		map[string]toolFunc{"quick": text("it is cold")})
	if err != nil {
		t.Fatal(err)
	}
	if again.id != s.id || again.spec.Label != "tea@main" ||
		again.spec.Model != scriptmodel.ModelID || again.spec.CWD != g.cwd {
		t.Errorf(
			`registered as %+v, want id %v, Label "tea@main", Model %v and CWD %v`,
			again.spec, s.id, scriptmodel.ModelID, g.cwd,
		)
	}
	again.wait("what was said before", func() bool {
		return slices.ContainsFunc(again.runtime, func(e adminapi.RuntimeEvent) bool {
			return e.Type == "user.message" &&
				strings.Contains(string(e.Data), "remember the kettle")
		})
	})
	// Its timeline comes back, with its times.
	again.wait("the timeline", func() bool { return len(again.past) > 0 })
	var said []string
	for _, l := range again.past {
		said = append(said, fmt.Sprintf("%s %s: %s", l.Level, l.Source, l.Message))
		if l.TS.IsZero() || l.Message == "remember the kettle" && l.TS.After(before) {
			t.Errorf("%s is of %s, want a time, of before for what was said before", l.Message,
				l.TS)
		}
	}
	for _, want := range []string{
		"info user: remember the kettle", "info assistant: You said: remember the kettle",
		"warning ci: the build is red",
	} {
		if !slices.Contains(said, want) {
			t.Errorf("the timeline is %q, want %q among it", said, want)
		}
	}
	again.turn("call:quick")
	r := n.lastRequest()
	body := string(r.Body)
	for _, part := range []string{
		"remember the kettle", "the tea is ready", "it is cold", `"reasoning_effort":"high"`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the model was not told %q, want it in the request", part)
		}
	}
	if r.HasTool("bash") {
		t.Error("tool bash is offered, want the profile's tools only")
	}
}

// TestDelete: a deleted session is neither listed nor found again, and an id can't lead out of the
// directory.
func TestDelete(t *testing.T) {
	g, s := startReview(t)
	g.stop(s)
	n := g.next()
	if err := n.r.Delete(n.ctx, s.id); err != nil {
		t.Fatal(err)
	}
	if views, err := n.r.Persisted(n.ctx, gateway.PersistedFilter{}); err != nil ||
		len(views) != 0 {
		t.Errorf("after its end there is %+v, %v, want no error and none", views, err)
	}
	for name, err := range map[string]error{
		"leaving": n.r.Delete(n.ctx, "../"+s.id),
		"resuming": func() error {
			_, err := n.resume(s.id, gateway.ResumeRequest{}, nil)
			return err
		}(),
		"deleting": n.r.Delete(n.ctx, s.id),
	} {
		if !gateway.IsNotPersisted(err) {
			t.Errorf("%s what is no more: %v, want an error that says that it is not kept", name,
				err)
		}
	}
}

// The endpoint of a session's own is asked for again: its key is kept nowhere.
func TestResumeOnItsOwnEndpoint(t *testing.T) {
	g := newRig(t, func(o *Options) { o.ProviderURL, o.ProviderKey = "http://127.0.0.1:1/v1", "" })
	own := func(r *gateway.StartRequest) {
		r.ProviderURL, r.ProviderKey = g.model.URL, "scripted-model-key"
	}
	s := g.start(own)
	s.turn("hello")
	if err := s.host.Close(g.ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.resume(s.id, gateway.ResumeRequest{},
		nil); coded(err) != protocol.CodeInvalidJSON ||
		!strings.Contains(err.Error(), g.model.URL) {
		t.Errorf("resuming without the endpoint: %v, want %v and %q in it", err,
			protocol.CodeInvalidJSON, g.model.URL)
	}
	req := gateway.ResumeRequest{}
	own(&req.StartRequest)
	again, err := g.resume(s.id, req, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.turn("hello again")
	if again.lastSaid() != "You said: hello again" {
		t.Errorf(`the model said %q; errors %q, want "You said: hello again"`, again.lastSaid(),
			again.errors())
	}
	var kept []string
	_ = filepath.WalkDir(g.r.o.Home, func(path string, d os.DirEntry, _ error) error {
		if data, err := os.ReadFile(path); err == nil &&
			strings.Contains(string(data), "scripted-model-key") {
			kept = append(kept, path)
		}
		return nil
	})
	if len(kept) > 0 {
		t.Errorf("the key is kept in %v, want none", kept)
	}
}

// A session of which the directory is gone needs another.
func TestResumeElsewhere(t *testing.T) {
	g := newRig(t)
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := g.start(func(r *gateway.StartRequest) { r.CWD = dir })
	s.turn("hello")
	if err := s.host.Close(g.ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := g.resume(s.id, gateway.ResumeRequest{},
		nil); coded(err) != protocol.CodeInvalidJSON ||
		!strings.Contains(err.Error(), "cwd: ") {
		t.Errorf(`resuming in a directory that is gone: %v, want %v and "cwd: " in it`, err,
			protocol.CodeInvalidJSON)
	}
	again, err := g.resume(s.id,
		gateway.ResumeRequest{StartRequest: gateway.StartRequest{CWD: g.cwd}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.turn("hello again")
	if again.spec.CWD != g.cwd || again.lastSaid() != "You said: hello again" {
		t.Errorf(
			`in %s the model said %q, want CWD %s and "You said: hello again"`,
			again.spec.CWD, again.lastSaid(), g.cwd,
		)
	}
}

// Sessions on disk are found by repository and branch, the last used first.
func TestPersistedFilters(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal("git is not installed: want it for this test")
	}
	g := newRig(t)
	repo := filepath.Join(t.TempDir(), "tea")
	for _, args := range [][]string{
		{"init", "-q", "-b", "brew", repo},
		{
			"-C", repo, "-c", "user.name=t", "-c", "user.email=t@t.example", "commit", "-q",
			"--allow-empty", "-m",
			"first",
		},
		{"-C", repo, "remote", "add", "origin", "https://github.com/kitchen/tea.git"},
	} {
		if out, err := exec.CommandContext(t.Context(), git, args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	var ids []string
	for _, cwd := range []string{repo, g.cwd, repo} {
		s := g.start(func(r *gateway.StartRequest) { r.CWD = cwd })
		s.turn("hello")
		if err := s.host.Close(g.ctx, "stopped"); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.id)
	}
	for name, tt := range map[string]struct {
		f    gateway.PersistedFilter
		want []string
	}{
		"all": {gateway.PersistedFilter{}, []string{ids[2], ids[1], ids[0]}},
		"of a repository": {gateway.PersistedFilter{Repository: "kitchen/tea"},
			[]string{ids[2], ids[0]}},
		"of a branch":       {gateway.PersistedFilter{Branch: "brew"}, []string{ids[2], ids[0]}},
		"of another branch": {gateway.PersistedFilter{Branch: "pour"}, nil},
		"of a directory":    {gateway.PersistedFilter{CWD: g.cwd}, []string{ids[1]}},
		"the last":          {gateway.PersistedFilter{Last: 1}, []string{ids[2]}},
	} {
		views, err := g.r.Persisted(g.ctx, tt.f)
		var got []string
		for _, v := range views {
			got = append(got, v.ID)
		}
		if err != nil || strings.Join(got, " ") != strings.Join(tt.want, " ") {
			t.Errorf("%s: %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

// The model of a session that runs is another from its next request on, also after
// the runtime died and after the gateway did.
func TestSetModel(t *testing.T) {
	g := newRig(t, func(o *Options) { o.Models = []string{"first", "second"} })
	s := g.start(func(r *gateway.StartRequest) { r.Model = "first" })
	s.turn("hello")
	h := s.info
	for _, tt := range []struct{ model, effort, want string }{
		{"third", "", `model: there is no model "third"; there are first, second`},
		{"second", "huge", `effort: there is no "huge"; there are low, medium, high, xhigh, max`},
	} {
		if err := h.SetModel(g.ctx, tt.model, tt.effort); coded(err) != protocol.CodeInvalidJSON ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %v and %q in it", tt, err, protocol.CodeInvalidJSON, tt.want)
		}
	}
	s.turn("hello again")
	if r := g.lastRequest(); r.Model != "first" {
		t.Errorf(`a change that was refused changed the model to %q, want "first"`, r.Model)
	}
	if err := h.SetModel(g.ctx, "second", "low"); err != nil {
		t.Fatal(err)
	}
	second := func(s *fakeSession, when string) {
		t.Helper()
		s.turn("who are you, " + when)
		if r := g.lastRequest(); r.Model != "second" ||
			!strings.Contains(string(r.Body), `"reasoning_effort":"low"`) ||
			!strings.Contains(string(r.Body), "hello again") {
			t.Errorf(
				`%s the model is %q, want "second", effort low and the new prompt in its request`,
				when, r.Model)
		}
	}
	second(s, "now")
	s.wait("the line in the timeline", func() bool {
		for _, n := range s.notes {
			if strings.Contains(n, "second") {
				return true
			}
		}
		return false
	})
	if err := s.host.Close(g.ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	again, err := g.resume(s.id, gateway.ResumeRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	second(again, "after a resume")
	// Without an effort that stays as it is.
	if err := again.info.SetModel(g.ctx, "first", ""); err != nil {
		t.Fatal(err)
	}
	again.turn("and now")
	if r := g.lastRequest(); r.Model != "first" ||
		!strings.Contains(string(r.Body), `"reasoning_effort":"low"`) {
		t.Errorf(
			`the last request is to model %q: %.300s, want Model "first" and "reasoning_effort":"low" in it`,
			r.Model, r.Body,
		)
	}
}

// Who resumes a session that was renamed finds it by its new label, also when the
// gateway was killed.
func TestRenamedSessionKeepsItsLabel(t *testing.T) {
	g := newRig(t, func(*Options) {})
	s := g.start(func(r *gateway.StartRequest) { r.Label = "before" })
	s.turn("hello")
	if err := s.info.SetLabel(g.ctx, "after"); err != nil {
		t.Fatal(err)
	}
	views, err := g.r.Persisted(g.ctx, gateway.PersistedFilter{})
	if err != nil || len(views) != 1 || views[0].Label != "after" {
		t.Fatalf(`on disk: %+v, %v, want one with the label "after"`, views, err)
	}
}
