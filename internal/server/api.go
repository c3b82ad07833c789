package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

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
	gateway    *gateway.Gateway
	supervisor Supervisor             // may be nil
	process    func() adminapi.Status // see [Options].Status
	end        func()                 // see [Options].End
	log        *slog.Logger
	mux        *http.ServeMux
	server     *Server   // that it is part of
	signinDir  string    // may be ""
	recorded   Records   // may be nil
	kept       Goals     // may be nil
	terminals  Terminals // may be nil
	states     *states
	resumable  resumable
}

// newAPI makes the handler of /api/v1/.
func newAPI(s *Server, o Options) *api {
	a := &api{
		gateway: o.Gateway, supervisor: o.Supervisor, process: o.Status, end: o.End, log: s.log,
		mux: http.NewServeMux(), server: s, signinDir: o.SigninDir, recorded: o.Records, kept: o.Goals,
		terminals: o.Terminals,
	}
	a.states = newStates(map[string]func() any{
		adminapi.StateStatus:     func() any { return a.currentStatus() },
		adminapi.StateSessions:   func() any { return orEmpty(a.gateway.Sessions()) },
		adminapi.StateProviders:  func() any { return a.connected() },
		adminapi.StateConfigured: func() any { return a.allConfigured() },
		adminapi.StatePairings:   func() any { return orEmpty(a.gateway.Pairings()) },
		adminapi.StateQuestions:  func() any { return orEmpty(a.gateway.Questions()) },
		adminapi.StateTools:      func() any { return a.allTools() },
		adminapi.StateSources:    func() any { return a.allSources() },
		adminapi.StateGoals:      func() any { return a.goalsOf("") },
		adminapi.StateQueue:      func() any { return orEmpty(a.gateway.Queue()) },
		adminapi.StateCluster:    func() any { return a.knownCluster() },
	})
	for pattern, h := range a.routes() {
		method, path, _ := strings.Cut(pattern, " ")
		a.mux.Handle(method+" "+apiPrefix+path, a.answering(h))
	}
	a.mux.HandleFunc(apiPrefix+"/gateways/{gateway}/", a.remote)
	a.mux.HandleFunc("/", a.notFound)
	return a
}

// ServeHTTP implements [http.Handler].
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// routes are the API's, below its prefix. openapi.json describes each.
func (a *api) routes() map[string]apiHandler {
	return map[string]apiHandler{
		"GET /status":                           a.status,
		"GET /events":                           a.stateEvents,
		"GET /diagnostics":                      a.diagnostics,
		"GET /openapi.json":                     a.document,
		"POST /reload":                          a.reload,
		"POST /shutdown":                        a.shutdown,
		"GET /models":                           a.models,
		"POST /signin-links":                    a.signinLink,
		"POST /signout":                         a.signout,
		"GET /sessions":                         a.sessions,
		"POST /sessions":                        a.start,
		"GET /sessions/{id}":                    a.session(a.view),
		"DELETE /sessions/{id}":                 a.session(a.stop),
		"POST /sessions/{id}/query":             a.session(a.query),
		"POST /sessions/{id}/answer":            a.session(a.answer),
		"POST /sessions/{id}/interrupt":         a.session(a.interrupt),
		"POST /sessions/{id}/foreground":        a.session(a.foreground),
		"POST /sessions/{id}/mcp-token":         a.session(a.mcpToken),
		"POST /sessions/{id}/provider-token":    a.session(a.providerToken),
		"POST /sessions/{id}/rename":            a.session(a.rename),
		"GET /sessions/{id}/log":                a.session(a.timeline),
		"GET /sessions/{id}/live":               a.session(a.live),
		"GET /sessions/{id}/recording":          a.session(a.record),
		"GET /sessions/{id}/usage":              a.session(a.usage),
		"POST /sessions/{id}/push":              a.session(a.push),
		"POST /push":                            a.keep,
		"GET /sessions/{id}/history":            a.session(a.history),
		"GET /sessions/{id}/filters":            a.session(a.filters),
		"POST /sessions/{id}/tools/{name}/call": a.session(a.call),
		"POST /sessions/{id}/model":             a.session(a.setModel),
		"GET /sessions/{id}/events":             a.sessionEvents,
		"GET /sessions/{id}/earlier":            a.session(a.earlierEvents),
		"GET /questions":                        a.questions,
		"GET /persisted":                        a.persisted,
		"POST /persisted/{id}/resume":           a.resumePersisted,
		"DELETE /persisted/{id}":                a.deletePersisted,
		"GET /tools":                            a.tools,
		"GET /rules":                            a.rules,
		"GET /providers":                        a.providers,
		"GET /providers/configured":             a.configured,
		"POST /providers/{name}/stop":           a.stopProvider,
		"POST /providers/{name}/start":          a.startProvider,
		"POST /providers/{name}/restart":        a.restartProvider,
		"POST /providers/{name}/login":          a.loginProvider,
		"POST /providers/{name}/logout":         a.logoutProvider,
		"GET /providers/{name}/log":             a.providerLog,
		"GET /records":                          a.records,
		"GET /sources":                          a.sources,
		"POST /sources/{name}/run":              a.runSource,
		"GET /pairings":                         a.pairings,
		"GET /terminals":                        a.listTerminals,
		"POST /terminals/hooks":                 a.terminalHook,
		"POST /terminals":                       a.attachTerminal,
		"GET /goals":                            a.goals,
		"POST /goals":                           a.startGoal,
		"GET /goals/{goal}":                     a.goal,
		"POST /goals/{goal}/stop":               a.stopGoal,

		"GET /sessions/{id}/files":            a.session(a.files),
		"GET /sessions/{id}/commands":         a.session(a.commands),
		"POST /sessions/{id}/commands/{name}": a.session(a.runCommand),
		"GET /cluster":                        a.cluster,
		"GET /cluster/history":                a.keptHistory,
		"POST /cluster/push":                  a.broadcast,

		"GET /queue":                              a.queue,
		"PATCH /sessions/{id}/queue/{prompt}":     a.session(a.editQueued),
		"DELETE /sessions/{id}/queue/{prompt}":    a.session(a.cancelQueued),
		"POST /sessions/{id}/queue/{prompt}/send": a.session(a.sendQueued),
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

// session finds the session that a path names.
func (a *api) session(h func(w http.ResponseWriter, r *http.Request, s *gateway.Session) error) apiHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		id := r.PathValue("id")
		s, ok := a.gateway.Session(id)
		if !ok {
			return &protocol.Error{
				Code:    protocol.CodeInvalidSession,
				Message: fmt.Sprintf("session %q does not exist", id),
			}
		}
		return h(w, r, s)
	}
}

// notFound answers a request that has no route: its path does not exist, or has other methods.
func (a *api) notFound(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
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
	message := r.URL.Path + " takes " + strings.Join(allowed, " or ") + " only"
	fail(w, http.StatusMethodNotAllowed, string(protocol.CodeInvalidState), message)
}

// currentStatus returns the status of the process, with the fields that the server knows.
func (a *api) currentStatus() adminapi.Status {
	s := a.process()
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

func (a *api) status(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.currentStatus())
}

func (a *api) providers(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.connected())
}

func (a *api) diagnostics(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.gateway.Diagnostics())
}

func (a *api) pairings(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, orEmpty(a.gateway.Pairings()))
}

func (a *api) models(w http.ResponseWriter, r *http.Request) error {
	q, err := readParams(r, "host")
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
	for i := range models {
		models[i].Efforts = orEmpty(models[i].Efforts)
	}
	return writeJSON(w, http.StatusOK, orEmpty(models))
}
