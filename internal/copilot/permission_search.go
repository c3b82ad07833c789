package copilot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/protect"
)

// listers are the runtime's own tools that show the names of a directory's files but not their
// content.
var listers = []string{"view", "glob"}

// maxSearched bounds the files and directories that are looked at before a search, which takes
// about a second.
const maxSearched = 200_000

var errFound = errors.New("found")

// searchDenial returns why a call may not search a directory: it would read files of deny_paths
// too, and the runtime asks for the directory alone. The runtime searches hidden files as well and
// follows no symbolic link on its way.
func (s *session) searchDenial(req sdk.PermissionRequest, u *toolUse) string {
	read, ok := req.(*rpc.PermissionRequestRead)
	if !ok || u == nil || len(s.permissions().DenyPaths) == 0 || slices.Contains(listers, u.tool) {
		return ""
	}
	const advice = `, so nothing in it is searched: search files or directories further down, several of them with ` +
		`"paths", that hold no file of deny_paths ([copilot.permissions] of tapgw.toml)`
	switch count, err := deniedBelow(absolute(read.Path, s.cwd), s.cwd,
		s.permissions().DenyPaths); {
	case errors.Is(err, errFound):
		return read.Path + " holds files of deny_paths" + advice
	case err != nil:
		return read.Path + " can't be read whole by the gateway, and may hold files of deny_paths" +
			advice
	case count > maxSearched:
		return read.Path + " holds too many files to tell whether some are of deny_paths" + advice
	}
	return ""
}

// deniedBelow looks for files in and below a directory that globs match: errFound if there is one.
// It stops when it has seen more than maxSearched.
func deniedBelow(root, cwd string, deny []string) (count int, err error) {
	real, err := protect.Resolve(root)
	if err != nil {
		return 0, err
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return 0, nil // a file itself has been judged, and a missing directory has no files
	}
	globs := pathGlobs(deny, cwd)
	err = filepath.WalkDir(real, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				return nil // the runtime can't read it either
			}
			return err
		}
		if count++; count > maxSearched {
			return fs.SkipAll
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		below, err := filepath.Rel(real, name)
		if err == nil &&
			(matchesGlob(globs, name) || matchesGlob(globs, filepath.Join(root, below))) {
			return errFound
		}
		return err
	})
	return count, err
}
