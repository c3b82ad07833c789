package langserver

import (
	"context"
	"encoding/json"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tapgw/tools"
)

// This file keeps the server's open documents equal to the files on disk while one of our tools
// works on them.

// wholeFile are the tools whose answer is the file's new text: a drop-in in their place may have
// written another one than the model sent.
var wholeFile = []string{"insert_edit_into_file", "create_file"}

// WorkspaceTool makes a [Tool] from a tool of package tools, which gets a copy of env. Files that
// the tool opens are open at the server until the call ends, and the server gets the new text of
// open files that the tool writes.
func (c *Client) WorkspaceTool(t *tools.Tool, env tools.Env) Tool {
	return Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters,
		Call: func(ctx context.Context, call Invocation) Outcome {
			d := callDocuments{all: &c.docs}
			defer d.close()
			env := env
			env.Open, env.Sync = d.wrap(env.Open, env.Sync)
			result, err := t.Call(ctx, &env, call.Input)
			for _, w := range result.Written {
				_ = c.docs.update(fileURI(w.Path), w.Content)
			}
			if err != nil {
				return FailedWith(err)
			}
			return outcome(t.Name, result)
		},
	}
}

// outcome returns a tool's result in words for the model.
func outcome(tool string, r tools.Result) Outcome {
	var message string
	if r.Data != nil {
		var failed bool
		if message, failed = dictMessage(r.Data); failed {
			return Outcome{[]string{message}, StatusError}
		}
	}
	if n := len(r.Written); n > 0 && slices.Contains(wholeFile, tool) {
		return Succeeded(r.Written[n-1].Content)
	}
	switch {
	case r.Data != nil:
		return Succeeded(message)
	case len(r.Parts) == 0 && len(r.Written) > 0:
		var paths []string
		for _, w := range r.Written {
			paths = append(paths, w.Path)
		}
		return Succeeded("wrote " + strings.Join(paths, ", "))
	}
	return Succeeded(r.Parts...)
}

// dictMessage returns the message of a result of the form {"result": "success" or "error",
// "message": "…"}. Any other JSON is its own message.
func dictMessage(data json.RawMessage) (message string, failed bool) {
	var d struct {
		Result  string
		Message string
	}
	if json.Unmarshal(data, &d) != nil {
		return string(data), false
	}
	switch {
	case d.Result == "error" && d.Message == "":
		return "the tool failed and said no more: " + string(data), true
	case d.Result == "error":
		return d.Message, true
	case d.Message != "":
		return d.Message, false
	}
	return string(data), false
}

// callDocuments are the documents that one call has opened.
type callDocuments struct {
	all *documents

	mu     sync.Mutex // guards the fields that follow
	closed bool
	uris   []string
}

// wrap returns open and sync for the tool, which notify the server and then the given functions.
func (d *callDocuments) wrap(open func(uri, language, text string),
	sync func(path, content string)) (
	func(uri, language, text string), func(path, content string)) {
	return func(uri, language, text string) {
			d.open(uri, language, text)
			if open != nil {
				open(uri, language, text)
			}
		}, func(path, content string) {
			_ = d.all.update(fileURI(path), content)
			if sync != nil {
				sync(path, content)
			}
		}
}

func (d *callDocuments) open(uri, language, text string) {
	uri = normalURI(uri)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed: // the call has ended, so the document would stay open
	case slices.Contains(d.uris, uri):
		_ = d.all.update(uri, text)
	default:
		if _, err := d.all.acquire(uri, language, text); err == nil {
			d.uris = append(d.uris, uri)
		}
	}
}

// normalURI returns the URI of a file as [fileURI] writes it, so that opening and writing name the
// same document.
func normalURI(uri string) string {
	if filepath.IsAbs(uri) {
		return fileURI(uri)
	}
	if u, err := url.Parse(uri); err == nil && u.Scheme == "file" {
		return fileURI(u.Path)
	}
	return uri
}

func (d *callDocuments) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, uri := range d.uris {
		d.all.release(uri)
	}
}
