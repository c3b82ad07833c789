package gateway

import (
	"testing"
	"time"

	"github.com/dlclark/regexp2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// The clock that stops patterns runs for good, from outside any bubble.
	re := regexp2.MustCompile("x", regexp2.None)
	re.MatchTimeout = 24 * time.Hour
	_, _ = re.MatchString("x")
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}
