package server

import (
	"fmt"
	"net/http"
	"path"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// forGateways are the routes of the admin API that gateways in control of [cluster] may use. They
// get no other route. The list leaves out routes that sign a browser or the gateway in, that give
// out a token or a pairing code, that are for the terminals of this machine, or that lead to a
// third gateway.
var forGateways = []string{
	"GET /status", "GET /events", "GET /diagnostics", "GET /openapi.json", "POST /reload",
	"GET /models", "GET /sessions", "POST /sessions", "GET /sessions/{id}", "DELETE /sessions/{id}",
	"POST /sessions/{id}/query", "POST /sessions/{id}/answer", "POST /sessions/{id}/interrupt",
	"POST /sessions/{id}/foreground", "POST /sessions/{id}/rename", "POST /sessions/{id}/push",
	"POST /sessions/{id}/model", "POST /sessions/{id}/tools/{name}/call",
	"GET /sessions/{id}/log", "GET /sessions/{id}/live", "GET /sessions/{id}/recording",
	"GET /sessions/{id}/usage", "GET /sessions/{id}/history", "GET /sessions/{id}/filters",
	"GET /sessions/{id}/events", "GET /sessions/{id}/earlier", "GET /sessions/{id}/files",
	"GET /sessions/{id}/commands",
	"POST /sessions/{id}/commands/{name}",
	"GET /queue", "PATCH /sessions/{id}/queue/{prompt}", "DELETE /sessions/{id}/queue/{prompt}",
	"POST /sessions/{id}/queue/{prompt}/send",
	"POST /push", "GET /questions", "GET /tools", "GET /rules", "GET /records", "GET /terminals",
	"GET /persisted", "POST /persisted/{id}/resume", "DELETE /persisted/{id}",
	"GET /providers", "GET /providers/configured", "GET /providers/{name}/log",
	"POST /providers/{name}/stop", "POST /providers/{name}/start", "POST /providers/{name}/restart",
	"GET /sources", "POST /sources/{name}/run",
	"GET /goals", "POST /goals", "GET /goals/{goal}", "POST /goals/{goal}/stop",
	"GET /cluster", "GET /cluster/history", "POST /cluster/push",
}

// GatewaysAPI is the admin API for other gateways whose rights the cluster has checked. It has the
// routes of [forGateways], none of which gives out a token, and answers 403 for every other path.
func (s *Server) GatewaysAPI() http.Handler {
	mux, routes := http.NewServeMux(), s.api.routes()
	routes["GET /events"] = func(w http.ResponseWriter, r *http.Request) error {
		return s.api.sendStates(w, r, adminapi.StatePairings)
	}
	for _, pattern := range forGateways {
		method, below, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+apiPrefix+below, s.api.answering(routes[pattern]))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A path that the mux would first clean is refused, too: no client of ours sends one.
		if _, pattern := mux.Handler(r); pattern == "" || path.Clean(r.URL.Path) != r.URL.Path {
			fail(w, http.StatusForbidden, string(protocol.CodeUnauthorized), fmt.Sprintf(
				"%s %s is not for other gateways; ask on that machine", r.Method, r.URL.Path))
			return
		}
		mux.ServeHTTP(w, r)
	})
}
