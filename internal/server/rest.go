package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// restPrefix is the path below which the session API lies (docs/admin-api.md).
const restPrefix = "/api/"

// restLiveTimeout is how long `live` waits for a response.
const restLiveTimeout = 5 * time.Second

// The values of "error" and "result" that docs/admin-api.md lists.
const (
	restModelNotFound   = "ModelIdNotFound"
	restNotAbsolute     = "WorkingDirectoryNotAbsolutePath"
	restNoDirectory     = "WorkingDirectoryNotExists"
	restSessionNotFound = "SessionNotFound"
	restSessionClosed   = "SessionClosed"
	restTimeout         = "HttpRequestTimeout"
	restParallelCall    = "ParallelCallNotSupported"
	restResultClosed    = "Closed" // of stop
)

// restAPI answers the session API (docs/admin-api.md): GET and POST alike, always with a JSON
// document, and with status 200 for errors too. The guard has checked the caller's right.
type restAPI struct {
	sessions restSessions
	gateway  *gateway.Gateway
	log      *slog.Logger
}

// newREST makes the handler of all paths below /api/ that have no version.
func newREST(g *gateway.Gateway, providers Supervisor, log *slog.Logger) *restAPI {
	return &restAPI{sessions: restSessions{gateway: g, supervisor: providers}, gateway: g, log: log}
}

// restError is the answer to a call that failed: a word of docs/admin-api.md, or a line for people
// if it has no such word.
type restError struct {
	Error string `json:"error"`
}

// restCall is a call that a path names.
type restCall struct {
	name string // a constant below
	id   string // of a model or a session, if the call has one
}

// The calls: their paths below restPrefix, without the id.
const (
	restConfig = "config"
	restStop   = "stop"
	restTest   = "test"
	restToken  = "token"
	restModels = "copilot/models"

	restSessionPrefix = "copilot/session/"
	restSessionStart  = restSessionPrefix + "start"
	restSessionStop   = restSessionPrefix + "stop"
	restSessionQuery  = restSessionPrefix + "query"
	restSessionLive   = restSessionPrefix + "live"
)

// restRoute finds the call of an escaped path. A model's id may have slashes.
func restRoute(path string) (c restCall, ok bool) {
	title, ok := strings.CutPrefix(path, restPrefix)
	if !ok {
		return c, false
	}
	switch title {
	case restConfig, restStop, restTest, restToken, restModels:
		return restCall{name: title}, true
	}
	tail, ok := strings.CutPrefix(title, restSessionPrefix)
	if !ok {
		return c, false
	}
	escaped, isStart := strings.CutPrefix(tail, "start/")
	c.name = restSessionStart
	if !isStart {
		var verb string
		escaped, verb, _ = strings.Cut(tail, "/")
		c.name = restSessionPrefix + verb
		if c.name != restSessionStop && c.name != restSessionQuery && c.name != restSessionLive {
			return restCall{}, false
		}
	}
	id, err := url.PathUnescape(escaped)
	if err != nil || id == "" && !isStart {
		return restCall{}, false
	}
	c.id = id
	return c, true
}

// ServeHTTP implements [http.Handler] for the session API (docs/admin-api.md), for paths below
// restPrefix.
func (a *restAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := restRoute(r.URL.EscapedPath())
	if !ok {
		fail(w, http.StatusNotFound, string(protocol.CodeNotFound), "there is no "+r.URL.Path)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		fail(w, http.StatusMethodNotAllowed, string(protocol.CodeInvalidState),
			r.URL.Path+" takes GET or POST only")
		return
	}
	// The body is read to its end even if no call needs it: net/http notices only then that a
	// caller disconnects.
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, apiMaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		_ = writeJSON(w, http.StatusOK,
			restError{fmt.Sprintf("the body has more than %d bytes", apiMaxBody)})
		return
	}
	if err != nil {
		_ = writeJSON(w, http.StatusOK, restError{"reading the body: " + err.Error()})
		return
	}
	if c.name == restSessionLive {
		a.live(w, r, c.id)
		return
	}
	if err := writeJSON(w, http.StatusOK, a.answer(r.Context(), c, string(body))); err != nil {
		a.log.Warn("answering a request of the session API", "path", r.URL.Path, "error", err)
	}
}

// answer runs any call but `live` and returns the document to answer with.
func (a *restAPI) answer(ctx context.Context, c restCall, body string) any {
	switch c.name {
	case restConfig:
		return map[string]string{"repoRoot": repoRoot()}
	case restStop:
		a.stopAll(ctx)
		return struct{}{}
	case restTest:
		return map[string]string{"message": "Hello, world!"}
	case restToken:
		return map[string]string{"token": uuid.NewString()}
	case restModels:
		return a.models(ctx)
	case restSessionStart:
		return a.start(ctx, c.id, strings.TrimSpace(body))
	}
	s := a.sessions.get(c.id)
	switch {
	case s == nil:
		return restError{restSessionNotFound}
	case c.name == restSessionStop:
		return a.stop(ctx, s)
	default:
		return a.query(ctx, s, body)
	}
}

// repoRoot returns the root of the git repository of the gateway's working directory, or that
// directory itself outside a repository.
func repoRoot() string {
	cwd, err := os.Getwd()
	if err != nil {
		return string(filepath.Separator)
	}
	for dir := cwd; ; dir = filepath.Dir(dir) {
		// .git is a file in a work tree or a submodule.
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return cwd
		}
	}
}

func (a *restAPI) models(ctx context.Context) any {
	models, err := a.gateway.Models(ctx, apiHostCopilot)
	if err != nil {
		a.log.Warn("listing the models for the session API", "error", err)
		return struct {
			Models []restModel `json:"models"`
			restError
		}{[]restModel{}, restFault(err)}
	}
	list := make([]restModel, len(models))
	for i, m := range models {
		list[i] = restModel{m.Name, m.ID, m.Multiplier}
	}
	return map[string][]restModel{"models": list}
}

// restModel is a model with the members that the session API documents; the admin API has more.
type restModel struct {
	Name       string  `json:"name"`
	ID         string  `json:"id"`
	Multiplier float64 `json:"multiplier"`
}

// restFault answers with the text of an error without its code.
func restFault(err error) restError {
	_, message := codeOf(err)
	return restError{message}
}

// start starts a session. It checks, in this order, that the model is known and that the
// directory is absolute and exists.
func (a *restAPI) start(ctx context.Context, model, dir string) any {
	switch {
	case !a.knowsModel(ctx, model):
		return restError{restModelNotFound}
	case !filepath.IsAbs(dir):
		return restError{restNotAbsolute}
	case !isDirectory(dir):
		return restError{restNoDirectory}
	}
	s, err := a.sessions.start(ctx, model, filepath.Clean(dir))
	if err != nil {
		a.log.Warn("starting a session for the session API", "model", model, "error", err)
		return restFault(err)
	}
	return map[string]string{"sessionId": s.ID()}
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// knowsModel reports whether there is a model with this id. If the models can't be listed, only
// the local host is known.
func (a *restAPI) knowsModel(ctx context.Context, id string) bool {
	if id == gateway.HostLocal {
		return true
	}
	models, err := a.gateway.Models(ctx, apiHostCopilot)
	if err != nil {
		a.log.Warn("looking for a model for the session API", "model", id, "error", err)
	}
	return slices.ContainsFunc(models, func(m adminapi.Model) bool { return m.ID == id })
}

// stop ends a session. It goes on when the request that asked for it ends.
func (a *restAPI) stop(ctx context.Context, s *gateway.Session) any {
	if err := s.Stop(context.WithoutCancel(ctx), "stopped over the session API"); err != nil {
		a.log.Warn("stopping a session for the session API", "session", s.ID(), "error", err)
	}
	return map[string]string{"result": restResultClosed}
}

// stopAll ends the sessions that clients of the session API started.
func (a *restAPI) stopAll(ctx context.Context) {
	var stopping sync.WaitGroup
	for _, s := range a.sessions.running() {
		stopping.Go(func() { a.stop(ctx, s) })
	}
	stopping.Wait()
}

// query gives a session a prompt and answers when it is queued. A refusal comes as a response
// from `live`, as all errors inside a session do.
func (a *restAPI) query(ctx context.Context, s *gateway.Session, prompt string) any {
	if strings.TrimSpace(prompt) == "" {
		return restError{"the body is the prompt and must not be empty"}
	}
	_, err := s.Prompt(ctx, gateway.Prompt{Text: prompt, Mode: adminapi.ModeEnqueue,
		Source: gateway.SourceUser})
	e, coded := errors.AsType[*protocol.Error](err)
	switch {
	case coded && e.Code == protocol.CodeInvalidSession:
		return restError{restSessionNotFound}
	case err != nil && ctx.Err() == nil:
		s.Event(gateway.Event{SessionError: restFault(err).Error})
	}
	return struct{}{}
}

// live answers with the oldest response, and removes it from the queue once the answer is
// written. Only one caller at a time may wait.
func (a *restAPI) live(w http.ResponseWriter, r *http.Request, id string) {
	ctx, cancel := context.WithTimeout(r.Context(), restLiveTimeout)
	defer cancel()
	caller := newRESTCaller(r)
	s, refusal := a.sessions.acquire(ctx, id, caller)
	if s == nil {
		_ = writeJSON(w, http.StatusOK, restError{refusal})
		return
	}
	defer s.release(caller)
	response, err := s.responses.Next(ctx)
	if r.Context().Err() != nil {
		return
	}
	s.markAnswering(caller)
	switch {
	case err == nil:
		writeResponse(w, caller, response.Event.View())
		s.responses.Remove(response)
	case errors.Is(err, gateway.ErrSessionEnded):
		writeResponse(w, caller, restError{restSessionClosed})
		a.sessions.mu.Lock()
		a.sessions.remove(s) // its client knows that it has ended
		a.sessions.mu.Unlock()
	default:
		writeResponse(w, caller, restError{restTimeout})
	}
}

// writeResponse writes an answer and flushes it. If the caller disconnected, or reads nothing for
// writeDeadline, it panics with [http.ErrAbortHandler], so that the response stays in the queue.
func writeResponse(w http.ResponseWriter, caller *restCaller, v any) {
	var b bytes.Buffer
	err := encodeJSON(&b, v)
	if err == nil && caller.hasHungUp() {
		err = errCallerGone
	}
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	}
	if err == nil {
		err = writeInTime(w, &b)
	}
	if err != nil || caller.wasReset() {
		panic(http.ErrAbortHandler)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

var errCallerGone = errors.New("the caller disconnected")
