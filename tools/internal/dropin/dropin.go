// Package dropin runs drop-in tools: Python modules with SCHEMA and execute, and executables with a
// manifest. They are other people's code, so they run in processes of their own: whatever a tool
// does, its call ends exactly once and no other call is affected.
package dropin

import (
	"encoding/json"
	"fmt"
)

// Call is one call of a tool. Sync and Open implement the context of a Python tool.
type Call struct {
	Root  string          // of the workspace, the working directory of the tool
	Input json.RawMessage // an object
	// Sync may be nil.
	Sync func(path, content string)
	Open func(uri, language, text string)
	// Libraries returns the documentation that tools of other clients search. A module gets it
	// once, if it uses library_docs. It may be nil.
	Libraries func() []Library
}

// Library is the documentation of a library, as modules get it.
type Library struct {
	ID          string   `json:"id"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Aliases     []string `json:"aliases"` // lower case
	Sections    []string `json:"sections"`
}

// Answer is the answer of a tool that succeeded.
type Answer struct {
	Parts []string        // texts
	Data  json.RawMessage // a dict such as {"result": "success"}; nil: Parts
	Wrote []Wrote         // files that it reported as written, in order
}

// Wrote is a file that a tool reported as written.
type Wrote struct{ Path, Content string }

// Spec is how a file describes its tool.
type Spec struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON Schema, unchecked
	Kind        string          // "": the file names no kind
	Line        int             // of the description in the file; 0: unknown
}

// Fault describes why a file has no usable tool, or why its process failed a call.
type Fault struct {
	Line   int // 0: unknown
	Reason string
}

// Error implements error: the line, if there is one, and the reason. It does not name the file.
func (f *Fault) Error() string {
	if f.Line > 0 {
		return fmt.Sprintf("line %d: %s", f.Line, f.Reason)
	}
	return f.Reason
}

func fault(line int, format string, args ...any) *Fault {
	return &Fault{line, fmt.Sprintf(format, args...)}
}

// noParameters is the schema of a tool that describes no parameters.
var noParameters = json.RawMessage(`{"type":"object","properties":{},"required":[]}`)

// maxText is how many bytes of text a tool may answer. maxPrinted is how many bytes
// of its output go into an error.
const (
	maxText    = 4 << 20
	maxPrinted = 4 << 10
)
