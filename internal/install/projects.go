package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/cli"
	"tapgw/internal/ownfile"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// Bounds of the list of projects.
const (
	maxProjects    = 1000
	maxProjectPath = 4096 // bytes
)

// projectList is the list of the directories where --project wrote something, so that tapgw
// uninstall finds them.
type projectList struct {
	dirs  []string
	found ownfile.Found
}

// readProjects reads the list. The file is missing as long as no project has anything of tapgw. A
// list that a person has changed is an error.
func readProjects() (l projectList, err error) {
	home, err := statedir.Home()
	if err != nil {
		return l, err
	}
	file := ownfile.File{
		Path: filepath.Join(statedir.Of(home), "projects.json"), Root: home, Form: ownfile.JSON,
		Private: true,
	}
	if l.found, err = file.Look(); err != nil {
		return l, err
	}
	if l.found.State == ownfile.Changed {
		return l,
			fmt.Errorf(
				"reading %s: tapgw did not write it so: run tapgw uninstall in each project, "+
					"then delete it", file.Path)
	}
	var content struct {
		Projects []string `json:"projects"`
	}
	if text := l.found.Text(); text != "" {
		if err := json.Unmarshal([]byte(text), &content); err != nil {
			return l, fmt.Errorf("reading %s: %w", file.Path, err)
		}
	}
	for _, dir := range content.Projects {
		if canList(dir) && len(l.dirs) < maxProjects {
			l.dirs = append(l.dirs, dir)
		}
	}
	return l, nil
}

// canList reports whether the list can have a directory.
func canList(dir string) bool {
	return filepath.IsAbs(dir) && filepath.Clean(dir) == dir && len(dir) <= maxProjectPath &&
		utf8.ValidString(dir) && !strings.ContainsFunc(dir, unicode.IsControl)
}

// write replaces the list, unless another process has changed it since it was read. It removes the
// file of an empty list.
func (l projectList) write(dirs []string) error {
	if slices.Equal(dirs, l.dirs) {
		return nil
	}
	if len(dirs) == 0 {
		err := l.found.Remove()
		// The extension's directory may have been made for another file that is gone already.
		ownfile.RemoveEmpty(filepath.Dir(filepath.Dir(l.found.File.Path)), l.found.File.Root)
		return err
	}
	text, err := json.MarshalIndent(map[string][]string{"projects": dirs}, "", "  ")
	if err != nil {
		return fmt.Errorf("making the list of projects: %w", err)
	}
	l.found.File.Text = string(text) + "\n"
	return l.found.Write()
}

// changeProjects edits the list. It tries again when another process was faster.
func changeProjects(edit func(dirs []string) ([]string, error)) error {
	const tries = 20
	var err error
	for range tries {
		l, readErr := readProjects()
		if readErr != nil {
			return readErr
		}
		dirs, editErr := edit(slices.Clone(l.dirs))
		if editErr != nil {
			return editErr
		}
		if err = l.write(dirs); err == nil {
			return nil
		}
	}
	return err
}

// noteProject brings the list up to date after something was installed in a project, or removed
// there.
func (d Dialog) noteProject(dir string) error {
	if dir == "" || d.DryRun {
		return nil
	}
	u := newRemovals(d)
	if err := u.project(dir); err != nil {
		return err
	}
	has := len(u.list) > 0
	err := changeProjects(func(dirs []string) ([]string, error) {
		switch {
		case !has:
			return slices.DeleteFunc(dirs, func(d string) bool { return d == dir }), nil
		case !canList(dir):
			return nil,
				errors.New("its path has characters that the list can't have, or is too long")
		case slices.Contains(dirs, dir):
			return dirs, nil
		case len(dirs) >= maxProjects:
			return nil, fmt.Errorf("the list has %d projects, and no more fit", maxProjects)
		}
		return append(dirs, dir), nil
	})
	if err != nil && has {
		return cli.Failed(
			"%s is not in the list of projects, so tapgw uninstall finds it only when it "+
				"is run there: "+
				"%v", visible.Line(dir), err)
	}
	return err
}
