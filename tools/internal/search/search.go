// Package search finds files and texts in a directory as git sees it: what
// .gitignore leaves out is not looked at, nor is .git itself. Hidden files are.
// Symbolic links are not followed, so that nothing outside is found.
//
// Texts are found by ripgrep where it is installed. Else we do it ourselves, more
// slowly, with the same answers; only the syntax of regular expressions is Go's
// then. Files we always find ourselves: that is as fast as it.
package search

import (
	"io/fs"

	"tapgw/tools/internal/program"
)

// Tree is a directory to search.
type Tree struct {
	Dir string // absolute, no symbolic link
	FS  fs.FS  // the same directory, for what is in files
	// Ripgrep is the program; "": we search ourselves.
	Ripgrep string
	// Skip are directories that are not looked into, as paths from Dir with slashes.
	Skip []string
}

// MaxFile is the size of the largest file whose text is searched.
const MaxFile = 16 << 20

// Open returns the tree of a directory, with ripgrep if that is on PATH outside of
// it.
func Open(dir string, fsys fs.FS) Tree {
	rg, err := program.Find("rg", dir)
	if err != nil {
		rg = ""
	}
	return Tree{Dir: dir, FS: fsys, Ripgrep: rg}
}
