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
	// Failure says why the last run failed, and Failures how many failed in a row.
	Failure  string `json:"failure,omitzero"`
	Failures int    `json:"failures,omitzero"`
	// NotBefore is when a URL may be asked again.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Seen      seen      `json:"seen,omitzero"` // by the last run, if the source compares
}

// seen is what a source compares the next run with.
type seen struct {
	Of       string   `json:"of,omitzero"` // a digest of what was asked
	Digest   string   `json:"digest,omitzero"`
	Lines    []string `json:"lines,omitzero"` // digests
	ETag     string   `json:"etag,omitzero"`
	Modified string   `json:"modified,omitzero"` // Last-Modified
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
	if err := json.Unmarshal(data, &p); err != nil || p.Runs < 0 || p.Failures < 0 {
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
