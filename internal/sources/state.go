package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tapgw/internal/proc"
)

// progress is what a source keeps over a restart of the gateway, in a file of its own.
type progress struct {
	LastRunAt time.Time `json:"lastRunAt,omitzero"`
	// LastDueAt is when that run was due: by a cron expression, a run belongs to its minute.
	LastDueAt time.Time `json:"lastDueAt,omitzero"`
	Runs      int       `json:"runs"`
	// Failed says how the last run ended, and Seen what it saw, if the source compares.
	Failed bool `json:"failed,omitzero"`
	Seen   seen `json:"seen,omitzero"`
}

// seen is what a source compares the next run with.
type seen struct {
	IsSet  bool     `json:"isSet,omitzero"`
	Digest string   `json:"digest,omitzero"`
	Lines  []string `json:"lines,omitzero"` // digests
	ETag   string   `json:"etag,omitzero"`
}

const maxState = 4 << 20

// loadProgress reads what a source has kept. A file that can't be read counts as none, and the error says why.
func loadProgress(file string) (p progress, err error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return progress{}, nil
	case err != nil:
		return progress{}, err
	case info.Size() > maxState:
		return progress{}, fmt.Errorf("%s is too large", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return progress{}, err
	}
	if err := json.Unmarshal(data, &p); err != nil || p.Runs < 0 {
		return progress{}, fmt.Errorf("%s is damaged: %w", file, err)
	}
	return p, nil
}

func (p progress) save(file string) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := proc.PrivateDir(filepath.Dir(file)); err != nil {
		return err
	}
	return proc.WritePrivate(file, append(data, '\n'))
}
