// Package statedir knows where a gateway keeps its lock, its tokens and gateway.json: the state directory of a
// COPILOT_HOME. The gateway writes these files; clients and providers find the gateway by them.
package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// EnvHome is the environment variable that names the directory of the Copilot runtime's files.
const EnvHome = "COPILOT_HOME"

// Names of the files in a state directory that programs other than the gateway read.
const (
	InfoFile          = "gateway.json"
	LockFile          = "gateway.lock" // locked while the gateway runs
	AdminTokenFile    = ".admin-token"
	ProviderTokenFile = ".provider-token"
)

// Info is the content of gateway.json: where a gateway listens and which process it is.
type Info struct {
	URL       string    `json:"url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	// Args are the arguments with which tapgw ensure started the gateway; tapgw restart
	// needs them. They are empty for a gateway that something else started.
	Args []string `json:"args,omitempty"`
}

// Home returns the absolute path of the directory of the Copilot runtime's files: COPILOT_HOME, else ~/.copilot. The
// error says that there is neither COPILOT_HOME nor a home directory.
func Home() (string, error) {
	if home := os.Getenv(EnvHome); home != "" {
		if abs, err := filepath.Abs(home); err == nil {
			return abs, nil
		}
		return home, nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", errors.New("no home directory; set " + EnvHome)
	}
	return filepath.Join(user, ".copilot"), nil
}

// Of returns the state directory of the gateway whose COPILOT_HOME is home.
func Of(home string) string { return filepath.Join(home, "extensions", "tap") }
