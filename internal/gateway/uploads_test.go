package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// TestUploads: a session keeps the files of its prompts for its user alone, within a bound, and
// removes them when a prompt is refused and when it ends.
func TestUploads(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "uploads")
	g := New(Options{UploadDir: dir})
	s, err := g.Register(SessionSpec{}, HostInfo{Kind: "test", Send: true, Attachments: true},
		quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	var kept []Attachment
	for _, name := range []string{"a.txt", "a.txt", "../../ä b.png", ".",
		strings.Repeat("x", 250) + ".pdf"} {
		a, err := s.Upload(name, "text/plain", []byte("content"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(a.Path)
		if err != nil || info.Mode() != 0o600 || a.Name != name ||
			filepath.Dir(filepath.Dir(a.Path)) != dir ||
			filepath.Ext(a.Path) != filepath.Ext(name) {
			t.Errorf("%s is %+v, %v, %v; want a file of its own below %s", name, a, info, err, dir)
		}
		kept = append(kept, a)
	}
	for _, at := range []string{dir, filepath.Dir(kept[0].Path)} {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want a directory for the user alone", at, info, err)
		}
	}
	// the second one is no upload
	s.RemoveUploads(append(kept[:1:1], Attachment{Path: kept[1].Path}))
	if _, err := os.Stat(kept[0].Path); err == nil {
		t.Error("a file of a refused prompt is there, want it gone")
	}
	if _, err := os.Stat(kept[1].Path); err != nil {
		t.Errorf("a file that somebody named is gone: %v", err)
	}
	room := maxUploadBytes - 4*len("content")
	if _, err := s.Upload("large", "", make([]byte, room+1)); !hasCode(err,
		protocol.CodePayloadTooLarge) {
		t.Errorf("more than fits: %v, want PAYLOAD_TOO_LARGE", err)
	}
	if _, err := s.Upload("large", "", make([]byte, room)); err != nil {
		t.Errorf("what fits: %v", err)
	}
	if err := s.Stop(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("after the end there are %v, %v; want none", entries, err)
	}
	if _, err := s.Upload("late", "", []byte("x")); !hasCode(err, protocol.CodeInvalidSession) {
		t.Errorf("after the end: %v, want INVALID_SESSION", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("after a late one there are %v, %v; want none", entries, err)
	}
}

// TestNoUploads: hosts that take no attachments, and a gateway without a directory for them, say
// so.
func TestNoUploads(t *testing.T) {
	for dir, info := range map[string]HostInfo{"": {Kind: "test", Attachments: true},
		t.TempDir(): {Kind: "test"}} {
		s, err := New(Options{UploadDir: dir}).Register(SessionSpec{}, info, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := s.Upload("a", "", []byte("x")); err == nil {
			t.Errorf("%+v was kept, want an error", a)
		}
		if err := s.Stop(t.Context(), "test"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUploadsOfTheQueue: what a prompt brought goes with it when it is taken back while it waits,
// or not taken later.
func TestUploadsOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.s.info.Attachments, r.s.uploads.dir = true, t.TempDir()
		r.turn("one", "")
		for _, text := range []string{"two", "three"} {
			a, err := r.s.Upload("a.txt", "", []byte("content"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.s.Turn(t.Context(),
				Prompt{Text: text, Attachments: []Attachment{a}}); err != nil {
				t.Fatal(err)
			}
		}
		left := func(want int) {
			t.Helper()
			synctest.Wait()
			entries, err := os.ReadDir(r.s.uploads.dir)
			if err != nil || len(entries) != want || r.s.uploads.bytes != want*len("content") {
				t.Errorf("%d files, %d bytes, %v; want %d files", len(entries), r.s.uploads.bytes,
					err, want)
			}
		}
		left(2)
		if err := r.s.CancelQueued(r.id(0)); err != nil {
			t.Error(err)
		}
		left(1)
		r.h.mu.Lock()
		r.h.err = errors.New("no")
		r.h.mu.Unlock()
		r.ends(0)
		r.gave("one", "three")
		left(0)
	})
}
