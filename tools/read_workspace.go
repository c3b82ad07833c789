package tools

import "context"

// ReadFile reads a file that a person names: a path in the workspace, or one outside that Outside allows. No other file
// is reached through symbolic links. The error wraps fs.ErrNotExist if there is none.
func (e *Env) ReadFile(ctx context.Context, path string) ([]byte, error) {
	at, err := e.files().At(ctx, path, false)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return at.Read()
}

// WorkspaceFiles lists the workspace's files, with / between directories and seen from its root, without those that
// .gitignore names.
func (e *Env) WorkspaceFiles(ctx context.Context) ([]string, error) {
	tree, done, err := e.searchTree(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return tree.Files(ctx, nil)
}
