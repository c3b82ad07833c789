// Package dropin runs tools that are found at run time: Python modules as the
// document of tools describes them, and executables with a manifest. They are
// other people's code in processes of their own: whatever they do, a call ends
// once, and no other call notices.
package dropin

import (
	"encoding/json"
	"fmt"
)

// Call is a call of a tool.
type Call struct {
	Root  string          // of the workspace: what the tool works in
	Input json.RawMessage // an object
	// What a Python tool's context offers. nil: nobody listens.
	Sync func(path, content string)
	Open func(uri, language, text string)
}

// Answer is what a tool answered.
type Answer struct {
	Parts []string        // texts
	Data  json.RawMessage // the document's dict form; nil: Parts
	Wrote []Wrote         // what it synchronised, in order
}

// Wrote is a file that a tool said it wrote.
type Wrote struct{ Path, Content string }

// Spec is what a file says about its tool.
type Spec struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON Schema, unchecked
	Kind        string          // "" or one of read, edit, terminal, web
	Line        int             // where it says so; 0: unknown
}

// Fault says why a file is no tool.
type Fault struct {
	Line   int // 0: unknown
	Reason string
}

func (f *Fault) Error() string {
	if f.Line > 0 {
		return fmt.Sprintf("line %d: %s", f.Line, f.Reason)
	}
	return f.Reason
}

func fault(line int, format string, args ...any) *Fault {
	return &Fault{line, fmt.Sprintf(format, args...)}
}

// noParameters is the schema of a tool that says nothing about them.
var noParameters = json.RawMessage(`{"type":"object","properties":{},"required":[]}`)

// maxText is how many bytes of text a tool may answer, and maxPrinted is how many
// of what it printed go into an error.
const (
	maxText    = 4 << 20
	maxPrinted = 4 << 10
)
