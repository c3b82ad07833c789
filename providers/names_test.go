package providers

import (
	"testing"

	"tapgw/internal/protocol"
)

// The names that the package gives out are the wire's.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		string(CodeNotFound):           string(protocol.CodeNotFound),
		string(CodeTimeout):            string(protocol.CodeTimeout),
		string(CodeCancelled):          string(protocol.CodeCancelled),
		string(CodeUnauthorized):       string(protocol.CodeUnauthorized),
		string(CodeInternal):           string(protocol.CodeInternal),
		string(CodeAuthFailed):         string(protocol.CodeAuthFailed),
		string(CodeDuplicateInstance):  string(protocol.CodeDuplicateInstance),
		string(CodeInvalidJSON):        string(protocol.CodeInvalidJSON),
		string(CodeInvalidSession):     string(protocol.CodeInvalidSession),
		string(CodePayloadTooLarge):    string(protocol.CodePayloadTooLarge),
		string(CodeRateLimited):        string(protocol.CodeRateLimited),
		string(CodeToolConflict):       string(protocol.CodeToolConflict),
		string(CodeUnsupportedVersion): string(protocol.CodeUnsupportedVersion),
		string(Keep):                   string(protocol.LevelKeep),
		string(Surface):                string(protocol.LevelSurface),
		string(Inject):                 string(protocol.LevelInject),
		string(SessionStarted):         protocol.LifecycleStarted,
		string(SessionIdle):            protocol.LifecycleIdle,
		string(SessionEnding):          protocol.LifecycleShutdownPending,
		string(CodeInvalidState):       string(protocol.CodeInvalidState),
		string(Drop):                   string(protocol.OutcomeDrop),
		AllSessions:                    protocol.AllSessions,
		ReasonTimeout:                  protocol.ReasonTimeout,
		ReasonInterrupted:              protocol.ReasonInterrupted,
		ReasonRebind:                   protocol.ReasonRebind,
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
