package assembly

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// smap is one mapping as /proc/self/smaps describes it.
func smap(addresses, mode, file string, anonymous, swap int) string {
	return fmt.Sprintf("%s %s 00000000 fe:00 4711                     %s\n"+
		"Size:                  8 kB\nRss:                   8 kB\nAnonymous:             %d kB\n"+
		"AnonHugePages:         0 kB\nSwap:                  %d kB\nSwapPss:               0 kB\n"+
		"VmFlags: rd mr mw me \n", addresses, mode, file, anonymous, swap)
}

func TestUnwritten(t *testing.T) {
	t.Parallel()
	const file = "/usr/local/my bin/tapgw"
	text := smap("00400000-00f29000", "r-xp", file, 0, 0)
	for name, test := range map[string]struct {
		smaps string
		want  []mapping
	}{
		"text and constants": {
			text + smap("00f29000-01cd4000", "r--p", file, 0, 0),
			[]mapping{{0x400000, 0xf29000, 8 << 10}, {0xf29000, 0x1cd4000, 8 << 10}},
		},
		"high addresses": {
			smap("7fff00000000-7fff00001000", "r-xp", file, 0, 0),
			[]mapping{{0x7fff00000000, 0x7fff00001000, 8 << 10}},
		},
		"variables":         {smap("01cd4000-01dad000", "rw-p", file, 0, 0), nil},
		"no access":         {smap("01cd4000-01dad000", "---p", file, 0, 0), nil},
		"relocated":         {smap("00f29000-01cd4000", "r--p", file, 4, 0), nil},
		"relocated, gone":   {smap("00f29000-01cd4000", "r--p", file, 0, 4), nil},
		"another file":      {smap("00400000-00f29000", "r-xp", "/usr/lib/libc.so.6", 0, 0), nil},
		"a like name":       {smap("00400000-00f29000", "r-xp", "/opt"+file, 0, 0), nil},
		"the heap":          {smap("c000000000-c000400000", "rw-p", "", 0, 0), nil},
		"counts are absent": {strings.Split(text, "Anonymous")[0], nil},
		"no smaps":          {"", nil},
	} {
		if got := unwritten(test.smaps, file); !slices.Equal(got, test.want) {
			t.Errorf("%s: unwritten mappings %x, want %x", name, got, test.want)
		}
	}
}

// residentProgram counts the pages of this program's file in this process, in KiB.
func residentProgram(t *testing.T) (kib int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssFile: %d", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("/proc/self/status has no RssFile")
	return 0
}

func TestReleaseProgram(t *testing.T) {
	const kib = 1 << 10
	before := residentProgram(t)
	releaseProgram(2 * before * kib)
	if got := residentProgram(t); got < before {
		t.Errorf(
			"%d KiB of the program are resident, %d before: want no less, for the limit is twice that",
			got,
			before,
		)
	}
	releaseProgram(0)
	const least = 1 << 10 // KiB; a quarter of what goes in the smallest of the tests' programs
	if got := residentProgram(t); got > before-least {
		t.Errorf("%d KiB of the program are resident, %d before: want at least %d less", got,
			before, least)
	}
}

// A gateway that has work from its start on is never at rest, and does not keep what only the start
// needed.
func TestReleaseProgramAfterStart(t *testing.T) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range unwritten(string(smaps), self) {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start,
			unix.MADV_POPULATE_READ)
		if errno == unix.EINVAL {
			t.Fatal("this kernel can't load a program at once: use Linux 5.14 or newer")
		}
	}
	before := residentProgram(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go releaseMemory(ctx)
		for range 6 {
			garbage = make([]byte, 2*restBytes) // between any two looks
			<-time.After(restPeriod / 2)
		}
		synctest.Wait()
		if got := residentProgram(t); got > before/2 {
			t.Errorf("%d KiB of the program are resident, %d before: want at most half", got,
				before)
		}
	})
}
