//go:build !unix

package copilot

import (
	"errors"
	"os"
)

// canLaunch is false, because a process can't be replaced on this system. The SDK starts the runtime directly.
const canLaunch = false

func launch(string, string, []string) error {
	return errors.New("not supported on this system")
}

// outlet is nothing on this system: the SDK reads the runtime's output itself.
type outlet struct{}

func openOutlet(string) (*outlet, error) { return &outlet{}, nil }
func (*outlet) process() int             { return 0 }
func (*outlet) fault() error             { return nil }
func (*outlet) close()                   {}

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
