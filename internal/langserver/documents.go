package langserver

import (
	"cmp"
	"sync"
)

// documents are the files that are open at the server. It edits an open one from
// what it was told, not from the disk: a document that is open and stale loses
// what was written since. So none is open for longer than a tool call or a
// completion, and one that is written meanwhile is told.
type documents struct {
	client *Client

	mu   sync.Mutex           // held while the server is told, so that it hears of changes in order
	open map[string]*document // by URI
}

type document struct {
	users   int
	version int
}

// begin opens a document, for another user if it is open, and returns its version.
func (d *documents) begin(uri, language, text string) (version int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.open[uri]; doc != nil {
		doc.users++
		err := d.tell(uri, doc, text)
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

// changed tells the new text of a document if it is open.
func (d *documents) changed(uri, text string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.open[uri]; doc != nil {
		return d.tell(uri, doc, text)
	}
	return nil
}

func (d *documents) tell(uri string, doc *document, text string) error {
	doc.version++
	return d.client.conn.Notify("textDocument/didChange", object{
		"textDocument":   object{"uri": uri, "version": doc.version},
		"contentChanges": []any{object{"text": text}},
	})
}

// end closes a document when its last user is done.
func (d *documents) end(uri string) {
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
	// It fails where the server is gone, with all that it had open.
	_ = d.client.conn.Notify("textDocument/didClose", object{"textDocument": object{"uri": uri}})
}
