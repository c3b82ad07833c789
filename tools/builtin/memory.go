package builtin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/tools"
	"tapgw/tools/internal/workspace"
)

type memoryIn struct {
	Command string `json:"command" jsonschema:"What to do." enum:"save,read,list,delete"`
	Path    string `json:"path,omitzero" jsonschema:"Name of the memory, such as notes.md. Needed for save, read and delete."`
	Content string `json:"content,omitzero" jsonschema:"The text to save: it replaces what the memory holds. Needed for save."`
}

var _ = add(&tools.Tool{
	Name: "memory",
	Description: "Notes that outlast the conversation and are shared by all workspaces: save, " +
		"read, list or delete " +
		"them by name. Save what will be of use later: decisions, conventions, how things " +
		"are done here.",
	Kind: tools.Read, // it writes only its own notes
}, memory)

const (
	maxMemory   = 256 << 10 // bytes of one
	maxMemories = 500
)

// A memory's name must be a plain file name on every system; Windows has devices
// with some names. The length is checked separately: in the pattern it would take
// 4 MB of memory.
var (
	memoryPattern = lazyregexp.New(`^[\pL\pN_][\pL\pN_. -]*$`)
	deviceName    = lazyregexp.New(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)
)

func isMemoryName(s string) bool {
	return utf8.RuneCountInString(s) <= 100 && memoryPattern.MatchString(s)
}

func memory(ctx context.Context, env *access, in memoryIn) (tools.Result, error) {
	if env.Home == "" {
		return tools.Result{},
			errors.New("there is no place for memories: the user has no home directory")
	}
	dir := filepath.Join(env.Home, "memories")
	if err := proc.PrivateDir(dir); err != nil { // creates env.Home, too
		return tools.Result{}, err
	}
	files := workspace.Files{Root: dir}
	if in.Command == "list" {
		return listMemories(ctx, files)
	}
	if in.Path == "" {
		return tools.Result{}, fmt.Errorf("path is missing: %s needs the name of a memory",
			in.Command)
	}
	if !isMemoryName(in.Path) || deviceName.MatchString(in.Path) ||
		strings.HasSuffix(in.Path, ".") || strings.HasSuffix(in.Path, " ") {
		return tools.Result{}, fmt.Errorf("%.120q is no name of a memory: "+
			"use letters, digits, _, -, . and spaces, such as notes.md", in.Path)
	}
	at, err := files.At(ctx, in.Path, in.Command != "read")
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	switch in.Command {
	case "save":
		return saveMemory(ctx, files, at, in.Content)
	case "read":
		content, err := at.Read()
		if err != nil {
			return tools.Result{}, memoryError(in.Path, err)
		}
		return textResult(string(content)), nil
	default:
		if err := at.Remove(); err != nil {
			return tools.Result{}, memoryError(in.Path, err)
		}
		return textResult("Deleted memory " + in.Path + "."), nil
	}
}

func memoryError(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no memory %s: list shows those there are", name)
	}
	return err
}

func saveMemory(
	ctx context.Context, files workspace.Files, at *workspace.Place, content string,
) (tools.Result, error) {
	switch names, err := memories(ctx, files); {
	case err != nil:
		return tools.Result{}, err
	case content == "":
		return tools.Result{},
			errors.New("content is missing: save needs the text to keep; delete forgets a memory")
	case len(content) > maxMemory:
		return tools.Result{},
			fmt.Errorf(
				"the content has %d bytes, a memory holds %d at most: shorten it or split it",
				len(content), maxMemory)
	case len(names) >= maxMemories:
		if _, err := at.Stat(); err != nil {
			return tools.Result{},
				fmt.Errorf("there are %d memories, no more are kept: delete one first", len(names))
		}
	}
	if _, err := at.Write(content); err != nil {
		return tools.Result{}, err
	}
	return textResult("Saved memory " + at.Name + "."), nil
}

func listMemories(ctx context.Context, files workspace.Files) (tools.Result, error) {
	names, err := memories(ctx, files)
	if err != nil {
		return tools.Result{}, err
	}
	if len(names) == 0 {
		return textResult("No memories saved yet."), nil
	}
	return textResult(strings.Join(names, "\n")), nil
}

// memories lists the names of the saved memories.
func memories(ctx context.Context, files workspace.Files) (names []string, err error) {
	dir, err := files.At(ctx, ".", false)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.List()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Type().IsRegular() && isMemoryName(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
