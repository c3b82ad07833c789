package server

import (
	"bytes"
	"context"
	"encoding/json"
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
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// StatusInfo is what the server knows of the process that it runs in.
type StatusInfo struct {
	URL       string        `json:"url"`
	PID       int           `json:"pid"`
	Version   string        `json:"version"`
	StartedAt time.Time     `json:"startedAt"`
	Faults    []StatusFault `json:"-"`
}

// StatusFault is what is wrong in a config file.
type StatusFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

const (
	apiPrefix  = "/api/v1"
	apiMaxBody = protocol.MaxMessage
	// apiHostCopilot is the kind of session that a request means when it names none.
	apiHostCopilot = "copilot"
	apiPusher      = "tapctl" // provider and stream of a push that names none
)

// api answers the admin API. It decides nothing about rights: whoever gets here
// carries the admin token.
type api struct {
	gateway    *gateway.Gateway
	supervisor Supervisor // nil: none
	info       func() StatusInfo
	log        *slog.Logger
	mux        *http.ServeMux
}

// newAPI makes the handler of /api/v1/.
func newAPI(g *gateway.Gateway, sup Supervisor, info func() StatusInfo, log *slog.Logger) http.Handler {
	a := &api{gateway: g, supervisor: sup, info: info, log: log, mux: http.NewServeMux()}
	for pattern, h := range map[string]apiHandler{
		"GET /status":                           a.status,
		"GET /sessions":                         a.sessions,
		"POST /sessions":                        a.start,
		"GET /sessions/{id}":                    a.session(a.view),
		"DELETE /sessions/{id}":                 a.session(a.stop),
		"POST /sessions/{id}/query":             a.session(a.query),
		"POST /sessions/{id}/interrupt":         a.session(a.interrupt),
		"POST /sessions/{id}/foreground":        a.session(a.foreground),
		"GET /sessions/{id}/log":                a.session(a.timeline),
		"GET /sessions/{id}/live":               a.session(a.live),
		"POST /sessions/{id}/push":              a.session(a.push),
		"GET /sessions/{id}/history":            a.session(a.history),
		"POST /sessions/{id}/tools/{name}/call": a.session(a.call),
		"GET /providers":                        a.providers,
		"POST /providers/{name}/stop":           a.stopProvider,
		"POST /providers/{name}/start":          a.steer(Supervisor.Start, "started"),
		"POST /providers/{name}/restart":        a.steer(Supervisor.Restart, "restarted"),
		"GET /providers/{name}/log":             a.providerLog,
		"POST /reload":                          a.reload,
		"GET /pairings":                         a.pairings,
		"GET /tools":                            a.tools,
		"GET /models":                           a.models,
	} {
		method, path, _ := strings.Cut(pattern, " ")
		a.mux.Handle(method+" "+apiPrefix+path, a.answering(h))
	}
	a.mux.HandleFunc("/", a.nothing)
	return a.mux
}

// apiHandler answers a request, or returns why not while nothing was written.
type apiHandler func(w http.ResponseWriter, r *http.Request) error

func (a *api) answering(h apiHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			a.refuse(w, r, err)
		}
	})
}

// session finds the session that a path names.
func (a *api) session(h func(w http.ResponseWriter, r *http.Request, s *gateway.Session) error) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id := r.PathValue("id")
		s, ok := a.gateway.Session(id)
		if !ok {
			return &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session %q does not exist", id)}
		}
		return h(w, r, s)
	}
}

// nothing answers what no route took: there is no such path, or it has other methods.
func (a *api) nothing(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		try := r.Clone(r.Context())
		try.Method = method
		if _, pattern := a.mux.Handler(try); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		fail(w, http.StatusNotFound, string(protocol.CodeNotFound), "there is no "+r.URL.Path)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	fail(w, http.StatusMethodNotAllowed, string(protocol.CodeInvalidState), r.URL.Path+" takes "+strings.Join(allowed, " or ")+" only")
}

// apiStatusOf gives each code its HTTP status.
var apiStatusOf = map[protocol.Code]int{
	protocol.CodeNotFound:         http.StatusNotFound,
	protocol.CodeInvalidSession:   http.StatusNotFound,
	protocol.CodeInvalidJSON:      http.StatusBadRequest,
	protocol.CodeInvalidArguments: http.StatusBadRequest,
	protocol.CodeUnauthorized:     http.StatusForbidden,
	protocol.CodeDenied:           http.StatusForbidden,
	protocol.CodeRateLimited:      http.StatusTooManyRequests,
	protocol.CodePayloadTooLarge:  http.StatusRequestEntityTooLarge,
	protocol.CodeToolConflict:     http.StatusConflict,
	protocol.CodeInvalidState:     http.StatusConflict,
	protocol.CodeTimeout:          http.StatusGatewayTimeout,
}

func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // nobody listens
	}
	code, message := protocol.CodeInternal, err.Error()
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		code = e.Code
		// The code stands beside the message; around it may stand more.
		message = strings.Replace(message, e.Error(), e.Message, 1)
	} else if errors.Is(err, gateway.ErrSessionEnded) {
		code = protocol.CodeInvalidState
	}
	status, ok := apiStatusOf[code]
	if !ok {
		status = http.StatusInternalServerError
		a.log.Warn("answering an admin request", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	fail(w, status, string(code), message)
}

// apiFault is an INVALID_JSON error about a field.
func apiFault(field, format string, args ...any) error {
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: field + ": " + fmt.Sprintf(format, args...)}
}

func apiAnswer(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	if err := apiEncode(&b, v); err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // fails when nobody listens any more
	return nil
}

func apiEncode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// apiBody reads a request's body into v, strictly: what it does not know it
// refuses by name. An empty body is an object without members.
func apiBody(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, apiMaxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &protocol.Error{Code: protocol.CodePayloadTooLarge, Message: fmt.Sprintf("body: more than %d bytes", apiMaxBody)}
	}
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	err = jsonv2.Unmarshal(data, v, jsonv2.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	if errors.Is(err, jsonv2.ErrUnknownName) {
		se, _ := errors.AsType[*jsonv2.SemanticError](err)
		return apiFault(se.JSONPointer.LastToken(), "is not a field of this request")
	}
	return &protocol.Error{Code: protocol.CodeInvalidJSON, Message: strings.TrimPrefix(protocol.Explain("body", err), "body.")}
}

// apiParams reads the query of a URL, with none but the known parameters.
func apiParams(r *http.Request, known ...string) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apiFault("query", "%v", err)
	}
	for name := range q {
		if !slices.Contains(known, name) {
			return nil, apiFault(name, "is not a parameter of this request")
		}
	}
	return q, nil
}

func apiFlag(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); v {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, apiFault(name, "must be 0 or 1, not %q", v)
	}
}

func (a *api) status(w http.ResponseWriter, _ *http.Request) error {
	info := a.info()
	info.StartedAt = info.StartedAt.UTC()
	return apiAnswer(w, http.StatusOK, struct {
		StatusInfo
		Sessions  int           `json:"sessions"`
		Providers int           `json:"providers"`
		Faults    []StatusFault `json:"faults"`
	}{info, len(a.gateway.Sessions()), len(a.gateway.Providers()), apiList(info.Faults)})
}

// apiList makes an empty list of none, so that JSON has an array.
func apiList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *api) sessions(w http.ResponseWriter, _ *http.Request) error {
	return apiAnswer(w, http.StatusOK, apiList(a.gateway.Sessions()))
}

func (a *api) start(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Host        string `json:"host"`
		Model       string `json:"model"`
		CWD         string `json:"cwd"`
		Label       string `json:"label"`
		ProviderURL string `json:"providerUrl"`
		ProviderKey string `json:"providerKey"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.Host == "" {
		body.Host = apiHostCopilot
	}
	if err := apiDirectory("cwd", body.CWD); err != nil {
		return err
	}
	if body.Label == "" {
		body.Label = filepath.Base(body.CWD)
	}
	if body.ProviderURL != "" {
		u, err := url.Parse(body.ProviderURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return apiFault("providerUrl", "must be an http or https URL")
		}
		if u.User != nil {
			return apiFault("providerUrl", "must hold no password; send it as providerKey")
		}
	} else if body.ProviderKey != "" {
		return apiFault("providerKey", "is the key of an endpoint of one's own: providerUrl is required with it")
	}
	s, err := a.gateway.Start(r.Context(), gateway.StartRequest{
		Host: body.Host, Model: body.Model, CWD: filepath.Clean(body.CWD), Label: body.Label, ProviderURL: body.ProviderURL, ProviderKey: body.ProviderKey,
	})
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusCreated, map[string]string{"id": s.ID()})
}

func apiDirectory(field, path string) error {
	switch {
	case path == "":
		return apiFault(field, "is required: the session's working directory")
	case !filepath.IsAbs(path):
		return apiFault(field, "%q must be an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return apiFault(field, "%q does not exist", path)
	case err != nil:
		return apiFault(field, "%v", err)
	case !info.IsDir():
		return apiFault(field, "%q is not a directory", path)
	}
	return nil
}

func (a *api) view(w http.ResponseWriter, _ *http.Request, s *gateway.Session) error {
	return apiAnswer(w, http.StatusOK, s.View())
}

func (a *api) stop(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	// It goes on when the one who asked does not wait for it.
	if err := s.Stop(context.WithoutCancel(r.Context()), "stopped by the user"); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

func (a *api) interrupt(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Reason string `json:"reason"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if body.Reason == "" {
		body.Reason = "interrupted by the user"
	}
	if err := s.Interrupt(r.Context(), body.Reason); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

func (a *api) foreground(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := apiBody(w, r, &struct{}{}); err != nil {
		return err
	}
	if err := a.gateway.SetForeground(s.ID()); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}

func (a *api) push(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Provider string       `json:"provider"`
		Stream   string       `json:"stream"`
		Level    string       `json:"level"`
		Event    string       `json:"event"`
		Prompt   string       `json:"prompt"`
		Metadata protocol.Raw `json:"metadata"`
		Wait     bool         `json:"wait"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	m := &protocol.Push{Stream: body.Stream, Event: body.Event, Prompt: body.Prompt, Level: protocol.Level(body.Level), Metadata: body.Metadata}
	if m.Stream == "" {
		m.Stream = apiPusher
	}
	if m.Level == "" {
		m.Level = protocol.LevelSurface
	}
	from := body.Provider
	if from == "" {
		from = apiPusher
	}
	if !protocol.ValidName(from) {
		return apiFault("provider", "must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
	if err := protocol.Validate(m); err != nil {
		err.Message = strings.TrimPrefix(err.Message, "push.")
		return err
	}
	push := s.Push
	if body.Wait {
		push = s.PushAndWait
	}
	receipt, err := push(r.Context(), from, m)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, receipt)
}

func (a *api) call(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Args      protocol.Raw `json:"args"`
		TimeoutMs *int64       `json:"timeoutMs"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	c := gateway.Call{Name: r.PathValue("name"), Args: body.Args, AskGates: true}
	if k := body.Args.Kind(); body.Args != nil && k != '{' && k != 'n' {
		return apiFault("args", "must be an object")
	} else if k == 'n' {
		c.Args = nil
	}
	if ms := body.TimeoutMs; ms != nil {
		c.Timeout = time.Duration(*ms) * time.Millisecond
		if *ms < 1 || *ms > protocol.MaxToolTimeout.Milliseconds() {
			return apiFault("timeoutMs", "must be from 1 to %d", protocol.MaxToolTimeout.Milliseconds())
		}
	}
	// What is not there was not called; a provider's own NOT_FOUND is an outcome.
	if !slices.ContainsFunc(s.Tools(), func(t gateway.ToolView) bool { return t.Name == c.Name }) {
		return &protocol.Error{Code: protocol.CodeNotFound, Message: fmt.Sprintf("tool %q does not exist in this session", c.Name)}
	}
	return apiAnswer(w, http.StatusOK, apiOutcome(s.CallTool(r.Context(), c)))
}

type apiCallAnswer struct {
	Data       any    `json:"data,omitempty"`
	Error      string `json:"error,omitempty"`
	ErrorCode  string `json:"errorCode,omitempty"`
	DurationMs int64  `json:"durationMs"`
}

func apiOutcome(o gateway.Outcome) apiCallAnswer {
	answer := apiCallAnswer{Error: o.Error, ErrorCode: string(o.ErrorCode), DurationMs: o.Duration.Milliseconds()}
	switch {
	case o.Failed():
		if answer.Error == "" {
			answer.Error = "the call failed with " + answer.ErrorCode
		}
	case len(o.Data) > 0:
		answer.Data = json.RawMessage(o.Data)
	case o.File != nil:
		answer.Data = json.RawMessage(fileData(o.File))
	default:
		answer.Data = json.RawMessage("null")
	}
	return answer
}

func (a *api) providers(w http.ResponseWriter, _ *http.Request) error {
	return apiAnswer(w, http.StatusOK, apiList(a.gateway.Providers()))
}

func (a *api) pairings(w http.ResponseWriter, _ *http.Request) error {
	return apiAnswer(w, http.StatusOK, apiList(a.gateway.Pairings()))
}

func (a *api) tools(w http.ResponseWriter, r *http.Request) error {
	q, err := apiParams(r, "session")
	if err != nil {
		return err
	}
	ids := []string{q.Get("session")}
	if ids[0] == "" {
		ids = nil
		for _, s := range a.gateway.Sessions() {
			ids = append(ids, s.ID)
		}
	} else if _, ok := a.gateway.Session(ids[0]); !ok {
		return &protocol.Error{Code: protocol.CodeInvalidSession, Message: fmt.Sprintf("session: %q does not exist", ids[0])}
	}
	tools := []gateway.ToolView{}
	for _, id := range ids {
		if s, ok := a.gateway.Session(id); ok {
			tools = append(tools, s.Tools()...)
		}
	}
	return apiAnswer(w, http.StatusOK, tools)
}

func (a *api) models(w http.ResponseWriter, r *http.Request) error {
	q, err := apiParams(r, "host")
	if err != nil {
		return err
	}
	host := q.Get("host")
	if host == "" {
		host = apiHostCopilot
	}
	models, err := a.gateway.Models(r.Context(), host)
	if err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, apiList(models))
}

// apiLast reads how many entries are wanted: 20 when left out, at least least.
func apiLast(q url.Values, least int) (int, error) {
	if !q.Has("last") {
		return protocol.DefaultQueryLast, nil
	}
	n, err := strconv.Atoi(q.Get("last"))
	if err != nil || n < least {
		return 0, apiFault("last", "must be a whole number from %d, not %q", least, q.Get("last"))
	}
	return n, nil
}
