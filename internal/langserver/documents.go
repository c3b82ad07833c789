package langserver

import (
	"cmp"
	"sync"
)

// documents are the files that are open at the server. The server edits an open document from the
// text that it got, not from the disk, so an outdated document would lose later changes. Therefore
// a document is open only during a tool call or a completion, and the server gets the changes
// meanwhile.
type documents struct {
	client *Client

	mu   sync.Mutex           // held while notifying the server, so that changes keep their order
	open map[string]*document // by URI
}

type document struct {
	users   int
	version int
}

// acquire opens a document, or adds a user to an open one, and returns its version.
func (d *documents) acquire(uri, language, text string) (version int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.open[uri]; doc != nil {
		doc.users++
		err := d.sendChange(uri, doc, text)
		return doc.version, err
	}
	err = d.client.conn.Notify("textDocument/didOpen", object{"textDocument": object{
		"uri": uri, "languageId": cmp.Or(language, "plaintext"), "version": 1, "text": text,
	}})
	if err == nil {
		if d.open == nil {
			d.open = map[string]*document{}
		}
		d.open[uri] = &document{users: 1, version: 1}
	}
	return 1, err
}

// update sends the new text of a document to the server if it is open.
func (d *documents) update(uri, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.open[uri]; doc != nil {
		return d.sendChange(uri, doc, text)
	}
	return nil
}

func (d *documents) sendChange(uri string, doc *document, text string) error {
	doc.version++
	return d.client.conn.Notify("textDocument/didChange", object{
		"textDocument":   object{"uri": uri, "version": doc.version},
		"contentChanges": []any{object{"text": text}},
	})
}

// release closes a document after its last user.
func (d *documents) release(uri string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc := d.open[uri]
	if doc == nil {
		return
	}
	if doc.users--; doc.users > 0 {
		return
	}
	delete(d.open, uri)
	// This fails only if the server has ended.
	_ = d.client.conn.Notify("textDocument/didClose", object{"textDocument": object{"uri": uri}})
}
