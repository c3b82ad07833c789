//go:build !unix

package client

import "io/fs"

// foreign cannot tell here: the home directory's own protection has to do.
func foreign(fs.FileInfo) string { return "" }
