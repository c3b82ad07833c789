package taptest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// LeaveOutTap keeps the sessions of a gateway that a test is about to start without the tap_*
// tools, so that a test about something else counts its own tools and providers alone. args are the
// gateway's: the file that they name with --config gets the key, or else user, the path of the
// user's own tapgw.toml. Relative paths start at dir. A file that has a table [tap] decides for
// itself, and one that --config names and that is not there stays so.
func LeaveOutTap(dir string, args []string, user string) error {
	file := user
	for i, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--config="); ok {
			file = name
		} else if arg == "--config" && i+1 < len(args) {
			file = args[i+1]
		}
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	data, err := os.ReadFile(file) //nolint:gosec // a file of the test
	switch {
	case err != nil && (file != user || !os.IsNotExist(err)):
		return nil
	case bytes.Contains(data, []byte("[tap]")):
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, append(data, "\n[tap]\ntools = false\n"...), 0o600)
}
