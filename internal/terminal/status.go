package terminal

import (
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"tapgw/internal/visible"
)

// Status is a line at the end of a terminal that says what runs and for how long. It reads no keys and takes nothing
// over: before anything is printed through [Status.Writer] the line goes away, and after [Status.Close] for good. Its
// methods may be called from several goroutines.
type Status struct {
	out   io.Writer
	text  io.Writer // see Print
	color bool
	stop  chan struct{}
	ended chan struct{}

	mu     sync.Mutex // held while something is written; guards the fields that follow
	what   string     // what runs; "": nothing
	since  time.Time
	newest string // line of what runs
	frame  int    // of the spinner
	shown  bool   // the line is on the terminal
	inLine bool   // what was printed last did not end its line
	closed bool
}

// erase takes away the line in which the cursor stands.
const erase = "\r\x1b[K"

// NewStatus returns a status line on the terminal out. What [Status.Print] prints goes to text, which may be the same
// terminal. The caller ends it with [Status.Close].
func NewStatus(out, text io.Writer, color bool) *Status {
	s := &Status{out: out, text: text, color: color, stop: make(chan struct{}), ended: make(chan struct{})}
	go s.animate()
	return s
}

func (s *Status) animate() {
	defer close(s.ended)
	tick := time.NewTicker(frameTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.draw()
		case <-s.stop:
			return
		}
	}
}

// draw shows the line as it is now, unless a printed line has not ended.
func (s *Status) draw() {
	width := s.Width()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == "" || s.inLine || s.closed {
		return
	}
	text := spin(s.frame, s.what, s.since)
	if s.newest != "" {
		text += " · " + s.newest
	}
	text = ansi.Truncate(text, width, "…")
	if s.color {
		text = dim + text + reset
	}
	s.frame++
	s.shown = true
	_, _ = io.WriteString(s.out, erase+text)
}

// hide takes the line away. The caller holds mu.
func (s *Status) hide() {
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.out, erase)
	}
}

// Close takes the line away for good. It may be called again.
func (s *Status) Close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.hide()
		close(s.stop)
	}
	s.mu.Unlock()
	<-s.ended
}

// Writer returns a writer that takes the line away and then writes to w, a terminal.
func (s *Status) Writer(w io.Writer) io.Writer { return &aboveStatus{s, w} }

type aboveStatus struct {
	s *Status
	w io.Writer
}

func (a *aboveStatus) Write(p []byte) (int, error) {
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.s.hide()
	if len(p) > 0 {
		a.s.inLine = p[len(p)-1] != '\n'
	}
	return a.w.Write(p)
}

// Entered says that the person has ended the line that was printed last, with Enter.
func (s *Status) Entered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inLine = false
}

// Print prints text with a line end. It prints control characters as they are: the caller cleans what others wrote.
func (s *Status) Print(text string) {
	_, _ = io.WriteString(s.Writer(s.text), strings.TrimSuffix(text, "\n")+"\n")
}

// Working shows that something runs, with the time since the first such call. "" says that nothing runs any more.
func (s *Status) Working(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == "" {
		s.since = time.Now()
	}
	s.what = visible.Line(what)
	if what == "" {
		s.newest = ""
		s.hide()
	}
}

// Coming shows the last line of a text that is not complete yet. "" takes it away.
func (s *Status) Coming(text string) {
	text = strings.TrimSpace(ansi.Strip(text))
	s.Live(text[strings.LastIndexByte(text, '\n')+1:])
}

// Live shows the newest line of the output of what runs. It makes control characters visible. "" takes it away.
func (s *Status) Live(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = visible.Line(line)
}

// Width returns how many columns printed text may have.
func (s *Status) Width() int {
	width := firstWidth
	if f, ok := s.out.(*os.File); ok {
		if columns, _, err := term.GetSize(f.Fd()); err == nil && columns > 0 {
			width = columns
		}
	}
	return max(width, minWidth) - 1
}
