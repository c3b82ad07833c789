// Package statedir knows where a gateway keeps its lock, its tokens and gateway.json: the state
// directory of a COPILOT_HOME. The gateway writes these files; clients and providers find the
// gateway by them.
package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// EnvHome is the environment variable that names the directory of the Copilot runtime's files. It
// also chooses the gateway: each such directory has one gateway at most.
const EnvHome = "COPILOT_HOME"

// Names of the files in a state directory that programs other than the gateway read. Only their
// owner may read them. The token files are removed when the gateway ends.
const (
	InfoFile          = "gateway.json"
	LockFile          = "gateway.lock" // locked while the gateway runs
	AdminTokenFile    = ".admin-token"
	ProviderTokenFile = ".provider-token"
	RecordsDir        = "records" // a directory
)

// Info is the content of gateway.json: the address at which a gateway listens, and its process. The
// gateway writes it at its start. The file of a killed gateway stays, so check [LockFile] too.
type Info struct {
	URL       string    `json:"url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	// Args are the arguments with which tapgw ensure started the gateway; tapgw restart needs them.
	// They are empty for a gateway that was started in another way.
	Args []string `json:"args,omitempty"`
}

// Home returns the absolute path of the directory of the Copilot runtime's files: COPILOT_HOME,
// else ~/.copilot. The directory need not exist. The error says that there is neither COPILOT_HOME
// nor a home directory.
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

// Of returns the state directory of the gateway whose COPILOT_HOME is home, as [Home] returns it:
// extensions/tap below it. The directory need not exist.
func Of(home string) string { return filepath.Join(home, "extensions", "tap") }
