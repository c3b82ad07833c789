package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"tapgw/configs"
	"tapgw/internal/cli"
)

const (
	// littleSpace is when to say something of what a disk has left, and trialSize
	// what must go on it now: more than a file system keeps beside its blocks.
	littleSpace = 100 << 20
	trialSize   = 64 << 10
)

// disk is what the check asks of one; tests have others.
type disk struct {
	create func(dir string) (*os.File, error) // a file of ours, to be removed
	free   func(dir string) (uint64, error)   // bytes, for who is not root
}

var realDisk = disk{
	create: func(dir string) (*os.File, error) { return os.CreateTemp(dir, ".tapgw-doctor-") },
	free: func(dir string) (uint64, error) {
		var st syscall.Statfs_t
		if err := syscall.Statfs(dir, &st); err != nil {
			return 0, err
		}
		return st.Bavail * uint64(st.Bsize), nil //nolint:gosec,unconvert // a size; its type differs by system
	},
}

// checkDisk checks that there is room where the gateway and the Copilot runtime write:
// sessions are not saved without.
func (d *doctor) checkDisk(context.Context) cli.Result {
	return d.disk.check(string(d.state), configs.Home(), os.TempDir())
}

func (k disk) check(dirs ...string) cli.Result {
	var there, room []string
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			dir = existing(dir) // it will be made there
		}
		if slices.Contains(there, dir) {
			continue
		}
		there = append(there, dir)
		if err := k.try(dir); err != nil {
			return cli.Fail("make room on the disk, or raise your quota there: sessions are not saved without", "writing %d KiB in %s: %v", trialSize>>10, dir, err)
		}
		free, err := k.free(dir)
		switch {
		case err != nil:
			return cli.Warn("look at df "+dir, "how much is free in %s is not known: %v", dir, err)
		case free < littleSpace:
			return cli.Warn("make room on the disk: sessions are not saved once it is full", "%s are free in %s", mebibytes(free), dir)
		}
		room = append(room, fmt.Sprintf("%s in %s", mebibytes(free), dir))
	}
	return cli.OK("free: %s", strings.Join(room, ", "))
}

// try writes a file, down to the disk: some say that they are full only then.
func (k disk) try(dir string) error {
	f, err := k.create(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(bytes.Repeat([]byte{'.'}, trialSize))
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

func mebibytes(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }
