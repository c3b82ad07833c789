package server

import (
	"encoding/json"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// questions lists the questions of all sessions that wait for a person, oldest first.
func (a *api) questions(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, orEmpty(a.gateway.Questions()))
}

// answer answers a question of a session: the named one, or its only one.
func (a *api) answer(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.Answer
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	if body.Content != nil && kind(body.Content) != '{' {
		return fieldError("content", "must be an object")
	}
	answer := gateway.Answer{Decision: body.Decision, Text: body.Text, Content: protocol.Raw(body.Content)}
	return done(w, s.Answer(body.Question, answer))
}

// kind is the first byte of a JSON value: '{' of an object, 'n' of null.
func kind(v json.RawMessage) byte { return byte(protocol.Raw(v).Kind()) }
