package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

const (
	apiPrefix      = adminapi.Prefix
	apiMaxBody     = protocol.MaxMessage
	apiHostCopilot = "copilot"         // the default kind of session
	apiPusher      = gateway.AdminName // the default provider and stream of a push
)

// api answers the admin API. It does not check rights: every request that gets here has the admin
// token.
type api struct {
	o         Options
	gateway   *gateway.Gateway
	log       *slog.Logger
	mux       func() *http.ServeMux // made at the first request: reading its patterns takes 0.5 ms
	server    *Server               // that it is part of
	states    *states
	resumable resumable
}

// newAPI makes the handler of /api/v1/.
func newAPI(s *Server, o Options) *api {
	a := &api{o: o, gateway: o.Gateway, log: s.log, server: s}
	a.mux = sync.OnceValue(a.newMux)
	a.states = newStates(map[string]func() any{
		adminapi.StateStatus:     func() any { return a.currentStatus() },
		adminapi.StateSessions:   func() any { return a.gateway.Sessions() },
		adminapi.StateProviders:  func() any { return a.connected() },
		adminapi.StateConfigured: func() any { return a.allConfigured() },
		adminapi.StatePairings:   func() any { return a.gateway.Pairings() },
		adminapi.StateQuestions:  func() any { return a.gateway.Questions() },
		adminapi.StateTools:      func() any { return a.allTools() },
		adminapi.StateSources:    func() any { return a.allSources() },
		adminapi.StateGoals:      func() any { return a.goalsOf("") },
		adminapi.StateQueue:      func() any { return orEmpty(a.gateway.Queue()) },
		adminapi.StateCluster:    func() any { return a.knownCluster() },
	})
	return a
}

func (a *api) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range a.routes() {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+apiPrefix+path, a.answering(h))
	}
	mux.HandleFunc(apiPrefix+"/gateways/{gateway}/", a.remote)
	mux.HandleFunc("/", a.notFound)
	return mux
}

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux().ServeHTTP(w, r) }

// routes are the API's, below its prefix. openapi.json describes each.
func (a *api) routes() map[string]apiHandler {
	return map[string]apiHandler{
		"GET /status":                           a.state(adminapi.StateStatus),
		"GET /events":                           a.stateEvents,
		"GET /diagnostics":                      answer(a.diagnostics),
		"GET /openapi.json":                     a.document,
		"POST /reload":                          answer(a.reload),
		"POST /shutdown":                        a.shutdown,
		"GET /models":                           answer(a.models),
		"POST /signin-links":                    answerBody(a.signinLink),
		"POST /signout":                         a.signout,
		"GET /sessions":                         a.state(adminapi.StateSessions),
		"POST /sessions":                        answerBody(a.start),
		"GET /sessions/{id}":                    a.session(a.view),
		"DELETE /sessions/{id}":                 a.session(a.stop),
		"POST /sessions/{id}/query":             a.sessionStream(a.query),
		"POST /sessions/{id}/answer":            sessionBody(a, a.answer),
		"POST /sessions/{id}/interrupt":         sessionBody(a, a.interrupt),
		"POST /sessions/{id}/foreground":        sessionBody(a, a.foreground),
		"POST /sessions/{id}/mcp-token":         sessionBody(a, a.mcpToken),
		"POST /sessions/{id}/provider-token":    sessionBody(a, a.providerToken),
		"POST /sessions/{id}/rename":            sessionBody(a, a.rename),
		"GET /sessions/{id}/log":                a.sessionStream(a.timeline),
		"GET /sessions/{id}/live":               a.sessionStream(a.live),
		"GET /sessions/{id}/recording":          a.sessionStream(a.record),
		"GET /sessions/{id}/usage":              a.session(a.usage),
		"POST /sessions/{id}/push":              sessionBody(a, a.push),
		"POST /push":                            answerBody(a.keep),
		"GET /sessions/{id}/history":            a.sessionStream(a.history),
		"GET /sessions/{id}/filters":            a.session(a.filters),
		"POST /sessions/{id}/tools/{name}/call": sessionBody(a, a.call),
		"POST /sessions/{id}/model":             sessionBody(a, a.setModel),
		"GET /sessions/{id}/events":             a.sessionEvents,
		"GET /sessions/{id}/earlier":            a.session(a.earlierEvents),
		"GET /questions":                        a.state(adminapi.StateQuestions),
		"GET /persisted":                        answer(a.persisted),
		"POST /persisted/{id}/resume":           answerBody(a.resumePersisted),
		"DELETE /persisted/{id}":                answer(a.deletePersisted),
		"GET /tools":                            answer(a.tools),
		"GET /rules":                            answer(a.rules),
		"GET /providers":                        a.state(adminapi.StateProviders),
		"GET /providers/configured":             a.state(adminapi.StateConfigured),
		"POST /providers/{name}/stop":           answer(a.stopProvider),
		"POST /providers/{name}/start":          a.configuredProvider(startProvider),
		"POST /providers/{name}/restart":        a.configuredProvider(restartProvider),
		"POST /providers/{name}/login":          a.loginProvider,
		"POST /providers/{name}/logout":         a.configuredProvider(logoutProvider),
		"GET /providers/{name}/log":             a.providerLog,
		"GET /records":                          answer(a.records),
		"GET /sources":                          a.state(adminapi.StateSources),
		"POST /sources/{name}/run":              a.configuredProvider(runSource),
		"GET /pairings":                         a.state(adminapi.StatePairings),
		"GET /terminals":                        answer(a.listTerminals),
		"POST /terminals/hooks":                 answerBody(a.terminalHook),
		"POST /terminals":                       answerBody(a.attachTerminal),
		"GET /goals":                            answer(a.goals),
		"POST /goals":                           answerBody(a.startGoal),
		"GET /goals/{goal}":                     answer(a.goal),
		"POST /goals/{goal}/stop":               answerBody(a.stopGoal),

		"GET /sessions/{id}/files":            a.session(a.files),
		"GET /sessions/{id}/commands":         a.session(a.commands),
		"POST /sessions/{id}/commands/{name}": sessionBody(a, a.runCommand),
		"GET /cluster":                        answer(a.cluster),
		"GET /cluster/history":                answer(a.keptHistory),
		"POST /cluster/push":                  answerBody(a.broadcast),

		"GET /queue":                              a.state(adminapi.StateQueue),
		"PATCH /sessions/{id}/queue/{prompt}":     sessionBody(a, a.editQueued),
		"DELETE /sessions/{id}/queue/{prompt}":    a.session(a.cancelQueued),
		"POST /sessions/{id}/queue/{prompt}/send": sessionBody(a, a.sendQueued),
	}
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

// created is an answer with the status 201.
type created struct{ value any }

// answer answers with the JSON of the value that h returns.
func answer(h func(r *http.Request) (any, error)) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := h(r)
		if err != nil {
			return err
		}
		if c, ok := v.(created); ok {
			return writeJSON(w, http.StatusCreated, c.value)
		}
		return writeJSON(w, http.StatusOK, v)
	}
}

// answerBody is [answer] for requests with a body.
func answerBody[B any](h func(r *http.Request, body B) (any, error)) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var body B
		if err := readBody(w, r, &body); err != nil {
			return err
		}
		return answer(func(r *http.Request) (any, error) { return h(r, body) })(w, r)
	}
}

// state answers with a state that GET /events shows too.
func (a *api) state(name string) apiHandler {
	return answer(func(*http.Request) (any, error) { return a.states.build[name](), nil })
}

// sessionStream finds the session that a path names.
func (a *api) sessionStream(
	h func(w http.ResponseWriter, r *http.Request, s *gateway.Session) error,
) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id := r.PathValue("id")
		s, ok := a.gateway.Session(id)
		if !ok {
			return protocol.Errorf(protocol.CodeInvalidSession, "session %q does not exist", id)
		}
		return h(w, r, s)
	}
}

// session is [answer] for a session that the path names.
func (a *api) session(h func(r *http.Request, s *gateway.Session) (any, error)) apiHandler {
	return a.sessionStream(func(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
		return answer(func(r *http.Request) (any, error) { return h(r, s) })(w, r)
	})
}

// sessionBody is [answerBody] for a session that the path names.
func sessionBody[B any](
	a *api, h func(r *http.Request, s *gateway.Session, body B) (any, error),
) apiHandler {
	return a.sessionStream(func(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
		return answerBody(func(r *http.Request, body B) (any, error) { return h(r, s, body) })(w, r)
	})
}

// notFound answers a request that has no route: its path does not exist, or has other methods.
func (a *api) notFound(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch,
		http.MethodDelete} {
		try := r.Clone(r.Context())
		try.Method = method
		if _, pattern := a.mux().Handler(try); pattern != "/" && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		fail(w, http.StatusNotFound, string(protocol.CodeNotFound), "there is no "+r.URL.Path)
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	message := r.URL.Path + " takes " + strings.Join(allowed, " or ") + " only"
	fail(w, http.StatusMethodNotAllowed, string(protocol.CodeInvalidState), message)
}

// currentStatus returns the status of the process, with the fields that the server knows.
func (a *api) currentStatus() adminapi.Status {
	s := a.o.Status()
	s.StartedAt, s.Faults = s.StartedAt.UTC(), orEmpty(s.Faults)
	sessions := a.gateway.Sessions()
	s.Sessions, s.Providers = len(sessions), len(a.connected())
	for _, v := range sessions {
		if v.State != "ending" {
			s.WaitsFor = append(s.WaitsFor, v.WaitsFor...)
		}
	}
	slices.Sort(s.WaitsFor)
	s.WaitsFor = slices.Compact(s.WaitsFor)
	s.RESTOpen = a.server.settings.Load().openREST
	s.WebhooksURL = a.server.webhooksURL()
	return s
}

func (a *api) diagnostics(*http.Request) (any, error) { return a.gateway.Diagnostics(), nil }

func (a *api) models(r *http.Request) (any, error) {
	q, err := readParams(r, "host")
	if err != nil {
		return nil, err
	}
	models, err := a.gateway.Models(r.Context(), cmp.Or(q.Get("host"), apiHostCopilot))
	for i := range models {
		models[i].Efforts = orEmpty(models[i].Efforts)
	}
	return orEmpty(models), err
}
