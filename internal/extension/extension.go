// Package extension holds the extension that the Copilot CLI runs in each of its terminals. It only
// starts `tapgw terminal`, which inherits the terminal's pipe.
package extension

import (
	_ "embed"
	"encoding/json"
	"strings"
)

//go:embed extension.mjs
var source string

// Source returns the text of extension.mjs for a tapgw program, whose path is absolute. `tapgw
// install copilot --extension` writes it.
func Source(program string) []byte {
	quoted, _ := json.Marshal(program) // a string always can be
	return []byte(strings.Replace(source, `"@PROGRAM@"`, string(quoted), 1))
}
