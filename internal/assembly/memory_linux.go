package assembly

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram takes the pages of the program's file out of this process if they are more than
// most bytes. The start needs a little of nearly every part, since each package sets itself up, and
// the kernel maps 64 KiB around each page that is touched. Later work needs much fewer pages. They
// stay in the system's cache, so the first call that needs one again takes only some tenths of a
// millisecond longer.
func releaseProgram(most int) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	all := unwritten(string(smaps), self)
	resident := 0
	for _, m := range all {
		resident += m.resident
	}
	if resident <= most {
		return
	}
	for _, m := range all {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.start, m.end-m.start, unix.MADV_DONTNEED)
	}
}

// mapping is a part of this process's addresses.
type mapping struct {
	start, end uintptr
	resident   int // bytes of it in memory
}

// unwritten returns the mappings of a file that still equal the file: read-only mappings to which
// no process has written. A loader that moves a program writes to pages that are read-only later,
// and a debugger does so at any time. Pages that were written to have no other copy.
func unwritten(smaps, file string) []mapping {
	var (
		all         []mapping
		m           mapping
		isUnwritten bool // the lines of m that were read so far say so
	)
	for line := range strings.Lines(smaps) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "Rss:":
			kib, _ := strconv.Atoi(f[1])
			m.resident = kib << 10
		case "Anonymous:":
			isUnwritten = isUnwritten && f[1] == "0"
		case "Swap:":
			if isUnwritten && f[1] == "0" {
				all = append(all, m)
			}
			isUnwritten = false
		default:
			if first, last, ok := strings.Cut(f[0], "-"); ok {
				m = mapping{start: address(first), end: address(last)}
				isUnwritten = strings.HasPrefix(f[1], "r-") &&
					strings.HasSuffix(line, " "+file+"\n")
			}
		}
	}
	return all
}

// address reads an address of smaps.
func address(hex string) uintptr {
	n, _ := strconv.ParseUint(hex, 16, strconv.IntSize) // the kernel writes no other
	return uintptr(n)
}
