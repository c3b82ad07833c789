package copilot

import (
	"bytes"
	"encoding/json"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// recordRaw gives the gateway an event as the runtime sent it, without the session's secrets: a
// model may have read one and repeated it.
func (s *session) recordRaw(e sdk.SessionEvent) {
	var data protocol.Raw
	if unknown, ok := e.Data.(*rpc.RawSessionEventData); ok {
		data = protocol.Raw(unknown.Raw)
	} else {
		data = rawJSON(e.Data)
	}
	for _, secret := range s.secrets() {
		if bytes.Contains(data, []byte(secret)) {
			data = bytes.ReplaceAll(data, []byte(secret), []byte(redaction))
		}
	}
	s.calls.RuntimeEvent(adminapi.RuntimeEvent{
		TS: e.Timestamp.UTC(), Type: string(e.Type()), ID: e.ID, AgentID: deref(e.AgentID),
		Ephemeral: deref(e.Ephemeral), Data: json.RawMessage(data),
	})
}

// secretHeader matches the names of headers whose values are secrets.
var secretHeader = lazyregexp.New(`(?i)auth|key|token|secret|cookie|password`)

const (
	redaction = "******"
	// minSecret is the least number of bytes of a secret. Shorter values are common words.
	minSecret = 8
)

// secrets returns the session's secrets as they are written inside a JSON string.
func (s *session) secrets() []string {
	var secrets []string
	add := func(secret string) {
		if len(secret) >= minSecret {
			quoted := rawJSON(secret)
			secrets = append(secrets, string(quoted[1:len(quoted)-1]))
		}
	}
	add(s.githubToken)
	if p := s.provider; p != nil {
		add(p.APIKey)
		add(p.BearerToken)
		for name, value := range p.Headers {
			if secretHeader.MatchString(name) {
				add(value)
				add(value[strings.LastIndexByte(value, ' ')+1:]) // behind "Bearer"
			}
		}
	}
	return secrets
}
