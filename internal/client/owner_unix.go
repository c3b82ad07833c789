//go:build unix

package client

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// foreign says why a file is not the user's own, "" when it is.
func foreign(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return fmt.Sprintf("it belongs to user %d and not to you (%d)", st.Uid, uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("others can write it (mode %04o)", info.Mode().Perm())
	}
	return ""
}
