package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A process that dies while it writes the journal loses its line only.
func TestTornJournal(t *testing.T) {
	s := newSpace(t, map[string]string{"x": "one"})
	s.edit(1, "x", "two")
	f, err := os.OpenFile(s.journal(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"type":"edit","id":"torn`)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	s.edit(2, "x", "three")
	s.undo(0)
	s.undo(0)
	s.holds("x", "one")
}

// A journal that can't be read is an error that names the line, before each edit and for undo, and
// it stays as it is.
func TestFaultyJournal(t *testing.T) {
	for line, want := range map[string]string{
		"no JSON\n": "line 1 can't be read: invalid character",
		`{"type":"checkpoints","version":2}` +
			"\n": "line 1 can't be read: it has version 2 of a later program; " +
			"move the file away",
	} {
		s := newSpace(t, map[string]string{"x": "one"})
		if err := errors.Join(os.MkdirAll(s.dir, 0o700),
			os.WriteFile(s.journal(), []byte(line), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := s.Begin(t.Context(), Place{"v", 1},
				[]Change{{Path: filepath.Join(s.root, "x")}})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: before an edit the error is %v, want %q", line, err, want)
			}
		}
		if _, err := s.Undo(t.Context(), "v", 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", line, err, want)
		}
		if data, err := os.ReadFile(s.journal()); string(data) != line {
			t.Errorf("the journal became %q (%v), want %q", data, err, line)
		}
	}
}
