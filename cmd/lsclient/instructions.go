package main

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

// instructionSet is what a conversation knows about files of instructions.
type instructionSet struct {
	workspace string // without symbolic links
	root      string // the trusted project that the workspace is in; "": none
	untrusted string // why there is none

	mu       sync.Mutex // guards the fields that follow
	reported []instructions.LeftOut
	given    map[string]bool // texts of directories below the workspace that the model of a conversation has
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
		s.untrusted = "files of the project have changed since you trusted it: run " + configs.TrustCommand(root) +
			", which shows how"
	default:
		s.untrusted = "this directory is not trusted yet; trust it with: " + configs.TrustCommand(workspace)
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
		left = append(left, instructions.LeftOut{Path: strings.Join(names, ", "), Reason: s.untrusted})
	}
	return files, left
}

// instruct gives the model the instructions as they are now, from the next turn on.
func (v *conversation) instruct() error {
	return v.server.SetInstructions(v.instructionText())
}

// instructionText returns the instructions as they are now, and reports new files that are left out.
func (v *conversation) instructionText() string {
	files, left := v.instructions.read()
	v.reportLeftOut(left)
	var parts []string
	if v.cmd.Bool("plan") {
		parts = append(parts, planInstructions)
	}
	for _, f := range files {
		whose := "the project"
		if filepath.IsAbs(f.Path) {
			whose = "the user"
		}
		parts = append(parts, fmt.Sprintf("Instructions of %s, from %s:\n\n%s", whose, visible.Line(f.Path), f.Text))
	}
	return strings.Join(parts, "\n\n")
}

// leavesOutRules reports whether the server must not read the workspace's .github/instructions, and says so.
func (v *conversation) leavesOutRules() bool {
	if v.instructions.root == "" {
		return false // the server does not read them in an untrusted workspace
	}
	_, why := instructions.Rules(v.instructions.root, v.instructions.workspace)
	if why != "" {
		v.reportLeftOut([]instructions.LeftOut{{Path: instructions.RulesDir, Reason: why}})
	}
	return why != ""
}

func (v *conversation) reportLeftOut(left []instructions.LeftOut) {
	s := v.instructions
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range left {
		if !slices.Contains(s.reported, l) {
			s.reported = append(s.reported, l)
			v.cmd.out.Notef("lsclient: %s: left out: %s", cli.OneLine(l.Path), cli.OneLine(l.Reason))
		}
	}
}

// nestedInstructions returns the instructions for files that a call names, if they lie below the workspace and the
// model does not have them yet.
func (v *conversation) nestedInstructions(call langserver.Invocation) string {
	s := v.instructions
	if s.root == "" {
		return ""
	}
	var parts []string
	for _, name := range pathsIn(call.Input) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(s.workspace, name)
		} else if rel, err := filepath.Rel(v.cmd.workspace.Dir, name); err == nil && filepath.IsLocal(rel) {
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
					fmt.Sprintf("Instructions of the project for the files in its directory, from %s:"+
						"\n\n%s", visible.Line(f.Path), f.Text),
				)
			}
		}
		s.mu.Unlock()
	}
	return strings.Join(parts, "\n\n")
}

// instructionsResult is what doctor says about instructions: the files that were read and those that were not.
func (c *command) instructionsResult() cli.Result {
	s, err := newInstructions(c.workspace.Dir)
	if err != nil {
		return cli.Fail("", "%v", err)
	}
	files, left := s.read()
	var read, not []string
	for _, f := range files {
		read = append(read, f.Path)
	}
	for _, l := range left {
		not = append(not, "left out: "+l.Path+": "+l.Reason)
	}
	if s.root != "" {
		rules, why := instructions.Rules(s.root, s.workspace)
		switch {
		case why != "":
			not = append(not, "left out: "+instructions.RulesDir+": "+why)
		case len(rules) > 0:
			read = append(read, fmt.Sprintf("%s (%s)", instructions.RulesDir, visible.Count(len(rules), "file")))
		}
		if nested := instructions.Nested(s.root, s.workspace); len(nested) > 0 {
			read = append(read, "with the first call about a file beside them "+strings.Join(nested, ", "))
		}
	}
	detail := "read: " + strings.Join(read, ", ")
	if len(read) == 0 {
		detail = "no file"
	}
	if len(not) > 0 {
		return cli.Warn("", "%s; %s", detail, strings.Join(not, "; "))
	}
	return cli.OK("%s", detail)
}

// forget makes the model get the instructions of directories again, because a new conversation begins.
func (s *instructionSet) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.given)
}

// maxPaths bounds the paths of one call that are looked at.
const maxPaths = 100

// pathsIn returns the strings that a tool's arguments have under names such as path, filePath and filePaths.
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
				walk(value[key], strings.HasSuffix(name, "path") || strings.HasSuffix(name, "paths"))
			}
		}
	}
	walk(args, false)
	return paths
}
