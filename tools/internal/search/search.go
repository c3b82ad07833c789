// Package search finds files and texts in a directory as git sees it: it skips .git and the files
// that .gitignore leaves out, but not hidden files. It does not follow symbolic links, so that it
// stays inside.
//
// ripgrep searches texts if it is installed. Otherwise this package does it, more slowly and with
// the same answers, except that regular expressions have Go's syntax. It always finds files itself,
// which is as fast as ripgrep.
package search

import (
	"io/fs"

	"tapgw/tools/internal/program"
)

// Tree is a directory to search, without the files that git ignores. [Open] makes one; Skip may be
// set afterwards. A Tree does not change, so its methods may be called from several goroutines.
type Tree struct {
	Dir string // absolute, no symbolic link
	FS  fs.FS  // the same directory, to read files
	// Ripgrep is the path of the program; "": this package searches texts itself.
	Ripgrep string
	// Skip are directories that are not searched, as paths from Dir with slashes.
	Skip []string
}

// maxFile is the size of the largest file whose text is searched, in bytes.
const maxFile = 16 << 20

// Open returns the tree of a directory, with ripgrep if it is on PATH and outside of the directory:
// a program of the workspace is never run. fsys is the same directory, opened by the caller.
func Open(dir string, fsys fs.FS) Tree {
	rg, err := program.Find("rg", dir)
	if err != nil {
		rg = ""
	}
	return Tree{Dir: dir, FS: fsys, Ripgrep: rg}
}
