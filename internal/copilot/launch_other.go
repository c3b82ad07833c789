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

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
