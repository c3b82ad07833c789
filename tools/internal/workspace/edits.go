package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
)

// Edits are changes of several files in the making. They must be closed.
type Edits struct {
	files   Files
	changes []*Change // in the order in which they were asked for
}

// Edits begins changes of several files.
func (f Files) Edits() *Edits { return &Edits{files: f} }

// Close lets go of the files.
func (e *Edits) Close() {
	for _, c := range e.changes {
		c.At.Close()
	}
}

// At returns the change of a file, the same one for each path that leads to it. At
// first it changes nothing: Was and Now are what the file holds, nil where there
// is none. Its Now is for the caller to set.
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

// Text is what the file is to hold as the changes stand. The error says that there
// is none, or that it is no text.
func (c *Change) Text() (string, error) {
	if c.Now == nil {
		return "", fmt.Errorf("%s does not exist", c.At.Name)
	}
	if Binary([]byte(*c.Now)) {
		return "", c.At.binary(int64(len(*c.Now)))
	}
	return *c.Now, nil
}

// Commit makes all the changes or none and returns those that changed something.
func (e *Edits) Commit() ([]*Change, error) {
	var changes []*Change
	for _, c := range e.changes {
		if !same(c.Was, c.Now) {
			changes = append(changes, c)
		}
	}
	return changes, Commit(changes)
}

func same(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
