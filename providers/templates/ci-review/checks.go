package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// github reads the state of the branch that is checked out in a directory.
type github struct {
	*client
	dir  string
	repo string // owner/name; "" for the directory's remote
}

// errNotHere says that GitHub knows nothing about the directory.
var errNotHere = errors.New("the directory has no branch or no remote on this GitHub server")

// Answers of the API. All texts in them are foreign.
type (
	checkRuns struct {
		CheckRuns []struct {
			ID         int64
			HeadSHA    string `json:"head_sha"`
			Name       string
			Status     string
			Conclusion string
			DetailsURL string `json:"details_url"`
			Output     struct{ Title, Summary string }
			App        struct{ Slug string }
		} `json:"check_runs"`
	}
	combinedStatus struct {
		SHA      string
		Statuses []struct {
			ID                          int64
			State, Context, Description string
		}
	}
	pullRequests []struct {
		Number int64
		Head   struct{ SHA string }
	}
	pullComments []struct {
		ID   int64
		User struct{ Login string }
		Path string
		Line int
		Body string
	}
	pullReviews []struct {
		ID    int64
		User  struct{ Login string }
		State string
		Body  string
	}
	annotations []struct {
		Path            string
		StartLine       int    `json:"start_line"`
		AnnotationLevel string `json:"annotation_level"`
		Title, Message  string
	}
)

// page makes the function that adds a page of an answer.
func page[T any](add func(T)) func([]byte) error {
	return func(body []byte) error {
		var v T
		if err := json.Unmarshal(body, &v); err != nil {
			return err
		}
		add(v)
		return nil
	}
}

func (g *github) read(ctx context.Context) (report, error) {
	repo, branch, ref, err := g.locate(ctx)
	if errors.Is(err, errNotHere) {
		return report{}, nil
	}
	if err != nil {
		return report{}, err
	}
	r := report{Branch: branch}
	commit := fmt.Sprintf("repos/%s/commits/%s/", repo, ref)
	err = g.list(ctx, commit+"check-runs?filter=latest&per_page=100", page(func(p checkRuns) {
		for _, run := range p.CheckRuns {
			r.Commit = run.HeadSHA
			c := check{ID: "run " + strconv.FormatInt(run.ID, 10), Name: run.Name, run: run.ID,
				State:  runState(run.Status, run.Conclusion),
				Detail: run.Output.Title + "\n" + run.Output.Summary}
			if run.App.Slug == "github-actions" {
				c.job = run.ID // a check run of Actions has the id of its job
			}
			r.Checks = append(r.Checks, c)
		}
	}))
	if answer, is := errors.AsType[*statusError](err); is &&
		answer.status == http.StatusUnprocessableEntity {
		return r, nil // the branch has not been pushed
	}
	if err != nil {
		return report{}, err
	}
	err = g.list(ctx, commit+"status?per_page=100", page(func(s combinedStatus) {
		r.Commit = s.SHA
		for _, one := range s.Statuses {
			r.Checks = append(r.Checks, check{ID: "status " + strconv.FormatInt(one.ID, 10),
				Name: one.Context, State: statusState(one.State), Detail: one.Description})
		}
	}))
	if err != nil {
		return report{}, err
	}
	r.Reviews, err = g.reviews(ctx, repo, branch)
	return r, err
}

func runState(status, conclusion string) state {
	if status != "completed" {
		return running
	}
	switch conclusion {
	case "failure", "timed_out", "startup_failure", "action_required":
		return failed
	}
	return passed // also skipped, neutral, cancelled and stale: nothing in them needs a fix
}

func statusState(s string) state {
	switch s {
	case "failure", "error":
		return failed
	case "pending":
		return running
	}
	return passed
}

// reviews reads people's comments on the branch's pull request.
func (g *github) reviews(ctx context.Context, repo, branch string) ([]review, error) {
	if branch == "" {
		return nil, nil
	}
	owner, _, _ := strings.Cut(repo, "/")
	var number int64
	query := url.Values{"head": {owner + ":" + branch}, "state": {"open"}, "per_page": {"1"}}
	err := g.list(ctx, "repos/"+repo+"/pulls?"+query.Encode(), page(func(p pullRequests) {
		if len(p) > 0 && number == 0 {
			number = p[0].Number
		}
	}))
	if err != nil || number == 0 {
		return nil, err
	}
	var all []review
	pull := fmt.Sprintf("repos/%s/pulls/%d/", repo, number)
	err = g.list(ctx, pull+"reviews?per_page=100", page(func(p pullReviews) {
		for _, r := range p {
			if r.Body != "" || r.State == "CHANGES_REQUESTED" {
				all = append(all, review{ID: "review " + strconv.FormatInt(r.ID, 10),
					Author: r.User.Login,
					Place:  strings.ToLower(strings.ReplaceAll(r.State, "_", " ")), Text: r.Body})
			}
		}
	}))
	if err != nil {
		return nil, err
	}
	err = g.list(ctx, pull+"comments?per_page=100", page(func(p pullComments) {
		for _, c := range p {
			all = append(all, review{ID: "comment " + strconv.FormatInt(c.ID, 10),
				Author: c.User.Login, Place: place(c.Path, c.Line), Text: c.Body})
		}
	}))
	return all, err
}

func place(file string, line int) string {
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

func (g *github) log(ctx context.Context, c check) (string, error) {
	if c.job == 0 {
		return c.Detail, nil
	}
	repo, _, _, err := g.locate(ctx)
	if err != nil {
		return "", err
	}
	text, err := g.tail(ctx, fmt.Sprintf("repos/%s/actions/jobs/%d/logs", repo, c.job))
	if answer, is := errors.AsType[*statusError](err); is &&
		(answer.status == http.StatusNotFound ||
			answer.status == http.StatusGone) {
		return c.Detail, nil // not there yet, or not any more
	}
	return logTail(text), err
}

func (g *github) findings(ctx context.Context, c check) ([]finding, error) {
	if c.run == 0 {
		return nil, nil
	}
	repo, _, _, err := g.locate(ctx)
	if err != nil {
		return nil, err
	}
	var all []finding
	err = g.list(ctx, fmt.Sprintf("repos/%s/check-runs/%d/annotations?per_page=100", repo, c.run),
		page(func(p annotations) {
			for _, a := range p {
				text := strings.TrimSpace(a.AnnotationLevel + ": " + a.Title + "\n" + a.Message)
				all = append(all, finding{place(a.Path, a.StartLine), text})
			}
		}))
	return all, err
}

var (
	repoName = regexp.MustCompile(
		`^[A-Za-z0-9_-]+/(?:[A-Za-z0-9_-]|\.[A-Za-z0-9_-])[A-Za-z0-9._-]*$`)
	remoteURL = regexp.MustCompile(
		`^(?:[a-z+]+://)?(?:[^@/]*@)?([A-Za-z0-9.-]+)(?::\d+)?[:/]+([^/]+/[^/]+?)(?:\.git)?/?$`,
	)
)

// locate returns the repository, the branch, and the ref of it as a part of a path. A checked out
// commit has no branch.
func (g *github) locate(ctx context.Context) (repo, branch, ref string, err error) {
	if repo = g.repo; repo == "" {
		remote, err := g.git(ctx, "config", "--get", "remote.origin.url")
		m := remoteURL.FindStringSubmatch(remote)
		if err != nil || m == nil || m[1] != g.webHost() || !repoName.MatchString(m[2]) {
			return "", "", "", errNotHere
		}
		repo = m[2]
	}
	if branch, err = g.git(ctx, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil {
		parts := strings.Split("heads/"+branch, "/")
		for i := range parts {
			parts[i] = url.PathEscape(parts[i])
		}
		return repo, branch, strings.Join(parts, "/"), nil
	}
	if ref, err = g.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return "", "", "", errNotHere
	}
	return repo, "", ref, nil
}

// isNewer reports whether HEAD has commits on top of a commit.
func (g *github) isNewer(ctx context.Context, commit string) bool {
	head, err := g.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD")
	if err != nil || commit == "" || head == commit {
		return false
	}
	_, err = g.git(ctx, "merge-base", "--is-ancestor", "--end-of-options", commit, "HEAD")
	return err == nil
}

// git reads from the repository. These commands run no program that the repository's configuration
// names.
func (g *github) git(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", g.dir}, args...)...)
	out, err := cmd.Output()
	return string(bytes.TrimSpace(out)), err
}
