package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tapgw/internal/patch"
	"tapgw/tools"
	"tapgw/tools/internal/workspace"
)

type applyPatchIn struct {
	Input       string `json:"input" jsonschema:"The patch: a unified diff (---, +++, @@), or *** Begin Patch ... *** End Patch. Paths are absolute or relative to the workspace."`
	Explanation string `json:"explanation" jsonschema:"A short explanation of what the patch does."`
}

var _ = add(&tools.Tool{
	Name: "apply_patch",
	Description: `Apply a patch to one file or to several, all of it or nothing. It is a unified diff, as git writes it, or of this form:
*** Begin Patch
*** Update File: path/of/file
@@ a line above the change, such as the function that it is in
 a line that stays
-a line that goes
+a line that comes
*** Add File: path/of/new
+every line of it
*** Delete File: path/of/old
*** End Patch
"*** Move to: new/path" under "*** Update File" moves the file. The lines that stay and go must be the file's; give three above and three below a change, more where they occur in several places.`,
	Kind: tools.Edit,
}, applyPatch)

func applyPatch(ctx context.Context, env *access, in applyPatchIn) (tools.Result, error) {
	files, err := patch.Parse(in.Input)
	if err != nil {
		return tools.Result{}, fmt.Errorf("nothing was changed: %w", err)
	}
	return env.edit(ctx, func(edits *workspace.Edits) error {
		var faults []string // of all files, so that the model can correct them at once
		for i := range files {
			if err := patchFile(ctx, edits, &files[i]); err != nil {
				faults = append(faults, err.Error())
			}
		}
		if len(faults) > 0 {
			return errors.New(strings.Join(faults, "; "))
		}
		return nil
	})
}

// patchFile adds the patch's changes of one file to the edits.
func patchFile(ctx context.Context, edits *workspace.Edits, f *patch.File) error {
	c, err := edits.At(ctx, f.Path)
	if err != nil {
		return err
	}
	if f.Op == patch.Add {
		return addFile(c, f)
	}
	if (f.Op == patch.Delete || f.Target != "") && c.At.Link() {
		return fmt.Errorf("%s is a symbolic link: patch the file that it leads to", f.Path)
	}
	if f.Op == patch.Delete && len(f.Hunks) == 0 && c.Now != nil {
		c.Now = nil
		return nil
	}
	old, err := c.Text()
	if err != nil {
		return err
	}
	now, err := patch.Apply(c.At.Name, old, f.Hunks)
	switch {
	case err != nil:
		return err
	case f.Op == patch.Delete && now != "":
		return fmt.Errorf("%s holds more than the patch deletes: read it again", c.At.Name)
	case f.Op == patch.Delete:
		c.Now = nil
	case f.Target == "":
		c.Now = &now
	default:
		return moveFile(ctx, edits, c, f, now)
	}
	return nil
}

func addFile(c *workspace.Change, f *patch.File) error {
	if c.Now != nil {
		return fmt.Errorf("%s exists already: update it, or delete it first", c.At.Name)
	}
	content := f.Content()
	c.Now, c.Perm = &content, 0
	if f.Exec {
		c.Perm = 0o777
	}
	return nil
}

// moveFile writes the new text to the new path, and deletes the old file unless it is copied.
func moveFile(
	ctx context.Context, edits *workspace.Edits, c *workspace.Change, f *patch.File, now string,
) error {
	to, err := edits.At(ctx, f.Target)
	switch {
	case err != nil:
		return err
	case to == c:
		c.Now = &now
		return nil
	case to.Now != nil:
		return fmt.Errorf("%s exists already: nothing can be moved there", to.At.Name)
	}
	if info, err := c.At.Stat(); err == nil {
		to.Perm = info.Mode().Perm()
	}
	to.Now = &now
	if f.Op != patch.Copy {
		c.Now = nil
	}
	return nil
}
