package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/instructions"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

// instructionSet has the files of instructions that a conversation has read.
type instructionSet struct {
	workspace string // without symbolic links
	root      string // the trusted project that the workspace is in; "" outside one
	untrusted string // the reason why root is ""

	mu       sync.Mutex // guards the fields that follow
	reported []instructions.LeftOut
	// texts of directories below the workspace that the model of a conversation has
	given map[string]bool
}

// newInstructions finds out whether the workspace's files count.
func newInstructions(workspace string) (*instructionSet, error) {
	s := &instructionSet{workspace: workspace, given: map[string]bool{}}
	if real, err := filepath.EvalSymlinks(workspace); err == nil {
		s.workspace = real
	}
	root, ok, err := configs.TrustedRoot(workspace)
	switch {
	case err != nil:
		return nil, err
	case ok:
		s.root = root
	case root != "":
		s.untrusted = "files of the project have changed since you trusted it: run " +
			configs.TrustCommand(root) + ", which shows how"
	default:
		s.untrusted = "this directory is not trusted yet; trust it with: " +
			configs.TrustCommand(workspace)
	}
	return s, nil
}

// userInstructions is the user's own file, for all projects.
func userInstructions() string { return filepath.Join(configs.UserDir(), "AGENTS.md") }

// read reads the files that count in all of the workspace, the user's first.
func (s *instructionSet) read() (files []instructions.File, left []instructions.LeftOut) {
	files, left = instructions.User(userInstructions())
	if s.root != "" {
		more, leftOut := instructions.Project(s.root, s.workspace)
		return append(files, more...), append(left, leftOut...)
	}
	there, leftOut := instructions.Project(s.workspace, s.workspace)
	for _, f := range there {
		leftOut = append(leftOut, instructions.LeftOut{Path: f.Path})
	}
	if len(leftOut) > 0 {
		var names []string
		for _, l := range leftOut {
			names = append(names, l.Path)
		}
		left = append(left, instructions.LeftOut{Path: strings.Join(names, ", "),
			Reason: s.untrusted})
	}
	return files, left
}

// planInstructions tells the model that it plans.
const planInstructions = `You are planning. You can read and search the workspace; nothing may be changed, no command
may run, and no tool does so. Find out what you need, then answer the request: with the facts for a question, else with
a plan. A plan names the steps in order, the files that each touches, how the result is checked, and what is still open.
Do not say that you have done any of it.`

// instructionText returns the instructions as they are now, and reports new files that are left
// out.
func (v *Conversation) instructionText() string {
	files, left := v.instructions.read()
	v.reportLeftOut(left)
	var parts []string
	if v.Workspace.Plan {
		parts = append(parts, planInstructions)
	}
	for _, f := range files {
		whose := "the project"
		if filepath.IsAbs(f.Path) {
			whose = "the user"
		}
		parts = append(parts, fmt.Sprintf("Instructions of %s, from %s:\n\n%s", whose,
			visible.Line(f.Path), f.Text))
	}
	return strings.Join(parts, "\n\n")
}

// leavesOutRules reports whether the server must not read the workspace's .github/instructions, and
// says so.
func (v *Conversation) leavesOutRules() bool {
	if v.instructions.root == "" {
		return false // the server does not read them in an untrusted workspace
	}
	_, why := instructions.Rules(v.instructions.root, v.instructions.workspace)
	if why != "" {
		v.reportLeftOut([]instructions.LeftOut{{Path: instructions.RulesDir, Reason: why}})
	}
	return why != ""
}

func (v *Conversation) reportLeftOut(left []instructions.LeftOut) {
	s := v.instructions
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range left {
		if !slices.Contains(s.reported, l) {
			s.reported = append(s.reported, l)
			v.Workspace.Note("lsclient: %s: left out: %s", cli.OneLine(l.Path),
				cli.OneLine(l.Reason))
		}
	}
}

// nestedInstructions returns the instructions for files that a call names, if they lie below the
// workspace and the model does not have them yet.
func (v *Conversation) nestedInstructions(call langserver.Invocation) string {
	s := v.instructions
	if s.root == "" {
		return ""
	}
	var parts []string
	for _, name := range pathsIn(call.Input) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(s.workspace, name)
		} else if rel, err := filepath.Rel(v.Workspace.Dir, name); err == nil &&
			filepath.IsLocal(rel) {
			name = filepath.Join(s.workspace, rel)
		}
		files, left := instructions.Below(s.root, s.workspace, name)
		v.reportLeftOut(left)
		s.mu.Lock()
		for _, f := range files {
			if key := call.ConversationID + "\n" + f.Path + "\n" + f.Text; !s.given[key] {
				s.given[key] = true
				parts = append(
					parts,
					fmt.Sprintf(
						"Instructions of the project for the files in its directory, from %s:"+
							"\n\n%s", visible.Line(f.Path), f.Text),
				)
			}
		}
		s.mu.Unlock()
	}
	return strings.Join(parts, "\n\n")
}

// InstructionFiles returns which files of instructions count in a directory, and which are left out
// and why, both for people.
func InstructionFiles(dir string) (read, leftOut []string, err error) {
	s, err := newInstructions(dir)
	if err != nil {
		return nil, nil, err
	}
	files, left := s.read()
	for _, f := range files {
		read = append(read, f.Path)
	}
	for _, l := range left {
		leftOut = append(leftOut, l.Path+": "+l.Reason)
	}
	if s.root == "" {
		return read, leftOut, nil
	}
	rules, why := instructions.Rules(s.root, s.workspace)
	switch {
	case why != "":
		leftOut = append(leftOut, instructions.RulesDir+": "+why)
	case len(rules) > 0:
		read = append(read, fmt.Sprintf("%s (%s)", instructions.RulesDir,
			visible.Count(len(rules), "file")))
	}
	if nested := instructions.Nested(s.root, s.workspace); len(nested) > 0 {
		read = append(read, "with the first call about a file beside them "+strings.Join(nested,
			", "))
	}
	return read, leftOut, nil
}

// forget makes the model get the instructions of directories again, because a new conversation
// begins.
func (s *instructionSet) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.given)
}

// maxPaths bounds the paths of one call that are looked at.
const maxPaths = 100

// pathsIn returns the strings that a tool's arguments have under names such as path, filePath and
// filePaths.
func pathsIn(input json.RawMessage) (paths []string) {
	var args any
	if json.Unmarshal(input, &args) != nil {
		return nil
	}
	var walk func(value any, isPath bool)
	walk = func(value any, isPath bool) {
		switch value := value.(type) {
		case string:
			if isPath && len(paths) < maxPaths {
				paths = append(paths, strings.TrimPrefix(value, "file://"))
			}
		case []any:
			for _, item := range value {
				walk(item, isPath)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				name := strings.ToLower(key)
				walk(value[key], strings.HasSuffix(name, "path") ||
					strings.HasSuffix(name, "paths"))
			}
		}
	}
	walk(args, false)
	return paths
}
