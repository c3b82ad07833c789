package main

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/taptest/fakegithub"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

const token = "ghp_secret"

// git runs git in a directory.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("git",
		append([]string{"-C", dir, "-c", "user.name=me", "-c", "user.email=me@example.com"},
			args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

// newGitHub makes a source for a directory that has the branch feature/a checked out, and the
// server that it asks.
func newGitHub(t *testing.T) (*github, *fakegithub.Server) {
	t.Helper()
	t.Setenv("CI_TOKEN", token)
	api := fakegithub.New(t, token)
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "feature/a")
	git(t, dir, "remote", "add", "origin", "https://127.0.0.1/owner/repo.git")
	c, err := newClient(api.URL(), "CI_TOKEN")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return &github{client: c, dir: dir}, api
}

// mustRead reads a report.
func mustRead(t *testing.T, g *github) report {
	t.Helper()
	r, err := g.read(t.Context())
	if err != nil {
		t.Fatalf("reading the checks: got %v, want no error", err)
	}
	return r
}

// statuses are the status codes of the requests from the n-th on.
func statuses(api *fakegithub.Server, n int) (codes []int) {
	for _, r := range api.Requests()[n:] {
		codes = append(codes, r.Status)
	}
	return codes
}

// TestRead reads checks, statuses and reviews over several pages, and the second time for nothing.
func TestRead(t *testing.T) {
	g, api := newGitHub(t)
	if r := mustRead(t, g); r.state() != none || r.Branch != "feature/a" {
		t.Errorf("a branch that nobody pushed is %q %s, want none", r.Branch, r.state())
	}
	api.Lock()
	api.PageSize = 2
	api.Checks["feature/a"] = []fakegithub.Object{fakegithub.Check(1, "build", "success"),
		fakegithub.Check(2, "lint", "skipped"), fakegithub.Check(3, "test", "failure"),
		fakegithub.Check(4, "deploy", ""), fakegithub.Check(5, "e2e", "timed_out")}
	api.Statuses["feature/a"] = []fakegithub.Object{{"id": 7, "state": "error",
		"context": "jenkins"},
		{"id": 8, "state": "pending", "context": "other"}}
	api.Pulls["feature/a"] = fakegithub.Object{"number": 12}
	api.Reviews = []fakegithub.Object{
		{"id": 1, "user": fakegithub.Object{"login": "ann"}, "state": "CHANGES_REQUESTED",
			"body": ""},
		{"id": 2, "user": fakegithub.Object{"login": "bob"}, "state": "APPROVED", "body": ""}}
	api.Comments = []fakegithub.Object{{"id": 1, "user": fakegithub.Object{"login": "ann"},
		"path": "a.go",
		"line": 7, "body": "Why?"}, {"id": 2, "user": nil, "path": "b.go", "line": nil,
		"body": "Outdated."}}
	api.Unlock()
	r := mustRead(t, g)
	if got, want := names(r.failed()), `"e2e", "jenkins", "test"`; got != want ||
		len(r.Checks) != 7 {
		t.Errorf("of %d checks %s failed, want %s of 7", len(r.Checks), got, want)
	}
	if r.Commit != strings.Repeat("ab", 20) {
		t.Errorf("the commit is %q, want that of the checks", r.Commit)
	}
	want := []review{{"review 1", "ann", "changes requested", ""},
		{"comment 1", "ann", "a.go:7", "Why?"}, {"comment 2", "", "b.go", "Outdated."}}
	if len(r.Reviews) != len(want) {
		t.Fatalf("the reviews are %+v, want %+v", r.Reviews, want)
	}
	for i := range want {
		if r.Reviews[i] != want[i] {
			t.Errorf("review %d is %+v, want %+v", i, r.Reviews[i], want[i])
		}
	}

	before := len(api.Requests())
	if again := mustRead(t, g); names(again.failed()) != names(r.failed()) ||
		len(again.Reviews) != len(r.Reviews) {
		t.Errorf("read again, %s failed, want the same as before", names(again.failed()))
	}
	for _, code := range statuses(api, before) {
		if code != http.StatusNotModified {
			t.Errorf("the second time GitHub answers %v, want only %d", statuses(api, before),
				http.StatusNotModified)
			break
		}
	}
}

// TestElsewhere has directories that GitHub knows nothing about, and a commit without a branch.
func TestElsewhere(t *testing.T) {
	g, api := newGitHub(t)
	for _, remote := range []string{"https://127.0.0.1.evil.example/owner/repo",
		"git@gitlab.example:owner/repo.git",
		"../repo", "https://127.0.0.1/owner/repo/../../user", "--upload-pack=x"} {
		git(t, g.dir, "config", "remote.origin.url", remote)
		if r, err := g.read(t.Context()); err != nil || r.state() != none {
			t.Errorf("with the remote %s CI is %s, %v, want none", remote, r.state(), err)
		}
	}
	if got := api.Requests(); len(got) > 0 {
		t.Errorf("GitHub was asked %v, want nothing", got)
	}
	git(t, g.dir, "config", "remote.origin.url", "git@127.0.0.1:owner/repo.git")
	git(t, g.dir, "commit", "-q", "--allow-empty", "-m", "one")
	git(t, g.dir, "checkout", "-q", "--detach")
	if r, err := g.read(t.Context()); err != nil || r.Branch != "" {
		t.Errorf("at a commit the branch is %q, %v, want none", r.Branch, err)
	}
	if got := api.Requests(); len(got) != 1 || !strings.Contains(got[0].Path, "/commits/") ||
		strings.Contains(got[0].Path, "heads") {
		t.Errorf("GitHub was asked %v, want for the commit's check runs", got)
	}
}

// TestLimits asks no more while GitHub says so, and says why.
func TestLimits(t *testing.T) {
	start := time.Now()
	for _, tt := range []struct {
		name    string
		refusal fakegithub.Refusal
		waits   time.Duration
		want    string
	}{
		{"primary",
			fakegithub.Refusal{Status: 403,
				Body: `{"message":"API rate limit exceeded for user ID 1."}`,
				Header: map[string]string{"X-RateLimit-Remaining": "0",
					"X-RateLimit-Reset": strconv.FormatInt(start.Add(10*time.Minute).Unix(), 10)}},
			10 * time.Minute, "GitHub answers 403 API rate limit exceeded"},
		{"retry after",
			fakegithub.Refusal{Status: 429, Header: map[string]string{"Retry-After": "120"}},
			2 * time.Minute, "GitHub answers 429"},
		{"secondary",
			fakegithub.Refusal{Status: 403,
				Body: `{"message":"You have exceeded a secondary rate limit."}`}, time.Minute,
			"secondary rate limit"},
		{"token", fakegithub.Refusal{Status: 401, Body: `{"message":"Bad credentials"}`},
			time.Minute,
			"GitHub answers 401 Bad credentials"},
		{"broken", fakegithub.Refusal{Status: 502, Body: "<html>"}, 5 * time.Second,
			"GitHub answers 502"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, api := newGitHub(t)
			now := start
			g.now = func() time.Time { return now }
			api.Refuse(tt.refusal)
			_, err := g.read(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) ||
				strings.Contains(err.Error(), token) {
				t.Errorf("the error is %v, want %q in it and no token", err, tt.want)
			}
			now = start.Add(tt.waits - 2*time.Second)
			if _, err := g.read(t.Context()); err == nil || len(api.Requests()) != 1 {
				t.Errorf("before the time is over there were %d requests (%v), want 1",
					len(api.Requests()), err)
			}
			now = start.Add(tt.waits + 2*time.Second)
			if _, err := g.read(t.Context()); err != nil {
				t.Errorf("after the time the error is %v, want none", err)
			}
		})
	}
}

// TestBackOff waits longer after each failure, up to a quarter of an hour.
func TestBackOff(t *testing.T) {
	g, api := newGitHub(t)
	now := time.Now()
	g.now = func() time.Time { return now }
	var waits []string
	for range 10 {
		api.Refuse(fakegithub.Refusal{Status: 503})
		if _, err := g.read(t.Context()); err == nil {
			t.Fatal("with an answer 503 there is no error, want one")
		}
		waits = append(waits, g.blocked.Sub(now).String())
		now = g.blocked
	}
	if got, want := strings.Join(waits,
		" "), "5s 10s 20s 40s 1m20s 2m40s 5m20s 10m40s 15m0s 15m0s"; got != want {
		t.Errorf("it waits %s, want %s", got, want)
	}
}

// TestTokenStays sends the token to the API only.
func TestTokenStays(t *testing.T) {
	g, api := newGitHub(t)
	api.Refuse(fakegithub.Refusal{Status: 200, Body: `{"check_runs":[]}`,
		Header: map[string]string{"Link": `<https://evil.example/steal>; rel="next"`}})
	if _, err := g.read(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "another server") {
		t.Errorf("with a next page elsewhere the error is %v, want that it is on another server",
			err)
	}
	for _, base := range []string{"http://github.example/api", "ftp://x", "api.github.com",
		"https://me:pass@x",
		"https://x/?a"} {
		if _, err := newClient(base, "CI_TOKEN"); err == nil {
			t.Errorf("-api %s is taken, want an error", base)
		}
	}
	t.Setenv("CI_TOKEN", "")
	t.Setenv("PATH", t.TempDir())
	g.token = ""
	if _, err := g.ask(t.Context(), g.base.String(), ""); err == nil ||
		!strings.Contains(err.Error(), "CI_TOKEN") {
		t.Errorf("without a token the error is %v, want the variable's name in it", err)
	}
	gh := "#!/bin/sh\n[ \"$*\" = 'auth token --hostname 127.0.0.1' ] && echo " + token + "\n"
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "gh"), []byte(gh), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := g.findToken(t.Context()); err != nil || got != token {
		t.Errorf("gh's token is %q, %v, want %q", got, err, token)
	}
}

// TestLog follows GitHub to the log, and keeps its end.
func TestLog(t *testing.T) {
	g, api := newGitHub(t)
	line := "2026-01-02T03:04:05.1234567Z ok \x1b[32mgreen\x1b[0m\n"
	api.Lock()
	api.Logs["3"] = "\ufeff" + strings.Repeat(line,
		20_000) + "2026-01-02T03:04:05.1Z ##[error]it broke\n" +
		strings.Repeat("2026-01-02T03:04:06.1Z cleaning\n", 50)
	api.Unlock()
	text, err := g.log(t.Context(), check{Name: "test", job: 3})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	if got := lines[len(lines)-3]; got != "##[error]it broke" || len(text) > keptLog ||
		strings.Contains(text, "Z ok") {
		t.Errorf(
			"of the log %d bytes remain, and the third line from the end is %q, want the error",
			len(text), got)
	}
	if text, err := g.log(t.Context(),
		check{Name: "gone", job: 4, Detail: "as it says"}); err != nil ||
		text != "as it says" {
		t.Errorf("a job without a log says %q, %v, want what the check says of itself", text, err)
	}

	// The signed address of a log is no part of an error.
	g.http.Transport = brokenLogs{g.base.Host}
	if _, err = g.log(t.Context(), check{job: 3}); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("a log that can't be read gives %v, want an error without the log's address", err)
	}
}

// brokenLogs fails for every host but one.
type brokenLogs struct{ host string }

func (b brokenLogs) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == b.host {
		return http.DefaultTransport.RoundTrip(r)
	}
	return nil, errors.New("no route to host")
}

// TestFixes knows commits that are newer than the red one.
func TestFixes(t *testing.T) {
	g, _ := newGitHub(t)
	git(t, g.dir, "commit", "-q", "--allow-empty", "-m", "one")
	red, err := g.git(t.Context(), "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	if g.isNewer(t.Context(), red) {
		t.Error("the red commit is a fix of itself, want not")
	}
	git(t, g.dir, "commit", "-q", "--allow-empty", "-m", "two")
	if !g.isNewer(t.Context(), red) {
		t.Error("a commit on top of the red one is no fix, want one")
	}
	for _, commit := range []string{"", "--help", strings.Repeat("0", 40)} {
		if g.isNewer(t.Context(), commit) {
			t.Errorf("HEAD is newer than %q, want not", commit)
		}
	}
}
