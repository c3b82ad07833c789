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

// sinks are the tools through which the server's own edit tools write. It shows
// their answer to the model as the file's new text.
var sinks = []string{"insert_edit_into_file", "create_file"}

// WorkspaceTool makes a tool of the server's of one of package tools. What it
// opens is open at the server until the call ends, and what it writes is told
// where it is open.
func (c *Client) WorkspaceTool(t *tools.Tool, env tools.Env) Tool {
	return Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters,
		Call: func(ctx context.Context, call Invocation) Outcome {
			d := callDocuments{all: &c.docs}
			defer d.close()
			env := env
			env.Open, env.Sync = d.with(env.Open, env.Sync)
			result, err := t.Call(ctx, &env, call.Input)
			for _, w := range result.Written {
				_ = c.docs.changed(fileURI(w.Path), w.Content)
			}
			if err != nil {
				return FailedWith(err)
			}
			return outcome(t.Name, result)
		},
	}
}

// outcome words a tool's result for the model.
func outcome(tool string, r tools.Result) Outcome {
	var message string
	if r.Data != nil {
		var failed bool
		if message, failed = dict(r.Data); failed {
			return Outcome{[]string{message}, StatusError}
		}
	}
	if n := len(r.Written); n > 0 && slices.Contains(sinks, tool) {
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

// dict words the document's dict form: {"result": "success"} or "error", with a
// message or not.
func dict(data json.RawMessage) (message string, failed bool) {
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

// callDocuments are the documents that one call opened.
type callDocuments struct {
	all *documents

	mu     sync.Mutex // guards the fields that follow
	closed bool
	uris   []string
}

// with adds the server to those that are told of opened and written files.
func (d *callDocuments) with(open func(uri, language, text string), sync func(path, content string)) (
	func(uri, language, text string), func(path, content string)) {
	return func(uri, language, text string) {
			d.open(uri, language, text)
			if open != nil {
				open(uri, language, text)
			}
		}, func(path, content string) {
			_ = d.all.changed(fileURI(path), content)
			if sync != nil {
				sync(path, content)
			}
		}
}

func (d *callDocuments) open(uri, language, text string) {
	uri = normal(uri)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed: // the call was given up: nobody would close it
	case slices.Contains(d.uris, uri):
		_ = d.all.changed(uri, text)
	default:
		if _, err := d.all.begin(uri, language, text); err == nil {
			d.uris = append(d.uris, uri)
		}
	}
}

// normal writes the URI of a file as [fileURI] does, so that what a tool opens is
// what it writes.
func normal(uri string) string {
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
		d.all.end(uri)
	}
}
