package builtin

import (
	"context"
	"fmt"
	"io/fs"
	"strings"

	"tapgw/tools"
)

type listDirIn struct {
	Path string `json:"path" jsonschema:"The directory: an absolute path, or one relative to the workspace (\".\" is the workspace itself)."`
}

var _ = add(&tools.Tool{
	Name: "list_dir",
	Description: "List the contents of a directory, one entry a line. A name that ends in / is a " +
		"directory, one " +
		"that ends in @ is a symbolic link. Ignored and hidden entries are listed too.",
	Kind: tools.Read,
}, listDir)

// maxEntries is how many entries of a directory are listed.
const maxEntries = 2000

func listDir(ctx context.Context, env *access, in listDirIn) (tools.Result, error) {
	at, err := env.files().At(ctx, in.Path, false)
	if err != nil {
		return tools.Result{}, err
	}
	defer at.Close()
	entries, err := at.List()
	if err != nil {
		return tools.Result{}, err
	}
	if len(entries) == 0 {
		return textResult(at.Name + " is empty."), nil
	}
	var b strings.Builder
	for _, e := range entries[:min(len(entries), maxEntries)] {
		b.WriteString(e.Name())
		switch {
		case e.IsDir():
			b.WriteByte('/')
		case e.Type()&fs.ModeSymlink != 0:
			b.WriteByte('@')
		}
		b.WriteByte('\n')
	}
	if n := len(entries) - maxEntries; n > 0 {
		fmt.Fprintf(&b,
			"[%d more entries are not shown: use file_search with a pattern to find "+
				"what you need]\n", n)
	}
	return textResult(strings.TrimSuffix(b.String(), "\n")), nil
}
