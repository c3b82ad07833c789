package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"slices"
	"sync"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// Query says which records to find; 0 for Last means [MaxFound], which is the most.
type Query = adminapi.RecordQuery

// Found is the result of a query, oldest record first.
type Found = adminapi.Records

// Limits of one answer, in records and in bytes of their lines, and of one line: a longer line is
// no record.
const (
	MaxLine       = 4 << 20
	MaxFound      = 10_000
	maxFoundBytes = 16 << 20
)

// A line begins with its time: {"ts":"2026-01-02T15:04:05.000000Z".
const (
	lineStart = `{"ts":"`
	timeStart = len(lineStart)
	timeEnd   = timeStart + len(timeLayout)
	readSize  = 256 << 10
	maxScans  = 4 // files that are read at once
)

// Find returns the records of a directory that a query wants. It reads the files from the newest to
// the oldest, until it has enough; a missing directory has no records. The error is that of
// reading, or of ctx.
func Find(ctx context.Context, dir string, q Query) (Found, error) {
	return search(ctx, dir, newWanted(q, false), q.Last)
}

// search returns the last records that are wanted.
func search(ctx context.Context, dir string, w *wanted, last int) (found Found, err error) {
	list, err := Segments(dir)
	if err != nil {
		return found, err
	}
	if last <= 0 || last > MaxFound {
		last = MaxFound
	}
	left, bytesLeft := last, maxFoundBytes
	var newestFirst []adminapi.Record
	step := min(max(runtime.GOMAXPROCS(0), 1), maxScans)
	for end := len(list); end > 0 && !found.More; end -= step {
		part := list[max(end-step, 0):end]
		scans := make([]scan, len(part))
		var wg sync.WaitGroup
		for i, s := range part {
			scans[i] = scan{wanted: w, isNewest: end == len(list) && i == len(part)-1}
			scans[i].newest = newest{maxLines: left, maxBytes: bytesLeft}
			wg.Go(func() { scans[i].err = scans[i].file(ctx, s.Path) })
		}
		wg.Wait()
		for _, s := range slices.Backward(scans) {
			if s.err != nil {
				return found, s.err
			}
			found.Unreadable += s.unreadable
			for text := range s.newest.backward() {
				if left == 0 || bytesLeft < len(text) {
					found.More = true
					break
				}
				var r adminapi.Record
				if err := json.Unmarshal(text, &r); err != nil {
					found.Unreadable++
					continue
				}
				left--
				bytesLeft -= len(text)
				newestFirst = append(newestFirst, r)
			}
			if found.More = found.More || s.newest.isCut; found.More {
				break
			}
		}
	}
	slices.Reverse(newestFirst)
	found.Records = newestFirst
	return found, nil
}

// wanted tells the lines that a query wants, most of them without decoding.
type wanted struct {
	q            Query
	hasText      bool     // a push with its texts
	since, until []byte   // as lines have them; nil: any
	session      []byte   // how it stands behind the kind; nil: any
	parts        [][]byte // that a line must contain
	either       [][2][]byte
}

// newWanted compiles a query; with hasText it wants only pushes with their texts.
func newWanted(q Query, hasText bool) *wanted {
	w := &wanted{q: q, hasText: hasText}
	if !q.Since.IsZero() {
		w.since = []byte(lineTime(q.Since))
	}
	if !q.Until.IsZero() {
		w.until = []byte(lineTime(q.Until))
	}
	if q.Session != "" {
		w.session = protocol.AppendText([]byte(`,"session":`), q.Session)
	}
	for _, f := range []struct{ name, value string }{
		{`"trace":`, q.Trace}, {`"tool":`, q.Tool}, {`"provider":`, q.Provider},
		{`"kind":`, q.Kind},
	} {
		if f.value != "" {
			w.parts = append(w.parts, protocol.AppendText([]byte(f.name), f.value))
		}
	}
	if q.Outcome != "" {
		w.either = append(w.either, [2][]byte{
			protocol.AppendText([]byte(`"outcome":`), q.Outcome),
			protocol.AppendText([]byte(`"fate":`), q.Outcome),
		})
	}
	if hasText {
		w.either = append(w.either, [2][]byte{[]byte(`"event":`), []byte(`"prompt":`)})
	}
	return w
}

// wants reports whether the query wants a line, which begins as lines do. Only metadata may contain
// text that looks like a member of the record, so only lines with metadata are decoded for that.
func (w *wanted) wants(text []byte) bool {
	at := text[timeStart:timeEnd]
	if w.since != nil && bytes.Compare(at, w.since) < 0 || w.until != nil &&
		bytes.Compare(at, w.until) > 0 {
		return false
	}
	if w.session != nil && !bytes.HasPrefix(afterKind(text), w.session) {
		return false
	}
	for _, part := range w.parts {
		if !bytes.Contains(text, part) {
			return false
		}
	}
	for _, e := range w.either {
		if !bytes.Contains(text, e[0]) && !bytes.Contains(text, e[1]) {
			return false
		}
	}
	if !bytes.Contains(text, []byte(`"metadata":`)) {
		return true
	}
	var r adminapi.Record
	return json.Unmarshal(text, &r) != nil || w.matches(&r)
}

// afterKind is the rest of a line behind its kind, as appendRecord writes it; empty for others.
func afterKind(text []byte) []byte {
	rest, ok := bytes.CutPrefix(text[timeEnd:], []byte(`","kind":"`))
	if i := bytes.IndexByte(rest, '"'); ok && i >= 0 {
		return rest[i+1:]
	}
	return nil
}

func (w *wanted) matches(r *adminapi.Record) bool {
	q := &w.q
	outcome := r.Outcome
	if r.Kind == adminapi.RecordPush {
		outcome = string(r.Fate)
	}
	return (q.Kind == "" || q.Kind == r.Kind) && (q.Session == "" || q.Session == r.Session) &&
		(q.Provider == "" || q.Provider == r.Provider) && (q.Tool == "" || q.Tool == r.Tool) &&
		(q.Outcome == "" || q.Outcome == outcome) && (q.Trace == "" || q.Trace == r.Trace) &&
		(!w.hasText || r.Event != "" || r.Prompt != "")
}

// newest keeps the newest lines, within limits.
type newest struct {
	maxLines, maxBytes int

	lines [][]byte // a ring
	first int      // the oldest
	count int
	bytes int
	isCut bool // there were more
}

func (n *newest) add(text []byte) {
	for n.count > 0 && (n.count >= n.maxLines || n.bytes+len(text) > n.maxBytes) {
		n.bytes -= len(n.lines[n.first])
		n.first = (n.first + 1) % len(n.lines)
		n.count--
		n.isCut = true
	}
	if n.maxLines == 0 || len(text) > n.maxBytes {
		n.isCut = true
		return
	}
	if n.count == len(n.lines) { // the ring grows: it is in order again
		grown := make([][]byte, max(64, 2*n.count))
		copy(grown[copy(grown, n.lines[n.first:]):], n.lines[:n.first])
		n.lines, n.first = grown, 0
	}
	at := &n.lines[(n.first+n.count)%len(n.lines)]
	*at = append((*at)[:0], text...)
	n.count++
	n.bytes += len(text)
}

// backward yields the lines, the newest first.
func (n *newest) backward() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i := n.count - 1; i >= 0; i-- {
			if !yield(n.lines[(n.first+i)%len(n.lines)]) {
				return
			}
		}
	}
}

// scan reads one file.
type scan struct {
	*wanted
	isNewest bool // the last line may be half written

	newest     newest
	unreadable int
	err        error
}

func (s *scan) file(ctx context.Context, path string) error {
	f, err := os.Open(path) //nolint:gosec // one of our files
	if errors.Is(err, os.ErrNotExist) {
		return nil // its time has come
	}
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.ModTime().Before(s.q.Since.Add(-clockSlack)) {
		return nil // its last record is older, so a client that polls for the newest reads one file
	}
	if err := s.read(ctx, f); err != nil {
		return fmt.Errorf("reading the records of %s: %w", path, err)
	}
	return nil
}

// read reads lines until the end of r. Lines that are too long or have no end are no records.
func (s *scan) read(ctx context.Context, r io.Reader) error {
	buffer := make([]byte, readSize)
	kept, isSkipping := 0, false
	for ctx.Err() == nil {
		if kept == len(buffer) {
			if kept >= MaxLine {
				kept, isSkipping = 0, true
			} else {
				buffer = append(buffer, make([]byte, len(buffer))...)
			}
		}
		n, err := r.Read(buffer[kept:])
		rest := buffer[:kept+n]
		for {
			i := bytes.IndexByte(rest[min(kept, len(rest)):], '\n')
			if i < 0 {
				break
			}
			i += min(kept, len(rest))
			if isSkipping {
				isSkipping = false
				s.unreadable++
			} else {
				s.line(rest[:i])
			}
			rest, kept = rest[i+1:], 0
		}
		if err != nil {
			if (len(rest) > 0 || isSkipping) && !s.isNewest {
				s.unreadable++
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		kept = copy(buffer, rest)
	}
	return ctx.Err()
}

// line keeps a line that is wanted.
func (s *scan) line(text []byte) {
	if len(text) == 0 {
		return // written after a line that was cut off
	}
	if len(text) <= timeEnd || string(text[:timeStart]) != lineStart || text[len(text)-1] != '}' {
		s.unreadable++
		return
	}
	if s.wants(text) {
		s.newest.add(text)
	}
}
