package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Edits prepare changes of several files. [Commit] makes all of them or leaves all files as they
// are. The caller must close them, also after a Commit. One goroutine may use them at a time.
type Edits struct {
	files   Files
	changes []*Change // in the order of the calls of At
}

// Edits returns an empty set of changes. [Edits.At] adds files to it, within what f allows.
func (f Files) Edits() *Edits { return &Edits{files: f} }

// Close releases the files; changes that were not committed are lost. The Edits and their files
// must not be used afterwards.
func (e *Edits) Close() {
	for _, c := range e.changes {
		c.At.Close()
	}
}

// At returns the change of a file; different paths to one file return the same
// change. At first Was and Now are the file's content, nil if it does not exist. The
// caller sets Now.
func (e *Edits) At(ctx context.Context, path string) (*Change, error) {
	at, err := e.files.At(ctx, path, true)
	if err != nil {
		return nil, err
	}
	for _, c := range e.changes {
		if c.At.Real() == at.Real() {
			at.Close()
			return c, nil
		}
	}
	c := &Change{At: at}
	e.changes = append(e.changes, c)
	data, err := at.Read()
	if err == nil {
		was := string(data)
		c.Was, c.Now = &was, &was
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return c, nil
}

// Text returns Now, the content that the file is to have. It is an error for the model if the file
// does not exist, is to be deleted, or is binary.
func (c *Change) Text() (string, error) {
	if c.Now == nil {
		return "", fmt.Errorf("%s does not exist", c.At.Name)
	}
	if Binary([]byte(*c.Now)) {
		return "", c.At.binaryError(int64(len(*c.Now)))
	}
	return *c.Now, nil
}

// Changed returns the changes whose Now differs from Was, for [Commit], which does not touch the
// files of others.
func (e *Edits) Changed() []*Change {
	var changes []*Change
	for _, c := range e.changes {
		if !c.Same() {
			changes = append(changes, c)
		}
	}
	return changes
}

// Same reports whether the change would not change the file. A change of unknown content is never
// the same.
func (c *Change) Same() bool {
	return !c.Any && (c.Was == c.Now || c.Was != nil && c.Now != nil && *c.Was == *c.Now)
}
