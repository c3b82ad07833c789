package search

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
)

// Search in the texts of files.

// Query is a text to find, in one line: an empty text or one with a line break is an error of
// [Tree.Grep]. A text without capitals also finds capitals.
type Query struct {
	Text    string
	Regexp  bool  // Text is a regular expression
	Include *Glob // files to search; nil: all
}

// Match is a line that matches a query. Path is relative to the tree's directory. A line counts
// once, however often the query occurs in it.
type Match struct {
	Path string // with slashes
	Line int    // from 1
	Text string // the line; of a long line the part around the first match
}

// Found is the result of a search, sorted by path and line. It has at most 20,000 matches; which
// ones are missing then is not determined.
type Found struct {
	Matches []Match
	More    bool // there are further matches: the search stopped at its limit
}

// maxMatches is how many lines a search finds before it stops.
const maxMatches = 20_000

// add adds a match; false means that the search must stop.
func (f *Found) add(m Match) bool {
	f.More = len(f.Matches) >= maxMatches
	if !f.More {
		f.Matches = append(f.Matches, m)
	}
	return !f.More
}

// removeFile removes the matches in a file.
func (f *Found) removeFile(path string) {
	f.Matches = slices.DeleteFunc(f.Matches, func(m Match) bool { return m.Path == path })
}

// Grep finds the lines of text files that match the query, with ripgrep if the tree has it. It
// skips binary files and files over 16 MB. It returns an error for a wrong query, and ctx's error
// when ctx ends.
func (t Tree) Grep(ctx context.Context, q Query) (Found, error) {
	var found Found
	if q.Text == "" {
		return found, errors.New("the query is empty")
	}
	if strings.ContainsAny(q.Text, "\r\n\x00") || q.Regexp && lineBreak.MatchString(q.Text) {
		return found, errors.New("the query spans lines: one line at a time is searched")
	}
	var err error
	if t.Ripgrep != "" {
		err = t.rgGrep(ctx, q, &found)
	} else {
		err = t.ownGrep(ctx, q, &found)
	}
	slices.SortFunc(found.Matches, func(a, b Match) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return found, err
}

// lineBreak matches \n or \r in a regular expression, but not behind an escaped
// backslash.
var lineBreak = lazyregexp.New(`(^|[^\\])(\\\\)*\\[nr]`)

func (t Tree) ownGrep(ctx context.Context, q Query, found *Found) error {
	expr := q.Text
	if !q.Regexp {
		expr = regexp.QuoteMeta(expr)
	}
	if ignoresCase(q.Text, q.Regexp) {
		expr = "(?i:" + expr + ")"
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return fmt.Errorf("%w (in the syntax of Go's regexp: ripgrep is not installed)", err)
	}
	files, err := t.Files(ctx, q.Include)
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(slices.Values(files)) {
		data, err := t.readText(path)
		if err != nil || data == nil || !q.Regexp && !re.Match(data) {
			continue // unreadable files are left out, as in ripgrep
		}
		if err := grepText(ctx, re, path, data, found); errors.Is(err, errEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// readText reads a file, nil if it is binary, too large or no regular file.
func (t Tree) readText(path string) ([]byte, error) {
	info, err := fs.Stat(t.FS, path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, err
	}
	data, err := fs.ReadFile(t.FS, path)
	if err != nil || bytes.IndexByte(data, 0) >= 0 {
		return nil, err
	}
	return data, nil
}

func grepText(
	ctx context.Context, re *regexp.Regexp, path string, data []byte, found *Found,
) error {
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		at := re.FindIndex(line)
		if at == nil {
			continue
		}
		e := newExcerpt(at[0])
		e.add(line)
		if !found.add(Match{path, n, e.text()}) {
			return errEnough
		}
	}
	return ctx.Err()
}

// An excerpt of a line has at most this many bytes before and after the beginning of
// the match.
const (
	excerptBefore = 80
	excerptAfter  = 220
)

// excerpt collects a part of a line that arrives in pieces.
type excerpt struct {
	from, to int // bytes of the line to collect
	seen     int // bytes of the line that arrived
	kept     []byte
}

func newExcerpt(at int) *excerpt {
	e := &excerpt{from: at - excerptBefore, to: at + excerptAfter}
	if e.from < excerptBefore { // so near to the beginning of the line, start there
		e.from = 0
	}
	return e
}

func (e *excerpt) add(piece []byte) {
	piece = bytes.TrimSuffix(piece, []byte("\n"))
	from := min(max(e.from-e.seen, 0), len(piece))
	to := min(max(e.to-e.seen, 0), len(piece))
	e.kept = append(e.kept, piece[from:to]...)
	e.seen += len(piece)
}

// text returns the excerpt in whole characters, with … at the ends where it was cut.
func (e *excerpt) text() string {
	s := string(bytes.TrimSuffix(e.kept, []byte("\r")))
	if e.from > 0 {
		for s != "" && !utf8.RuneStart(s[0]) {
			s = s[1:]
		}
		s = "…" + s
	}
	if e.seen > e.to {
		for n := 0; n < utf8.UTFMax && s != ""; n++ {
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size > 1 {
				break
			}
			s = s[:len(s)-1]
		}
		s += "…"
	}
	return s
}
