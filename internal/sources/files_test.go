package sources_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// waitLine waits until a source says a line.
func (w *world) waitLine(line string) {
	w.Helper()
	for {
		w.mu.Lock()
		has := slices.Contains(w.lines, line)
		w.mu.Unlock()
		if has {
			return
		}
		select {
		case <-w.said:
		case <-w.Context().Done():
			w.Fatalf("%q: %v", line, w.Context().Err())
		}
	}
}

// waitReason waits until the only source, which waits, says why.
func (w *world) waitReason(reason string) {
	w.Helper()
	defer w.gateway.Watch()()
	for {
		changes := w.gateway.Changes()
		if v := w.only(); v.State == adminapi.SourceWaiting && v.Reason == reason {
			return
		}
		if err := w.gateway.WaitChange(w.patient(), changes); err != nil {
			w.Fatalf("%q: %v", reason, err)
		}
	}
}

func (w *world) write(name, content string) {
	w.Helper()
	file := filepath.Join(w.state, w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		w.Fatal(err)
	}
}

// A file is an event when it comes, changes or goes, in the words of the file, unless the filter
// drops it.
func TestFilesThatChange(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	stop := w.run(`files = ["src/**/*.go"]
text = "{file}: {change}"
filter = [{ match = "_gen", outcome = "drop" }]
`, protocol.AllSessions)
	w.waitLine("tapgw: the files are watched")
	w.write("src/a_gen.go", "1")
	w.write("src/x/a.go", "1")
	w.write("src/x/a.txt", "1")
	w.want("events", w.wait(s, 1), []string{"src/x/a.go: created"})
	w.write("src/x/a.go", "22")
	w.want("events", w.wait(s, 2)[1:], []string{"src/x/a.go: changed"})
	if err := os.Rename(filepath.Join(w.state, "src", "x", "a.go"),
		filepath.Join(w.state, "a\n\x1b[31m")); err != nil {
		t.Fatal(err)
	}
	w.want("events", w.wait(s, 3)[2:], []string{"src/x/a.go: removed"})
	if v := w.only(); v.State != adminapi.SourceWaiting || v.Runs != 3 || v.LastRunAt.IsZero() {
		t.Errorf("got %+v, want it waiting after 3 bursts of changes", v)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// While the directory of the files is missing, the source waits for it and says so.
func TestFilesOfAMissingDirectory(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	w.dir = "later"
	dir := filepath.Join(w.state, w.dir)
	stop := w.run(`files = ["*.go"]`, protocol.AllSessions)
	missing := "there is no directory " + dir + ": its files are watched once it is there"
	w.waitLine("tapgw: " + missing)
	w.waitReason(missing)
	w.write("a.go", "1")
	w.want("events", w.wait(s, 1), []string{"a.go was created"})
	w.waitReason("")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.want("events", w.wait(s, 2)[1:], []string{"a.go was removed"})
	w.waitReason(missing)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// A storm of changes makes a few pushes, which have all of it.
func TestFilesStorm(t *testing.T) {
	const n, most = 10_000, 30
	w := newWorld(t)
	s := w.session()
	stop := w.run(`files = ["**/f*"]`, protocol.AllSessions)
	w.waitLine("tapgw: the files are watched")
	for i := range n {
		w.write(fmt.Sprintf("d%d/f%d\x1b", i%20, i), "1")
	}
	pushes, lines := 0, 0
	for lines < n {
		list := w.wait(s, pushes+1)
		pushes, lines = len(list), 0
		for _, text := range list {
			lines += strings.Count(text, "was created")
			if strings.Contains(text, "\x1b") {
				t.Fatal("a control character of a file's name is in an event, want it escaped")
			}
		}
	}
	if pushes > most {
		t.Errorf("%d pushes for %d changes, want at most %d", pushes, n, most)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}
