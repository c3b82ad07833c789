package goals

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/proc"
)

const (
	fileSuffix = ".json"
	maxFile    = 8 << 20
)

// kept is the content of a goal's file.
type kept struct {
	adminapi.Goal

	Host string `json:"host"` // the kind of the session's host
	// Since is the time from which on evidence counts.
	Since time.Time `json:"since"`
}

// load reads the goals of the directory. A file that can't be read stays, and the log names it.
func (s *Set) load() {
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Log.Error("the goals can't be read", "error", err)
	}
	for _, e := range entries {
		id, isGoal := strings.CutSuffix(e.Name(), fileSuffix)
		if !isGoal {
			continue
		}
		k, err := loadFile(filepath.Join(s.o.Dir, e.Name()))
		if err == nil && k.ID != id {
			err = fmt.Errorf("it has the goal %q", k.ID)
		}
		if err != nil {
			s.o.Log.Error("a goal can't be read, and does not go on", "file", e.Name(), "error",
				err)
			continue
		}
		s.goals[id] = &goal{set: s, kept: k, wake: make(chan struct{}, 1), wasCut: true}
	}
}

func loadFile(file string) (k kept, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return k, err
	}
	if info.Size() > maxFile {
		return k, errors.New("it is too large")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return k, fmt.Errorf("it is damaged: %w", err)
	}
	if k.Session == "" || k.State == "" || k.Budget.Turns < 1 || k.Spent.Turns < 0 {
		return k, errors.New("it is damaged: a member is missing")
	}
	for i := range k.Contract.Checks {
		check, err := json.Marshal(k.Contract.Checks[i])
		if err != nil {
			return k, err
		}
		if k.Contract.Checks[i], err = evidence.Parse(check); err != nil {
			return k, fmt.Errorf("it is damaged: checks[%d]: %w", i, err)
		}
	}
	return k, nil
}

// save writes the goal's file. Call it with the goal's mu held, or before other goroutines have the
// goal.
func (g *goal) save() error {
	data, err := json.Marshal(g.kept)
	if err != nil {
		return err
	}
	if err := proc.PrivateDir(g.set.o.Dir); err != nil {
		return err
	}
	return proc.WritePrivate(filepath.Join(g.set.o.Dir, g.kept.ID+fileSuffix), append(data, '\n'))
}
