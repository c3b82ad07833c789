package server

import (
	_ "embed"
	"net/http"
)

// openapi is the document of the API, OpenAPI 3.1. Tests compare it with the routes, with the
// types of adminapi and with real answers; docs/admin-api.md is generated from it.
//
//go:embed openapi.json
var openapi []byte

func (a *api) document(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi) // fails if the client is gone
	return nil
}
