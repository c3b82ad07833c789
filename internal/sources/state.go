package sources

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"tapgw/configs"
	"tapgw/internal/proc"
)

// progress is the state that a source keeps over a restart of the gateway, in a file of its own.
type progress struct {
	LastRunAt time.Time `json:"lastRunAt,omitzero"`
	// LastDueAt is when that run was due: by a cron expression, a run belongs to its minute.
	LastDueAt time.Time `json:"lastDueAt,omitzero"`
	Runs      int       `json:"runs"`
	// Of is the digest of the file's text: the progress of another text does not count.
	Of string `json:"of,omitzero"`
	// IsUnderWay is true from the start of a run to its end.
	IsUnderWay bool `json:"isUnderWay,omitzero"`
	// Failure says why the last run failed, and Failures how many failed in a row.
	Failure  string `json:"failure,omitzero"`
	Failures int    `json:"failures,omitzero"`
	// NotBefore is when a URL may be asked again.
	NotBefore time.Time `json:"notBefore,omitzero"`
	Seen      seen      `json:"seen,omitzero"` // by the last run, if the source compares
}

// seen is the answer that a source compares the next run with.
type seen struct {
	Of       string   `json:"of,omitzero"` // a digest of the question
	Digest   string   `json:"digest,omitzero"`
	Lines    []string `json:"lines,omitzero"` // digests
	ETag     string   `json:"etag,omitzero"`
	Modified string   `json:"modified,omitzero"` // Last-Modified
}

const maxState = 4 << 20

// loadProgress reads a source's saved progress. A file that can't be read gives zero progress, and
// the error says why.
func loadProgress(file string) (p progress, err error) {
	if err := readState(file, maxState, &p); err != nil {
		return progress{}, err
	}
	if p.Runs < 0 || p.Failures < 0 {
		return progress{}, fmt.Errorf("%s is damaged: it counts less than no runs", file)
	}
	return p, nil
}

// readState decodes a file of at most limit bytes. Without the file, v stays as it is.
func readState(file string, limit int64, v any) error {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Size() > limit:
		return fmt.Errorf("%s is too large", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s is damaged: %w", file, err)
	}
	return nil
}

func writeState(file string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := proc.PrivateDir(filepath.Dir(file)); err != nil {
		return err
	}
	return proc.WritePrivate(file, append(data, '\n'))
}

// identity is the digest of the command, prompt, URL or files of a source.
func identity(s *configs.Source) string {
	at := ""
	if !s.At.IsZero() {
		at = s.At.UTC().Format(time.RFC3339)
	}
	return digest(fmt.Sprintf("%q %q %q %q %q", s.Run, s.Prompt, s.Files, s.URL, at))
}

// forSource returns the progress of a source that is identified by id: a new one, if this is
// another's.
func (p progress) forSource(id string) progress {
	if p.Of != "" && p.Of != id {
		p = progress{}
	}
	p.Of = id
	return p
}

// Past returns when a source that keeps its progress in a file ran last, and how often it ran.
func Past(file string) (last time.Time, runs int) {
	p, _ := loadProgress(file) // the source itself reports the error
	return p.LastRunAt, p.Runs
}
