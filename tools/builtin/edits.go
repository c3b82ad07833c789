package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"tapgw/tools"
	"tapgw/tools/internal/workspace"
)

// Edits of the built-in tools, which a policy sees before they are written.

// write replaces the content of a file. If there is an Edit and another program writes the file
// while it runs, the file is read again, so that Edit has seen the replaced content.
func (e *access) write(
	ctx context.Context, at *workspace.Place, content string,
) (tools.Result, error) {
	for {
		c := &workspace.Change{At: at, Any: true, Now: &content}
		if e.Edit != nil {
			if err := readBefore(c); err != nil {
				return tools.Result{}, err
			}
		}
		err := e.commit(ctx, []*workspace.Change{c})
		if err == nil {
			var res tools.Result
			e.recordWrite(&res, tools.Written{Path: at.Path, Content: content, Created: c.Created},
				at.Name)
			return res, nil
		}
		if !errors.Is(err, workspace.ErrChanged) || ctx.Err() != nil {
			return tools.Result{}, err
		}
	}
}

// readBefore makes a change depend on the file's present content, unless that is too large to be
// read.
func readBefore(c *workspace.Change) error {
	data, err := c.At.Read()
	switch {
	case err == nil:
		was := string(data)
		c.Was, c.Any = &was, false
	case errors.Is(err, fs.ErrNotExist):
		c.Any = false
	case !errors.Is(err, workspace.ErrTooLarge):
		return err
	}
	return nil
}

// edit changes all of several files, or leaves all as they are. prepare sets the new content of
// each file. It runs again if another program wrote one of the files in the meantime, so that no
// unseen content is overwritten.
func (e *access) edit(
	ctx context.Context, prepare func(*workspace.Edits) error,
) (tools.Result, error) {
	for {
		edits := e.files().Edits()
		err := prepare(edits)
		var res tools.Result
		if err == nil {
			res, err = e.commitEdits(ctx, edits)
		}
		edits.Close()
		if err == nil {
			return res, nil
		}
		if !errors.Is(err, workspace.ErrChanged) || ctx.Err() != nil {
			return tools.Result{}, fmt.Errorf("nothing was changed: %w", err)
		}
	}
}

func (e *access) commitEdits(ctx context.Context, edits *workspace.Edits) (tools.Result, error) {
	changes := edits.Changed()
	if len(changes) == 0 {
		return textResult("Nothing to change: the files hold the text already."), nil
	}
	if err := e.commit(ctx, changes); err != nil {
		return tools.Result{}, err
	}
	var res tools.Result
	for _, c := range changes {
		if c.Now == nil {
			res.Removed = append(res.Removed, c.At.Path)
			res.Parts = append(res.Parts, "Deleted "+c.At.Name+".")
			continue
		}
		e.recordWrite(&res, tools.Written{Path: c.At.Path, Content: *c.Now, Created: c.Created},
			c.At.Name)
	}
	return res, nil
}

// commit makes all the changes, or leaves all files as they are, if Edit lets it.
func (e *access) commit(ctx context.Context, changes []*workspace.Change) error {
	var edits []tools.FileEdit
	for _, c := range changes {
		edit := tools.FileEdit{Path: c.At.Real(), Name: c.At.Name, Was: c.Was, Now: c.Now}
		if info, err := c.At.Stat(); err == nil {
			edit.Mode, edit.TooLarge = info.Mode(), c.Any
		}
		if !c.Same() {
			edits = append(edits, edit)
		}
	}
	return e.announced(ctx, edits, func() error { return workspace.Commit(changes) })
}

// makeDir makes a directory and missing parents, if Edit lets it. created is false if the directory
// exists.
func (e *access) makeDir(ctx context.Context, at *workspace.Place) (created bool, err error) {
	var edits []tools.FileEdit
	if _, err := at.Stat(); errors.Is(err, fs.ErrNotExist) {
		edits = []tools.FileEdit{{Path: at.Real(), Name: at.Name, Dir: true}}
	}
	err = e.announced(ctx, edits, func() error {
		created, err = at.Mkdir()
		return err
	})
	return created, err
}

// announced runs do between Edit and its done.
func (e *access) announced(ctx context.Context, edits []tools.FileEdit, do func() error) error {
	if e.Edit == nil || len(edits) == 0 {
		return do()
	}
	done, err := e.Edit(ctx, edits)
	if err != nil {
		return err
	}
	err = errors.New("the call broke down")
	defer func() { done(err) }()              // also when do panics
	if err = context.Cause(ctx); err == nil { // a yes comes too late
		err = do()
	}
	return err
}

// recordWrite adds a written file to the result and passes it to Sync.
func (e *access) recordWrite(res *tools.Result, w tools.Written, name string) {
	verb := "Changed "
	if w.Created {
		verb = "Created "
	}
	res.Parts = append(res.Parts, verb+name+".")
	res.Written = append(res.Written, w)
	if e.Sync != nil {
		e.Sync(w.Path, w.Content)
	}
}
