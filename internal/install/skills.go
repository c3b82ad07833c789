package install

import (
	"context"
	"errors"

	"tapgw/internal/visible"
	"tapgw/skills"
)

// skillChange is the change of a skill in a folder, as JSON shows it.
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

// InstallSkills writes the skills of the tap_* tools where agents look for them: for the user, or
// in a project if project is not "".
func (d Dialog) InstallSkills(ctx context.Context, project string) error {
	return d.changeSkills(ctx, project, map[string]string{skills.Absent: "added",
		skills.Outdated: "updated"},
		skills.Found.Write, "move such a file away to get tapgw's own")
}

// UninstallSkills removes the skills that tapgw wrote there.
func (d Dialog) UninstallSkills(ctx context.Context, project string) error {
	return d.changeSkills(ctx, project, map[string]string{skills.Installed: "removed",
		skills.Outdated: "removed"},
		skills.Found.Remove, "remove such a file by hand if nobody needs it")
}

// changeSkills shows the changes of the skills, and makes them. changes has the name of the change
// by a skill's state; states without a change are missing. The advice is about files that a person
// has changed or written.
func (d Dialog) changeSkills(
	ctx context.Context, project string, changes map[string]string, apply func(skills.Found) error,
	advice string,
) error {
	list, err := skillChanges(project, changes, apply)
	if err != nil {
		return err
	}
	err = d.showSkills(ctx, list, advice)
	return errors.Join(err, d.noteProject(project))
}

// showSkills shows the changes and makes them, unless the user says no.
func (d Dialog) showSkills(ctx context.Context, list []skillChange, advice string) error {
	out := d.Out
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
	if changing > 0 && !d.DryRun {
		if err := d.confirm(ctx, "Go on?"); err != nil {
			return err
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
	if changing > 0 && d.DryRun {
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

// skillChanges returns the change of each skill in each folder.
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
			ch := skillChange{Skill: s.Skill.Name, For: f.For, Scope: f.Scope, File: s.File,
				Change: nothingChanges}
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
