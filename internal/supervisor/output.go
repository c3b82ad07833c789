package supervisor

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// What is kept of a provider's output, and how much of it goes to the log: a
// provider that floods its output fills neither the memory nor the disk.
const (
	keptLines   = 200
	keptLine    = 1 << 10 // bytes of a line
	loggedLines = 50      // a second
)

// output is what a provider printed and said of itself, and what is to be known of
// it.
type output struct {
	log *slog.Logger

	names []string // what its programs called themselves when last they were connected; the loop's

	mu     sync.Mutex
	kept   []string
	next   int // where the next line goes once kept is full
	second time.Time
	logged int // in that second
	lost   int // not logged since
}

// self is from whom what is to be known of a provider comes, not from itself.
const self = "tapgw"

// say keeps and logs what is to be known.
func (o *output) say(line string) {
	o.keep(self + ": " + line)
	o.log.Warn("provider", "message", line)
}

// line keeps and logs a line that the provider printed, or of itself.
func (o *output) line(from, line string) {
	mark := ""
	if from == self {
		mark = self + ": "
	}
	line = strings.TrimPrefix(o.keep(mark+line), mark)
	now := time.Now()
	o.mu.Lock()
	lost := 0
	if now.Sub(o.second) >= time.Second {
		lost, o.lost = o.lost, 0
		o.second, o.logged = now, 0
	}
	log := o.logged < loggedLines
	if log {
		o.logged++
	} else {
		o.lost++
	}
	o.mu.Unlock()
	if lost > 0 {
		o.log.Warn("provider prints too much: lines were left out of the log", "lines", lost)
	}
	if log {
		o.log.Info("provider output", "stream", from, "line", line)
	}
}

// keep adds a line to the last ones, cut to what is kept of it.
func (o *output) keep(line string) string {
	if len(line) > keptLine {
		line = line[:keptLine] + "…"
	}
	line = strings.ToValidUTF8(line, "\ufffd")
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kept) < keptLines {
		o.kept = append(o.kept, line)
	} else {
		o.kept[o.next] = line
		o.next = (o.next + 1) % keptLines
	}
	return line
}

// lines are the last lines, oldest first.
func (o *output) lines() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append(append([]string{}, o.kept[o.next:]...), o.kept[:o.next]...)
}
