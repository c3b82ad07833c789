package gateway

import (
	"encoding/json"

	"tapgw/internal/patch"
	"tapgw/internal/protocol"
)

// patchTool is the tool of agents that applies a patch to several files.
const patchTool = "apply_patch"

// CallFiles returns the files that a call names: in path and its like, in lists, in the objects of
// a list, and in a patch, which may be all that the call has. isUnclear says that there may be
// more, because the patch can't be read. See docs/protocol.md, "Match and patterns".
func CallFiles(tool string, args protocol.Raw) (names []string, isUnclear bool) {
	if text, ok := protocol.Text(args); ok {
		return patchFiles(text)
	}
	if args.Kind() != '{' {
		return nil, false
	}
	err := protocol.Object(args, func(name string, v protocol.Raw) error {
		if text, ok := protocol.Text(v); ok && tool == patchTool &&
			(name == "input" || name == "patch") {
			found, unclear := patchFiles(text)
			names, isUnclear = append(names, found...), isUnclear || unclear
			return nil
		}
		names = append(names, namedFiles(name, v)...)
		for _, element := range elements(v) {
			if element.Kind() != '{' {
				continue
			}
			err := protocol.Object(element, func(name string, v protocol.Raw) error {
				names = append(names, namedFiles(name, v)...)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return names, isUnclear || err != nil
}

// elements returns the elements of an array, nil for other values.
func elements(v protocol.Raw) (list []protocol.Raw) {
	if v.Kind() == '[' {
		_ = json.Unmarshal(v, &list)
	}
	return list
}

func patchFiles(text string) (names []string, isUnclear bool) {
	names, err := patch.Named(text)
	return names, err != nil
}

// namedFiles returns the files that a member of an object names.
func namedFiles(name string, v protocol.Raw) (names []string) {
	switch name {
	case "path", "file", "filePath", "file_path", "dirPath", "paths", "files", "filePaths",
		"file_paths":
	default:
		return nil
	}
	for _, v := range append(elements(v), v) {
		if s, ok := protocol.Text(v); ok {
			names = append(names, s)
		}
	}
	return names
}
