package cluster

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain fails when goroutines are left. Those of NATS servers in this process end behind their
// shutdown, which takes a while on a busy machine. The clock of their stores stays when a server
// ends while it makes one.
func TestMain(m *testing.M) {
	code := m.Run()
	clock := goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1")
	err := goleak.Find(clock)
	for deadline := time.Now().Add(30 * time.Second); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(clock)
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
