// Package skills has the skills that teach a model how to use the tap_* tools, and writes them into
// the folders where agents look for skills. Files that a person has changed or written are left
// alone.
package skills

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"tapgw/internal/ownfile"
	"tapgw/internal/statedir"
)

// files has a directory for each skill, with its SKILL.md.
//
//go:embed tap-*/SKILL.md
var files embed.FS

// fileName is the file in a skill's directory that agents read.
const fileName = "SKILL.md"

// Skill is one of the skills that this version of tapgw has. Text is the whole SKILL.md: front
// matter with name and description, then the text for a model that uses the skill.
type Skill struct {
	Name string
	Text string
}

// All returns the skills, sorted by name.
func All() []Skill {
	var all []Skill
	dirs, err := fs.ReadDir(files, ".")
	for _, dir := range dirs {
		var text []byte
		if text, err = fs.ReadFile(files, dir.Name()+"/"+fileName); err != nil {
			break
		}
		all = append(all, Skill{Name: dir.Name(), Text: string(text)})
	}
	if err != nil {
		panic(err) // they are part of the program
	}
	return all
}

// Scopes of a [Folder].
const (
	User    = "user"    // for all projects of the user
	Project = "project" // for one project
)

// Folder is where one agent looks for skills: Path, below which each skill has a directory. For
// names the agent: copilot or claude.
type Folder struct {
	For   string
	Scope string
	Path  string

	root     string // no symbolic link below it leads out of it
	keepRoot bool   // root stays when it is empty
}

// Folders returns where the agents look for skills: in a project's directory, or for the user if
// project is "".
func Folders(project string) ([]Folder, error) {
	folder := func(agent, root string, keep bool, path ...string) Folder {
		f := Folder{For: agent, Scope: User, root: root, keepRoot: keep,
			Path: filepath.Join(append([]string{root}, path...)...)}
		if project != "" {
			f.Scope = Project
		}
		return f
	}
	if project != "" {
		return []Folder{
			folder("copilot", project, true, ".github", "skills"),
			folder("claude", project, true, ".claude", "skills"),
		}, nil
	}
	copilot, err := statedir.Home()
	if err != nil {
		return nil, fmt.Errorf("finding Copilot's skills: %w", err)
	}
	claude := os.Getenv(envClaude)
	if claude == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("finding Claude's skills: %w", err)
		}
		claude = filepath.Join(home, ".claude")
	} else if claude, err = filepath.Abs(claude); err != nil {
		return nil, fmt.Errorf("finding Claude's skills: %w", err)
	}
	return []Folder{
		folder("copilot", copilot, os.Getenv(statedir.EnvHome) != "", "skills"),
		folder("claude", claude, os.Getenv(envClaude) != "", "skills"),
	}, nil
}

// envClaude is the variable with the directory of Claude Code's own files.
const envClaude = "CLAUDE_CONFIG_DIR"

// States of a skill in a folder.
const (
	Absent    = ownfile.Absent
	Installed = ownfile.Installed
	Outdated  = ownfile.Outdated // as another version of tapgw wrote it
	Changed   = ownfile.Changed  // a person has changed or written it
)

// Summary is the state of a whole folder: the state that all skills have, or else "partly", or
// "changed" if a person has one of them.
func Summary(found []Found) string {
	states := map[string]bool{}
	for _, f := range found {
		states[f.State] = true
	}
	switch {
	case states[Changed]:
		return Changed
	case states[Outdated]:
		return Outdated
	case len(states) == 1:
		return found[0].State
	}
	return "partly"
}
