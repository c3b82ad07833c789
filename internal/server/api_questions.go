package server

import (
	"encoding/json"
	"net/http"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// answer answers a question of a session: the named one, or its only one.
func (a *api) answer(_ *http.Request, s *gateway.Session, body adminapi.Answer) (any, error) {
	if body.Content != nil && kind(body.Content) != '{' {
		return nil, fieldError("content", "must be an object")
	}
	answer := gateway.Answer{Decision: body.Decision, Text: body.Text, Content: protocol.Raw(body.Content)}
	return adminapi.Nothing{}, s.Answer(body.Question, answer)
}

// kind is the first byte of a JSON value: '{' of an object, 'n' of null.
func kind(v json.RawMessage) byte { return byte(protocol.Raw(v).Kind()) }
