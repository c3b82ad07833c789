package main

import (
	"errors"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/visible"
	"tapgw/skills"
)

func installSkillsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "skills",
		Usage: "teach agents the tap_* tools: loops, monitors, goals, several sessions, providers",
		Description: `It writes the skills tap-loop, tap-monitor, tap-goal, tap-orchestrate and
tap-create-provider where the Copilot CLI and Claude Code look for skills: in ~/.copilot/skills
and ~/.claude/skills, or with --project in .github/skills and .claude/skills. COPILOT_HOME and
CLAUDE_CONFIG_DIR count.

It shows what it writes; on a terminal it asks first. Skills that another version of tapgw
wrote are brought up to date. A file that a person has changed or written stays as it is, and
so does everything else there. tapgw uninstall skills takes away what tapgw wrote.

Examples:
  tapgw install skills
  tapgw install skills --project --dry-run
  tapgw install skills --yes --json`,
		Flags: installFlags(),
		Action: func(c *ucli.Context) error {
			return changeSkills(c, map[string]string{skills.Absent: "added", skills.Outdated: "updated"},
				skills.Found.Write, "move such a file away to get tapgw's own")
		},
	}
}

func uninstallSkillsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "skills",
		Usage: "take away the skills that tapgw wrote",
		Description: `It removes the files of tapgw install skills, and the directories that are empty then. A file
that a person has changed or written stays.

Examples:
  tapgw uninstall skills
  tapgw uninstall skills --project --dry-run`,
		Flags: installFlags(),
		Action: func(c *ucli.Context) error {
			return changeSkills(c, map[string]string{skills.Installed: "removed", skills.Outdated: "removed"},
				skills.Found.Remove, "remove such a file by hand if nobody needs it")
		},
	}
}

// skillChange is what becomes of a skill in a folder, as JSON shows it.
type skillChange struct {
	Skill   string `json:"skill"`
	For     string `json:"for"`
	Scope   string `json:"scope"`
	File    string `json:"file"`
	Change  string `json:"change"`  // none, added, updated, removed, kept
	Written bool   `json:"written"` // whether the change is made

	apply func() error
}

const (
	nothingChanges = "none"
	keptAsItIs     = "kept" // a person has changed or written it
)

// changeSkills shows what becomes of the skills, and does it: changes has the change of each state that has one. The
// advice is about files that a person has changed or written.
func changeSkills(
	c *ucli.Context, changes map[string]string, apply func(skills.Found) error, advice string,
) error {
	project, err := installProject(c)
	if err != nil {
		return err
	}
	list, err := skillChanges(project, changes, apply)
	if err != nil {
		return err
	}
	err = showSkills(c, list, advice)
	return errors.Join(err, noteProject(c, project))
}

// showSkills shows the changes and makes them, unless the user says no.
func showSkills(c *ucli.Context, list []skillChange, advice string) error {
	out := cli.Out(c)
	changing, kept := 0, 0
	for _, ch := range list {
		switch ch.Change {
		case nothingChanges:
			continue
		case keptAsItIs:
			kept++
		default:
			changing++
		}
		if !out.JSON {
			if err := out.Printf("%-7s  %s\n", ch.Change, visible.Line(ch.File)); err != nil {
				return err
			}
		}
	}
	if changing > 0 && !c.Bool("dry-run") {
		if !c.Bool("yes") && canAsk(c) {
			if err := confirm(c.Context, c, "Go on?"); err != nil {
				return err
			}
		}
		for i := range list {
			if list[i].apply == nil {
				continue
			}
			if err := list[i].apply(); err != nil {
				return err
			}
			list[i].Written = true
		}
	}
	if changing > 0 && c.Bool("dry-run") {
		out.Notef("tapgw: nothing was changed, because of --dry-run")
	}
	if kept > 0 {
		out.Notef("tapgw: what a person has changed or written is kept; %s", advice)
	}
	if out.JSON {
		return out.Document(list)
	}
	if changing == 0 {
		return out.Printf("nothing changes\n")
	}
	return nil
}

// skillChanges finds out what becomes of each skill in each folder.
func skillChanges(
	project string, changes map[string]string, apply func(skills.Found) error,
) ([]skillChange, error) {
	folders, err := skills.Folders(project)
	if err != nil {
		return nil, err
	}
	var list []skillChange
	for _, f := range folders {
		found, err := f.Look()
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			ch := skillChange{Skill: s.Skill.Name, For: f.For, Scope: f.Scope, File: s.File, Change: nothingChanges}
			if what, ok := changes[s.State]; ok {
				ch.Change, ch.apply = what, func() error { return apply(s) }
			} else if s.State == skills.Changed {
				ch.Change = keptAsItIs
			}
			list = append(list, ch)
		}
	}
	return list, nil
}
