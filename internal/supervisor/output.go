package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
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
	kept   []adminapi.TimelineLine
	seq    uint64        // of the last line
	more   chan struct{} // closed by the next line; nil while nobody waits
	over   bool          // no file names it any more
	second time.Time
	logged int // in that second
	lost   int // not logged since
}

// self is the source of what is to be known of a provider and not from itself.
const self = "tapgw"

// say keeps and logs what is to be known.
func (o *output) say(line string) {
	o.log.Warn("provider", "message", o.keep(gateway.LogWarning, self, line))
}

// line keeps and logs a line that the provider printed, or of itself.
func (o *output) line(from, line string) {
	line = o.keep(gateway.LogInfo, from, line)
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

// keep adds a line to the last ones, cut to what is kept of it, and returns that.
func (o *output) keep(level gateway.LogLevel, from, line string) string {
	if len(line) > keptLine {
		line = line[:keptLine] + "…"
	}
	line = strings.ToValidUTF8(line, "\ufffd")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	kept := adminapi.TimelineLine{Seq: o.seq, TS: time.Now().UTC(), Level: level, Source: from, Message: line}
	if len(o.kept) < keptLines {
		o.kept = append(o.kept, kept)
	} else {
		o.kept[(o.seq-1)%keptLines] = kept
	}
	o.tell()
	return line
}

// tell wakes those who wait. Call with mu held.
func (o *output) tell() {
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
}

// after are the lines after a number that are kept, oldest first, and the number to
// ask with next.
func (o *output) after(seq uint64) ([]adminapi.TimelineLine, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []adminapi.TimelineLine
	for seq = max(seq, o.seq-uint64(len(o.kept))); seq < o.seq; seq++ {
		lines = append(lines, o.kept[seq%keptLines])
	}
	return lines, o.seq
}

// wait waits for a line after a number.
func (o *output) wait(ctx context.Context, seq uint64) error {
	o.mu.Lock()
	if o.seq > seq {
		o.mu.Unlock()
		return nil
	}
	if o.over {
		o.mu.Unlock()
		return errNoFile
	}
	if o.more == nil {
		o.more = make(chan struct{})
	}
	more := o.more
	o.mu.Unlock()
	select {
	case <-more:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end lets those who wait go: no file names the provider any more.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.tell()
}
