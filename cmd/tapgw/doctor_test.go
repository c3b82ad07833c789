package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tapgw/internal/cli"
)

// TestDoctorFindsAFullDisk writes what a gateway writes: a disk that is full may have a
// place for a name, and none for what is in the file.
func TestDoctorFindsAFullDisk(t *testing.T) {
	dir := t.TempDir()
	full := realDisk
	full.create = func(string) (*os.File, error) {
		if runtime.GOOS != "linux" { // as a file that can't be written is, anywhere
			return os.Open(dir)
		}
		if err := os.Symlink("/dev/full", filepath.Join(dir, "full")); err != nil {
			return nil, err
		}
		return os.OpenFile(filepath.Join(dir, "full"), os.O_WRONLY, 0)
	}
	little, unknown := realDisk, realDisk
	little.free = func(string) (uint64, error) { return 7 << 20, nil }
	unknown.free = func(string) (uint64, error) { return 0, errors.New("no answer") }
	plenty := realDisk
	plenty.free = func(string) (uint64, error) { return 5 << 30, nil }
	for name, tt := range map[string]struct {
		disk   disk
		dirs   []string
		status cli.Status
		says   string
	}{
		"full":    {full, []string{dir}, cli.StatusFail, "writing 64 KiB in " + dir + ": "},
		"little":  {little, []string{dir}, cli.StatusWarn, "7 MiB are free in " + dir},
		"unknown": {unknown, []string{dir}, cli.StatusWarn, "no answer"},
		"plenty":  {plenty, []string{dir, filepath.Join(dir, "to", "be", "made")}, cli.StatusOK, "free: 5120 MiB in " + dir + "\n"},
	} {
		got := tt.disk.check(tt.dirs...)
		if got.Status != tt.status || !strings.Contains(got.Detail+"\n", tt.says) || (got.Status == cli.StatusOK) != (got.Cure == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
