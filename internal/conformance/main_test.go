package conformance

import (
	"testing"

	"go.uber.org/goleak"
)

// The clock of the engine for patterns stops by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}
