// Package fakegithub is a part of GitHub's REST API (version 2022-11-28) as its documentation
// describes it: checks, statuses, logs of jobs, pull requests, their reviews, and issues. It is for
// tests.
package fakegithub

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Object is a JSON object of an answer.
type Object = map[string]any

// Server is the API for one repository, owner/repo. Its fields may change while Lock is held.
type Server struct {
	t     testing.TB
	api   *httptest.Server
	blobs *httptest.Server // where the logs are
	token string

	sync.Mutex
	Checks      map[string][]Object // check runs by branch; a branch that is in no map is unknown
	Statuses    map[string][]Object // by branch
	Logs        map[string]string   // by the id of a job; without one, the answer is 404
	Annotations map[string][]Object // by the id of a check run
	Pulls       map[string]Object   // by branch: the open pull request
	Reviews     []Object
	Comments    []Object // on the code of the pull request
	Issues      []Object // with a number each
	Talk        map[int][]Object
	Commit      string // that the statuses are of
	PageSize    int    // the most entries of a page, whatever is asked for
	Remaining   int    // requests until the rate limit
	requests    []Request
	refusals    []Refusal
}

// Request is a request that came, and the status that it got.
type Request struct {
	Method, Path string // with the query
	Status       int
	Body         string
}

// Refusal is an answer that the server gives instead of the right one.
type Refusal struct {
	Status int
	Header map[string]string
	Body   string
}

// New starts a server that knows one token. The test ends it.
func New(t testing.TB, token string) *Server {
	t.Helper()
	s := &Server{
		t: t, token: token, Checks: map[string][]Object{}, Statuses: map[string][]Object{},
		Logs:        map[string]string{},
		Annotations: map[string][]Object{}, Pulls: map[string]Object{}, Talk: map[int][]Object{},
		PageSize: 100, Commit: strings.Repeat("ab", 20),
		Remaining: 5000,
	}
	s.api = httptest.NewServer(http.HandlerFunc(s.serve))
	s.blobs = httptest.NewServer(http.HandlerFunc(s.serveLog))
	t.Cleanup(s.blobs.Close)
	t.Cleanup(s.api.Close)
	return s
}

// URL is the base of the API.
func (s *Server) URL() string { return s.api.URL }

// Refuse makes the server give these answers to the next requests.
func (s *Server) Refuse(r ...Refusal) {
	s.Lock()
	defer s.Unlock()
	s.refusals = append(s.refusals, r...)
}

// Requests returns the requests so far.
func (s *Server) Requests() []Request {
	s.Lock()
	defer s.Unlock()
	return slices.Clone(s.requests)
}

// Check makes a check run of GitHub Actions. An empty conclusion means that it still runs.
func Check(id int64, name, conclusion string) Object {
	c := Object{"id": id, "head_sha": strings.Repeat("ab", 20), "name": name, "status": "completed",
		"conclusion": conclusion, "app": Object{"slug": "github-actions"},
		"output": Object{"title": nil, "summary": nil, "annotations_count": 0}}
	if conclusion == "" {
		c["status"], c["conclusion"] = "in_progress", nil
	}
	return c
}

// answer is the answer to a request.
type answer struct {
	status int
	body   any
	list   string // the key of the list in body that has pages; "-": the body is the list
	header map[string]string
}

func refused(status int, message string) answer {
	return answer{status: status, body: Object{"message": message,
		"documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status)}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	s.Lock()
	defer s.Unlock()
	a := s.answer(r, string(body))
	data, err := json.Marshal(a.body)
	if err != nil {
		s.t.Errorf("writing the answer to %s: %v", r.URL, err)
	}
	if text, is := a.body.(string); is {
		data = []byte(text)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-GitHub-Api-Version-Selected", "2022-11-28")
	if a.status == http.StatusOK {
		if a.list != "" {
			data = s.page(r, h, a, data)
		}
		sum := sha256.Sum256(data)
		etag := `W/"` + hex.EncodeToString(sum[:]) + `"`
		h.Set("ETag", etag)
		if r.Method == http.MethodGet && r.Header.Get("If-None-Match") == etag {
			a.status, data = http.StatusNotModified, nil
		}
	}
	if a.status != http.StatusNotModified {
		s.Remaining = max(0, s.Remaining-1)
	}
	h.Set("X-RateLimit-Limit", "5000")
	h.Set("X-RateLimit-Remaining", strconv.Itoa(s.Remaining))
	h.Set("X-RateLimit-Used", strconv.Itoa(5000-s.Remaining))
	h.Set("X-RateLimit-Resource", "core")
	h.Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10))
	for name, value := range a.header {
		h.Set(name, value)
	}
	s.requests = append(s.requests, Request{r.Method, r.URL.RequestURI(), a.status, string(body)})
	w.WriteHeader(a.status)
	_, _ = w.Write(data)
}

// page cuts one page out of a list, and names the next one in the header Link.
func (s *Server) page(r *http.Request, h http.Header, a answer, data []byte) []byte {
	q := r.URL.Query()
	number, _ := strconv.Atoi(q.Get("page"))
	size, _ := strconv.Atoi(q.Get("per_page"))
	if size <= 0 {
		size = 30
	}
	number, size = max(number, 1), min(size, 100, s.PageSize)
	object := Object{"-": a.body}
	if a.list != "-" {
		_ = json.Unmarshal(data, &object)
	}
	list, _ := json.Marshal(object[a.list])
	var rows []json.RawMessage
	_ = json.Unmarshal(list, &rows)
	from, to := min((number-1)*size, len(rows)), min(number*size, len(rows))
	if to < len(rows) {
		q.Set("page", strconv.Itoa(number+1))
		next := s.api.URL + r.URL.EscapedPath() + "?" + q.Encode()
		q.Set("page", strconv.Itoa((len(rows)+size-1)/size))
		last := s.api.URL + r.URL.EscapedPath() + "?" + q.Encode()
		h.Set("Link", fmt.Sprintf(`<%s>; rel="next", <%s>; rel="last"`, next, last))
	}
	rows = append([]json.RawMessage{}, rows[from:to]...)
	var out []byte
	if a.list == "-" {
		out, _ = json.Marshal(rows)
	} else {
		object[a.list] = rows
		out, _ = json.Marshal(object)
	}
	return out
}

// answer finds the answer to a request. The caller holds the lock.
func (s *Server) answer(r *http.Request, body string) answer {
	if len(s.refusals) > 0 {
		f := s.refusals[0]
		s.refusals = s.refusals[1:]
		return answer{status: f.Status, body: f.Body, header: f.Header}
	}
	switch {
	case r.Header.Get("User-Agent") == "" ||
		strings.HasPrefix(r.Header.Get("User-Agent"), "Go-http"):
		return refused(http.StatusForbidden, "Request forbidden by administrative rules.")
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		return refused(http.StatusUnauthorized, "Bad credentials")
	case r.Header.Get("X-GitHub-Api-Version") != "2022-11-28",
		r.Header.Get("Accept") != "application/vnd.github+json":
		s.t.Errorf(
			"%s came with version %q and Accept %q, want 2022-11-28 and "+
				"application/vnd.github+json", r.URL,
			r.Header.Get("X-GitHub-Api-Version"), r.Header.Get("Accept"))
	case s.Remaining == 0:
		return refused(http.StatusForbidden, "API rate limit exceeded for user ID 1.")
	}
	path, known := strings.CutPrefix(r.URL.Path, "/repos/owner/repo/")
	if !known {
		return refused(http.StatusNotFound, "Not Found")
	}
	if r.Method != http.MethodGet || strings.HasPrefix(path, "issues") {
		return s.issues(r, path, body)
	}
	return s.read(r.URL.Query(), path)
}

func (s *Server) read(q url.Values, path string) answer {
	parts := strings.Split(path, "/")
	if rest, is := strings.CutPrefix(path, "commits/"); is {
		i := strings.LastIndex(rest, "/")
		return s.commit(strings.TrimPrefix(rest[:max(i, 0)], "heads/"), rest[i+1:])
	}
	switch {
	case path == "pulls":
		branch := strings.TrimPrefix(q.Get("head"), "owner:")
		if p := s.Pulls[branch]; p != nil && q.Get("state") == "open" {
			return answer{status: http.StatusOK, body: []Object{p}, list: "-"}
		}
		return answer{status: http.StatusOK, body: []Object{}, list: "-"}
	case len(parts) == 3 && parts[0] == "pulls" && parts[2] == "reviews":
		return answer{status: http.StatusOK, body: rows(s.Reviews), list: "-"}
	case len(parts) == 3 && parts[0] == "pulls" && parts[2] == "comments":
		return answer{status: http.StatusOK, body: rows(s.Comments), list: "-"}
	case len(parts) == 3 && parts[0] == "check-runs" && parts[2] == "annotations":
		return answer{status: http.StatusOK, body: rows(s.Annotations[parts[1]]), list: "-"}
	case len(parts) == 4 && path == "actions/jobs/"+parts[2]+"/logs":
		if _, has := s.Logs[parts[2]]; has {
			return answer{status: http.StatusFound, body: "", header: map[string]string{
				"Location": s.blobs.URL + "/" + parts[2] + "?sig=secret-signature"}}
		}
	}
	return refused(http.StatusNotFound, "Not Found")
}

func rows(list []Object) []Object { return append([]Object{}, list...) }

func (s *Server) commit(branch, what string) answer {
	checks, has := s.Checks[branch]
	statuses, also := s.Statuses[branch]
	switch {
	case !has && !also:
		return refused(http.StatusUnprocessableEntity, "No commit found for SHA: heads/"+branch)
	case what == "check-runs":
		return answer{status: http.StatusOK, list: "check_runs",
			body: Object{"total_count": len(checks), "check_runs": rows(checks)}}
	}
	return answer{status: http.StatusOK, list: "statuses", body: Object{"state": "pending",
		"sha": s.Commit, "total_count": len(statuses), "statuses": rows(statuses)}}
}

// serveLog is the server that the API sends to for logs. It must not get the token.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		s.t.Errorf("the log's server got the header Authorization %q, want none",
			r.Header.Get("Authorization"))
	}
	s.Lock()
	defer s.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(s.Logs[strings.TrimPrefix(r.URL.Path, "/")]))
}
