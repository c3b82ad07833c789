package status

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatusLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		s := New(&screen, &screen, false)
		out := s.Writer(&screen)
		shows := func(what string) string {
			t.Helper()
			<-time.After(FrameTime)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			got := screen.String()
			if what != "" && !strings.HasSuffix(got, what) || what == "" && got != "" {
				t.Fatalf("got %q at the end of the screen, want %q", got, what)
			}
			screen.Reset()
			return got
		}
		shows("")
		s.Working("a tool\x1b[31m")
		<-time.After(3 * time.Second)
		shows(`a tool\x1b[31m · 3 s`)
		s.Live("the newest line")
		shows(" · 3 s · the newest line")
		_, _ = out.Write([]byte("half a line"))
		shows(erase + "half a line") // and no status line after it
		_, _ = out.Write([]byte(", its end\n"))
		if got := shows(" · the newest line"); !strings.HasPrefix(got, ", its end\n"+erase) {
			t.Errorf("got %q, want the line after what was printed", got)
		}
		s.Live("")
		s.Print("a block")
		shows(" · 3 s")
		_, _ = out.Write([]byte("Allow it? "))
		s.Entered() // the person's answer
		shows(" · 3 s")
		s.Working("")
		shows(erase)
		s.Working("again")
		shows(" again · 0 s")
		s.Close()
		s.Close()
		shows(erase)
		s.Working("late")
		_, _ = out.Write([]byte("end\n"))
		shows("end\n")
	})
}

func TestStatusShowsTheEndOfWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		s := New(&screen, &screen, true)
		s.Working("writing")
		s.Coming("\x1b[1mone\x1b[0m\n\x1b[1mtwo\x1b[0m " + strings.Repeat("x", 200) + "\n")
		<-time.After(FrameTime)
		synctest.Wait()
		s.Close()
		got, _, _ := strings.Cut(strings.TrimPrefix(screen.String(), erase+Dim), Reset)
		if !strings.Contains(got, "writing · 0 s · two xxx") || len([]rune(got)) != s.Width() {
			t.Errorf("got %q, want the last line in %d columns", got, s.Width())
		}
	})
}
