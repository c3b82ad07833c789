package langserver

import (
	"context"
	"path/filepath"
)

// Completion is a proposed change of a file's text: Text replaces the text between Start and End,
// which are equal for an insertion.
type Completion struct {
	Text       string // replaces the text between Start and End
	Start, End Position
}

// Position is a place in a text. Line and Character count from 0, Character in UTF-16 units.
type Position struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

// Complete returns the server's proposals at a place in a file's text, in the server's order; the
// list may be empty. language is the LSP language id, such as "go". text may differ from the file
// on disk. No user signed in is [ErrNotSignedIn].
func (c *Client) Complete(
	ctx context.Context, path, language, text string, at Position,
) ([]Completion, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	uri := fileURI(path)
	version, err := c.docs.acquire(uri, language, text)
	if err != nil {
		return nil, err
	}
	defer c.docs.release(uri)
	var result struct {
		Items []struct {
			InsertText string
			Range      struct{ Start, End Position }
		}
	}
	err = c.call(ctx, "textDocument/inlineCompletion", object{
		"textDocument":      object{"uri": uri, "version": version},
		"position":          at,
		"context":           object{"triggerKind": 1}, // invoked, not typed
		"formattingOptions": object{"tabSize": 4, "insertSpaces": true},
	}, &result)
	if err != nil {
		return nil, err
	}
	list := make([]Completion, len(result.Items))
	for i, item := range result.Items {
		list[i] = Completion{item.InsertText, item.Range.Start, item.Range.End}
	}
	return list, nil
}
