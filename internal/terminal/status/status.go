// Package status has the line of a terminal that names the work in progress. It is a package of its
// own because a program that shows only that must not link the editor of package terminal.
package status

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/clipperhouse/displaywidth"

	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

// Line is a line at the end of a terminal that names the work in progress and its time. It reads no
// keys and does not take over the terminal: before text is printed through [Line.Writer] the line
// goes away, and after [Line.Close] for good. Its methods may be called from several goroutines.
type Line struct {
	out   io.Writer
	text  io.Writer // see Print
	color bool
	stop  chan struct{}
	ended chan struct{}

	mu     sync.Mutex // held while something is written; guards the fields that follow
	what   string     // the work in progress; "" if there is no work
	since  time.Time
	newest string // the newest line of the work's output
	frame  int    // of the spinner
	shown  bool   // the line is on the terminal
	inLine bool   // the last output did not end its line
	closed bool
}

// Styles, where the terminal has colours.
const (
	Dim   = "\x1b[2m"
	Reset = "\x1b[0m"
)

// FirstWidth is the width of a terminal until it is known; text is wrapped to MinWidth at least.
const (
	FirstWidth = 80
	MinWidth   = 20
)

// erase clears the line of the cursor.
const erase = "\r\x1b[K"

// New returns a status line on the terminal out. [Line.Print] prints to text, which may be the same
// terminal. The caller ends the line with [Line.Close].
func New(out, text io.Writer, color bool) *Line {
	s := &Line{out: out, text: text, color: color, stop: make(chan struct{}),
		ended: make(chan struct{})}
	go s.animate()
	return s
}

func (s *Line) animate() {
	defer close(s.ended)
	tick := time.NewTicker(FrameTime)
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

// draw shows the present line, unless a printed line has not ended.
func (s *Line) draw() {
	width := s.Width()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.what == "" || s.inLine || s.closed {
		return
	}
	text := Spin(s.frame, s.what, s.since)
	if s.newest != "" {
		text += " · " + s.newest
	}
	text = displaywidth.TruncateString(text, width, "…")
	if s.color {
		text = Dim + text + Reset
	}
	s.frame++
	s.shown = true
	_, _ = io.WriteString(s.out, erase+text)
}

// hide takes the line away. The caller holds mu.
func (s *Line) hide() {
	if s.shown {
		s.shown = false
		_, _ = io.WriteString(s.out, erase)
	}
}

// Close removes the line permanently. It may be called again.
func (s *Line) Close() {
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
func (s *Line) Writer(w io.Writer) io.Writer { return &aboveStatus{s, w} }

type aboveStatus struct {
	s *Line
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
func (s *Line) Entered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inLine = false
}

// Print prints text with a line end. It prints control characters as they are: the caller cleans
// text that others wrote.
func (s *Line) Print(text string) {
	_, _ = io.WriteString(s.Writer(s.text), strings.TrimSuffix(text, "\n")+"\n")
}

// Working shows the work in progress, with the time since the first such call. "" says that the
// work has ended.
func (s *Line) Working(what string) {
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

// Coming shows the last line of an incomplete text. "" clears it.
func (s *Line) Coming(text string) {
	text = strings.TrimSpace(cli.Clean(text))
	s.Live(text[strings.LastIndexByte(text, '\n')+1:])
}

// Live shows the newest line of the work's output. It makes control characters visible. "" clears
// the line.
func (s *Line) Live(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = visible.Line(line)
}

// Width returns how many columns printed text may have.
func (s *Line) Width() int {
	width := FirstWidth
	if f, ok := s.out.(*os.File); ok {
		if columns, _, err := term.GetSize(f.Fd()); err == nil && columns > 0 {
			width = columns
		}
	}
	return max(width, MinWidth) - 1
}

// FrameTime is how long a frame of the spinner is shown.
const FrameTime = 100 * time.Millisecond

// Spin returns a frame of the spinner, with the work in progress and the time since its start.
func Spin(frame int, what string, since time.Time) string {
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	return string(spinner[frame%len(spinner)]) + " " + what + " · " + elapsed(time.Since(since))
}

// elapsed is a time as people read it: 3 s, 2 min 5 s.
func elapsed(d time.Duration) string {
	d = d.Truncate(time.Second)
	if d < time.Minute {
		return strconv.Itoa(int(d/time.Second)) + " s"
	}
	return strconv.Itoa(int(d/time.Minute)) + " min " +
		strconv.Itoa(int(d%time.Minute/time.Second)) + " s"
}
