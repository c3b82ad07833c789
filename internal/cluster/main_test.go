package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when goroutines are left. Those of NATS servers in this process end behind their shutdown, which takes
// a while on a busy machine.
func TestMain(m *testing.M) {
	code := m.Run()
	err := goleak.Find()
	for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
		err = goleak.Find()
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
