package proc

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the test program be the children of the tests, too.
func TestMain(m *testing.M) {
	if program := programs[os.Getenv(programVar)]; program != nil {
		os.Exit(program(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}
