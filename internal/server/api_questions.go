package server

import (
	"net/http"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// questions lists what waits for a person, in all sessions, oldest first.
func (a *api) questions(w http.ResponseWriter, _ *http.Request) error {
	return apiAnswer(w, http.StatusOK, apiList(a.gateway.Questions()))
}

// answer answers a question of a session: the one that is named, or its only one.
func (a *api) answer(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body struct {
		Question string       `json:"question"`
		Decision string       `json:"decision"`
		Text     string       `json:"text"`
		Content  protocol.Raw `json:"content"`
	}
	if err := apiBody(w, r, &body); err != nil {
		return err
	}
	if k := body.Content.Kind(); body.Content != nil && k != '{' {
		return apiFault("content", "must be an object")
	}
	answer := gateway.Answer{Decision: body.Decision, Text: body.Text, Content: body.Content}
	if err := s.Answer(body.Question, answer); err != nil {
		return err
	}
	return apiAnswer(w, http.StatusOK, struct{}{})
}
