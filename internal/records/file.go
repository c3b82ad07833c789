package records

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tapgw/internal/proc"
)

// This file writes records to the newest file of the directory, begins another one when that is
// full, and removes old files.

// A file of records ends when it has this size, or a part of the age that records may have, so that
// old ones can go.
const (
	maxFileBytes = 8 << 20
	fileParts    = 10 // files that make up the age and the size
)

// cacheIdle is after which time without a query the copy of the records goes with the next old
// file.
const cacheIdle = 24 * time.Hour

// clockSlack is how far a clock may go back without a word: clocks are corrected by a little all
// the time.
const clockSlack = time.Minute

// CacheFile is the name of the database of tapctl records sql in the directory of the records: a
// copy of them.
const CacheFile = "records.db"

// Segment is one file of records. Its number rises from file to file.
type Segment struct {
	Path   string
	Number int
}

// Segments lists the files of a directory, oldest first. Without a directory the list is empty.
func Segments(dir string) ([]Segment, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the records: %w", err)
	}
	var list []Segment
	for _, e := range entries {
		name, isOurs := strings.CutSuffix(e.Name(), ".jsonl")
		n, err := strconv.Atoi(name)
		if isOurs && err == nil && n > 0 && e.Type().IsRegular() {
			list = append(list, Segment{filepath.Join(dir, e.Name()), n})
		}
	}
	slices.SortFunc(list, func(a, b Segment) int { return a.Number - b.Number })
	return list, nil
}

// file is the file that is written, and the rules by which the older ones go. It is for one
// goroutine.
type file struct {
	dir      string
	maxAge   time.Duration
	maxBytes int64
	clock    string // the fault of the clock, or ""

	f      *os.File
	number int
	size   int64
	began  time.Time // the first record of the file
	isTorn bool      // the last line has no end
	latest time.Time // the newest time of all records
}

// write appends lines whose first and last have these times. After an error the lines may be there
// in part: the next write begins a new line.
func (f *file) write(lines []byte, first, last time.Time) error {
	f.checkClock(first, last)
	if f.f != nil && f.isFull(int64(len(lines)), first) {
		if err := f.close(); err != nil {
			return err
		}
		f.number++
		if err := f.open(first, true); err != nil {
			return err
		}
	}
	if f.f == nil {
		if err := f.open(first, false); err != nil {
			return err
		}
	}
	if f.isTorn {
		lines = append([]byte("\n"), lines...)
	}
	n, err := f.f.Write(lines)
	f.size += int64(n)
	if n > 0 {
		f.isTorn = lines[n-1] != '\n'
	}
	if err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return nil
}

// checkClock notes that the clock went back. Records keep the order in which they came.
func (f *file) checkClock(first, last time.Time) {
	if !f.latest.IsZero() && first.Before(f.latest.Add(-clockSlack)) {
		f.clock = fmt.Sprintf(
			"the clock went back: there are records of %s, and now it is %s; set it, "+
				"and until then "+
				"none are removed for their age", lineTime(f.latest), lineTime(first))
	}
	if last.After(f.latest) {
		f.latest, f.clock = last, ""
	}
}

func (f *file) isFull(more int64, now time.Time) bool {
	return f.size > 0 && f.size+more > min(maxFileBytes, max(f.maxBytes/fileParts, 1)) ||
		f.maxAge > 0 && now.Sub(f.began) > f.maxAge/fileParts
}

// open opens the newest file, or makes the next one, and removes those that are too old or too
// many.
func (f *file) open(now time.Time, next bool) error {
	if err := proc.PrivateDir(f.dir); err != nil {
		return err
	}
	list, err := Segments(f.dir)
	if err != nil {
		return err
	}
	if len(list) > 0 && !next {
		f.number = list[len(list)-1].Number
	} else if len(list) > 0 {
		f.number = max(f.number, list[len(list)-1].Number+1)
	}
	f.number = max(f.number, 1)
	path := filepath.Join(f.dir, fmt.Sprintf("%08d.jsonl", f.number))
	opened, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening a file of records: %w", err)
	}
	info, err := opened.Stat()
	if err == nil {
		err = opened.Chmod(0o600)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("opening a file of records: %w", err), opened.Close())
	}
	f.f, f.size, f.began, f.isTorn = opened, info.Size(), now, false
	if f.size > 0 {
		f.readEnds(info)
		f.checkClock(now, now)
	}
	f.remove(list, now)
	return nil
}

// readEnds reads the state of an existing file from its first and its last bytes.
func (f *file) readEnds(info os.FileInfo) {
	end := make([]byte, 1)
	if _, err := f.f.ReadAt(end, f.size-1); err == nil {
		f.isTorn = end[0] != '\n'
	}
	if info.ModTime().After(f.latest) {
		f.latest = info.ModTime()
	}
	begin := make([]byte, timeEnd)
	if _, err := f.f.ReadAt(begin, 0); err == nil {
		if t, err := time.Parse(timeLayout, string(begin[timeStart:])); err == nil {
			f.began = t
		}
	}
}

// remove removes the oldest files. While the clock is behind the records, their age is not known.
func (f *file) remove(list []Segment, now time.Time) {
	var total int64
	infos := make([]os.FileInfo, len(list))
	for i, s := range list {
		if info, err := os.Stat(s.Path); err == nil {
			infos[i] = info
			total += info.Size()
		}
	}
	var old []string
	for i, s := range list {
		if infos[i] == nil || s.Number >= f.number {
			continue
		}
		isOld := f.maxAge > 0 && f.clock == "" && now.Sub(infos[i].ModTime()) > f.maxAge
		if !isOld && total <= f.maxBytes {
			break
		}
		total -= infos[i].Size()
		old = append(old, s.Path)
	}
	// A removed record must not stay in a copy. A copy in use forgets it at the next query.
	cache := filepath.Join(f.dir, CacheFile)
	if info, err := os.Stat(cache); len(old) > 0 && err == nil &&
		time.Since(info.ModTime()) > cacheIdle {
		old = append(old, cache, cache+"-wal", cache+"-shm")
	}
	_ = removeAll(old) // at the next file it tries again
}

// close has the disk take the file, and closes it.
func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	err := errors.Join(f.f.Sync(), f.f.Close())
	f.f = nil
	if err != nil {
		return fmt.Errorf("closing a file of records: %w", err)
	}
	return nil
}
