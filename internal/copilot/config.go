package copilot

import (
	"reflect"
	"strings"
	"sync"

	sdk "github.com/github/copilot-sdk/go"
)

// The SDK's configs with which a session is created and resumed.

// clientName is our name in the runtime's requests.
const clientName = "tapgw"

// createConfig and resumeConfig describe the session to the runtime in the same way, because a
// resume replaces all that the creation set.
func (s *session) createConfig(gen int, withHooks bool) *sdk.SessionConfig {
	c := *s.baseConfig
	c.SessionID = s.id
	model, effort := s.chosenModel()
	c.Model, c.ReasoningEffort = s.runtimeModelName(model), effort
	c.Provider = s.provider
	c.GitHubToken = s.githubToken
	c.ModelCapabilities = s.capabilities()
	c.SystemMessage = s.systemMessage()
	if withHooks {
		c.Hooks = s.hooks()
	}
	c.OnPermissionRequest = deferToPump
	c.OnUserInputRequest, c.OnElicitationRequest = s.questionHandlers()
	c.OnEvent = s.onEvent(gen)
	return &c
}

func (s *session) resumeConfig(gen int, withHooks bool) *sdk.ResumeSessionConfig {
	if s.joined != 0 {
		return s.joinConfig(gen)
	}
	c := &sdk.ResumeSessionConfig{}
	// The SDK has two types with the same fields.
	from, to := reflect.ValueOf(s.createConfig(gen, withHooks)).Elem(), reflect.ValueOf(c).Elem()
	for i := range to.NumField() {
		if f := from.FieldByName(to.Type().Field(i).Name); f.IsValid() &&
			f.Type() == to.Field(i).Type() {
			to.Field(i).Set(f)
		}
	}
	c.ContinuePendingWork = new(false) // the session's calls have ended
	return c
}

// onEvent returns a handler that queues the events of one life of the session.
func (s *session) onEvent(gen int) sdk.SessionEventHandler {
	return func(e sdk.SessionEvent) { s.items.push(item{gen: gen, event: e}) }
}

// onEventHeld is onEvent for a session that the SDK makes anew on the same connection. The SDK has
// one goroutine for the events of each, so the new session's events are held back until release,
// after the old session's are queued.
func (s *session) onEventHeld(gen int) (handle sdk.SessionEventHandler, release func()) {
	push := s.onEvent(gen)
	var mu sync.Mutex
	var held []sdk.SessionEvent
	released := false
	handle = func(e sdk.SessionEvent) {
		mu.Lock()
		defer mu.Unlock()
		if released {
			push(e)
			return
		}
		held = append(held, e)
	}
	release = func() {
		mu.Lock()
		defer mu.Unlock()
		released = true
		for _, e := range held {
			push(e)
		}
		held = nil
	}
	return handle, release
}

// notFound reports whether an error says that the runtime has no such session on disk.
func notFound(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "session not found")
}
