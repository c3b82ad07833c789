package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tapgw/internal/cli"
)

// The check writes a file: a full disk may have space for the name of a file and none for
// its content.
func TestDoctorChecksTheDisk(t *testing.T) {
	dir := t.TempDir()
	full := realDisk
	full.create = func(string) (*os.File, error) {
		if runtime.GOOS != "linux" { // a directory can't be written like a file
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
	denied := realDisk
	denied.create = func(string) (*os.File, error) { return nil, fs.ErrPermission }
	plenty := realDisk
	plenty.free = func(string) (uint64, error) { return 5 << 30, nil }
	for name, tt := range map[string]struct {
		disk   disk
		dirs   []string
		status cli.Status
		detail string // in the line of the check
		cure   string
	}{
		"full": {full, []string{dir}, cli.StatusFail, "writing 64 KiB to " + dir + ": ",
			"free space on the disk"},
		"little": {little, []string{dir}, cli.StatusWarn, "7 MiB are free in " + dir,
			"free space on the disk"},
		"unknown": {unknown, []string{dir}, cli.StatusWarn, "no answer", "df " + dir},
		"denied": {denied, []string{dir}, cli.StatusFail, "permission denied", "make " + dir +
			" writable"},
		"plenty": {
			plenty, []string{dir, filepath.Join(dir, "not", "made", "yet")}, cli.StatusOK,
			"free: 5120 MiB in " + dir + "\n", "",
		},
	} {
		got := tt.disk.check(tt.dirs...)
		if got.Status != tt.status || !strings.Contains(got.Detail+"\n", tt.detail) ||
			!strings.Contains(got.Cure, tt.cure) {
			t.Errorf("%s: got %+v, want %s with %q, cure %q", name, got, tt.status, tt.detail,
				tt.cure)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("got %v, %v in the directory, want no file", left, err)
	}
}

func TestIsOlder(t *testing.T) {
	for _, tt := range []struct {
		version, than string
		want          bool
	}{
		{"1.0.80", "1.0.81", true},
		{"1.0.81", "1.0.81", false},
		{"1.0.102", "1.0.81", false},
		{"1.1", "1.0.81", false},
		{"1.0", "1.0.81", true},
		{"v0.9.9", "1.0.81", true},
		{"1.0.81-beta.1", "1.0.81", false},
		{"unknown", "1.0.81", false},
		{"18.20.4", "20", true},
		{"22.1.0", "20", false},
	} {
		if got := isOlder(tt.version, tt.than); got != tt.want {
			t.Errorf("isOlder(%q, %q) = %v, want %v", tt.version, tt.than, got, tt.want)
		}
	}
}
