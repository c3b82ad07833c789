package skills

import (
	"path/filepath"

	"tapgw/internal/ownfile"
)

// Found is a skill in a folder, and its state. File is where it is, or would be.
type Found struct {
	Skill Skill
	File  string
	State string

	found ownfile.Found
}

// Look returns the state of each skill in the folder. It writes nothing. An error names the path
// that can't be read.
func (f Folder) Look() ([]Found, error) {
	var all []Found
	for _, s := range All() {
		file := ownfile.File{Path: filepath.Join(f.Path, s.Name, fileName), Root: f.root,
			KeepRoot: f.keepRoot, Text: s.Text, Form: ownfile.FrontMatter}
		found, err := file.Look()
		if err != nil {
			return nil, err
		}
		all = append(all, Found{Skill: s, File: file.Path, State: found.State, found: found})
	}
	return all, nil
}

// Write installs the skill if it is absent or outdated: the whole file or nothing. It leaves any
// other alone.
func (s Found) Write() error { return s.found.Write() }

// Remove takes away the skill if tapgw has installed it, and the directories that are empty then.
func (s Found) Remove() error { return s.found.Remove() }
