package copilot

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test program be the runtime's launcher, as tapgw's main is.
func TestMain(m *testing.M) {
	if code, ran := ExecRuntime(os.Args); ran {
		os.Exit(code)
	}
	if fault := os.Getenv(envFakeRuntime); fault != "" {
		fakeRuntime(fault)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
