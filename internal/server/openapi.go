package server

import (
	_ "embed"
	"net/http"
)

// openapi is the document of the API, OpenAPI 3.1. Tests hold the routes, what
// they take and what they answer against it; docs/admin-api.md is made of it.
//
//go:embed openapi.json
var openapi []byte

func (a *api) document(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi) // fails when nobody listens any more
	return nil
}
