package langserver

import "slices"

// serverTools are the server's own tools that work with files. They follow symbolic links out of
// the workspace and need no yes inside it, so [Start] removes them. A model has our tools of these
// names, if any.
var serverTools = []string{"read_file", "list_dir", "file_search", "grep_search", "semantic_search",
	"create_file", "insert_edit_into_file", "replace_string_in_file", "apply_patch"}

// serverToolIDs returns the ids of serverTools. The server ignores those that it does not have.
func serverToolIDs() []string {
	ids := slices.Clone(serverTools)
	for i := range ids {
		ids[i] = serverProvider + ids[i]
	}
	return ids
}

// wireNames are the names under which the server gets our tools that it would not show to the
// model: it takes a client's tools of these names for the targets of its own edit tools. To the
// model it shows each character that is no letter, digit, _ or - as _, so the model reads the name
// that we mean.
var wireNames = map[string]string{
	"create_file":           "create.file",
	"insert_edit_into_file": "insert_edit_into.file",
}

// wireName returns the name under which the server gets one of our tools.
func wireName(name string) string {
	if wire, ok := wireNames[name]; ok {
		return wire
	}
	return name
}

// ourName returns the name of our tool that the server has under a name.
func ourName(wire string) string {
	for name, w := range wireNames {
		if w == wire {
			return name
		}
	}
	return wire
}
