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
	maxLines       = 200
	maxLineBytes   = 1 << 10 // bytes of a line
	maxLoggedLines = 50      // a second
)

// output is what a provider printed and said of itself, and what is to be known of
// it.
type output struct {
	log *slog.Logger

	programNames []string // what its programs called themselves when last they were connected; the loop's

	mu       sync.Mutex
	lines    []adminapi.TimelineLine
	seq      uint64        // of the last line
	more     chan struct{} // closed by the next line; nil while nobody waits
	hasEnded bool          // no file names it any more
	second   time.Time
	logged   int // in that second
	omitted  int // not logged since
}

// fromGateway is the source of what is to be known of a provider and not from itself.
const fromGateway = "tapgw"

// warn keeps and logs what is to be known.
func (o *output) warn(line string) {
	o.log.Warn("provider", "message", o.add(gateway.LogWarning, fromGateway, line))
}

// line keeps and logs a line that the provider printed, or of itself.
func (o *output) line(from, line string) {
	line = o.add(gateway.LogInfo, from, line)
	now := time.Now()
	o.mu.Lock()
	omitted := 0
	if now.Sub(o.second) >= time.Second {
		omitted, o.omitted = o.omitted, 0
		o.second, o.logged = now, 0
	}
	log := o.logged < maxLoggedLines
	if log {
		o.logged++
	} else {
		o.omitted++
	}
	o.mu.Unlock()
	if omitted > 0 {
		o.log.Warn("provider prints too much: lines were left out of the log", "lines", omitted)
	}
	if log {
		o.log.Info("provider output", "stream", from, "line", line)
	}
}

// add adds a line to the last ones, cut to what is kept of it, and returns that.
func (o *output) add(level gateway.LogLevel, from, line string) string {
	if len(line) > maxLineBytes {
		line = line[:maxLineBytes] + "…"
	}
	line = strings.ToValidUTF8(line, "\ufffd")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	stored := adminapi.TimelineLine{Seq: o.seq, TS: time.Now().UTC(), Level: level, Source: from, Message: line}
	if len(o.lines) < maxLines {
		o.lines = append(o.lines, stored)
	} else {
		o.lines[(o.seq-1)%maxLines] = stored
	}
	o.wakeWaiters()
	return line
}

// wakeWaiters wakes those who wait. Call with mu held.
func (o *output) wakeWaiters() {
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
}

// linesAfter are the lines after a number that are kept, oldest first, and the number to
// ask with next.
func (o *output) linesAfter(seq uint64) ([]adminapi.TimelineLine, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []adminapi.TimelineLine
	for seq = max(seq, o.seq-uint64(len(o.lines))); seq < o.seq; seq++ {
		lines = append(lines, o.lines[seq%maxLines])
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
	if o.hasEnded {
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
	o.hasEnded = true
	o.wakeWaiters()
}
