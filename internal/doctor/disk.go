package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"tapgw/configs"
	"tapgw/internal/cli"
)

const (
	// lowSpace is the free space in bytes below which doctor warns.
	lowSpace = 100 << 20
	// trialSize is the size of the file that doctor writes. It is too large for the space
	// that file systems keep outside of their blocks.
	trialSize = 64 << 10
)

// disk is the file system that the check uses; tests have their own.
type disk struct {
	create func(dir string) (*os.File, error) // a temporary file
	free   func(dir string) (uint64, error)   // bytes that users other than root may use
}

var realDisk = disk{
	create: func(dir string) (*os.File, error) { return os.CreateTemp(dir, ".tapgw-doctor-") },
	free: func(dir string) (uint64, error) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return 0, err
		}
		// A size; its type differs by system.
		return st.Bavail * uint64(st.Bsize), nil //nolint:gosec,unconvert
	},
}

// checkDisk checks the free space where the gateway and the Copilot runtime write. They
// can't save sessions on a full disk.
func (d *Doctor) checkDisk(context.Context) cli.Result {
	return d.disk.check(string(d.state), configs.Home(), os.TempDir())
}

func (d disk) check(dirs ...string) cli.Result {
	var checked, details []string
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			dir = existingParent(dir)
		}
		if slices.Contains(checked, dir) {
			continue
		}
		checked = append(checked, dir)
		err := d.writeTrial(dir)
		if errors.Is(err, fs.ErrPermission) {
			return cli.Fail("make "+dir+" writable for you", "writing to %s: %v", dir, err)
		}
		if err != nil {
			return cli.Fail("free space on the disk, or raise your quota: sessions can't be saved",
				"writing %d KiB to %s: %v", trialSize>>10, dir, err)
		}
		free, err := d.free(dir)
		switch {
		case err != nil:
			return cli.Warn("look at df "+dir, "the free space of %s is not known: %v", dir, err)
		case free < lowSpace:
			return cli.Warn("free space on the disk: sessions can't be saved once it is full",
				"%s are free in %s", mebibytes(free), dir)
		}
		details = append(details, fmt.Sprintf("%s in %s", mebibytes(free), dir))
	}
	return cli.OK("free: %s", strings.Join(details, ", "))
}

// writeTrial writes a file and syncs it, because some file systems report only then that they are
// full.
func (d disk) writeTrial(dir string) error {
	f, err := d.create(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(bytes.Repeat([]byte{'.'}, trialSize))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
