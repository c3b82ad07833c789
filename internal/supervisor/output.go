package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
)

// Limits of a provider's stored and logged output, so that a provider that prints without end fills
// neither the memory nor the disk.
const (
	maxLines       = 200
	maxLineBytes   = 1 << 10 // bytes of a line
	maxLoggedLines = 50      // a second
)

// output holds the last lines that a provider printed and the messages about it.
type output struct {
	base *slog.Logger
	name string // of the provider

	// Owned by the loop.
	programNames []string // the names of its programs when they were last connected
	users        int      // of [Supervisor.Output]

	mu       sync.Mutex // guards the fields that follow
	lines    []adminapi.TimelineLine
	seq      uint64        // the number of the last line
	more     chan struct{} // closed by the next line; nil while no call waits
	hasEnded bool          // no file names the provider any more
	second   time.Time     // the start of the second that logged counts
	logged   int           // lines that were logged in that second
	omitted  int           // lines that were not logged since
}

// log is made when it is needed, because a quiet provider never needs it.
func (o *output) log() *slog.Logger { return o.base.With("provider", o.name) }

// fromGateway is the source of the gateway's messages about a provider.
const fromGateway = "tapgw"

// warn stores and logs a message about the provider.
func (o *output) warn(line string) {
	o.log().Warn("provider", "message", o.add(adminapi.LogWarning, fromGateway, line))
}

// line stores and logs a line that the provider printed, or a message about it.
func (o *output) line(from, line string) {
	line = o.add(adminapi.LogInfo, from, line)
	now := time.Now()
	o.mu.Lock()
	omitted := 0
	if now.Sub(o.second) >= time.Second {
		omitted, o.omitted = o.omitted, 0
		o.second, o.logged = now, 0
	}
	isLogged := o.logged < maxLoggedLines
	if isLogged {
		o.logged++
	} else {
		o.omitted++
	}
	o.mu.Unlock()
	if omitted > 0 {
		o.log().Warn("provider prints too much: lines were left out of the log", "lines", omitted)
	}
	if isLogged {
		o.log().Info("provider output", "stream", from, "line", line)
	}
}

// add stores a line, cut to maxLineBytes, and returns it as stored.
func (o *output) add(level adminapi.LogLevel, from, line string) string {
	if len(line) > maxLineBytes {
		line = line[:maxLineBytes] + "…"
	}
	line = strings.ToValidUTF8(line, "\ufffd")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seq++
	stored := adminapi.TimelineLine{Seq: o.seq, TS: time.Now().UTC(), Level: level, Source: from,
		Message: line}
	if len(o.lines) < maxLines {
		o.lines = append(o.lines, stored)
	} else {
		o.lines[(o.seq-1)%maxLines] = stored
	}
	o.wakeWaiters()
	return line
}

// wakeWaiters ends the waits for a line. Call it with mu held.
func (o *output) wakeWaiters() {
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
}

// linesAfter returns the stored lines after a cursor, oldest first, and the cursor for the next
// question.
func (o *output) linesAfter(seq uint64) ([]adminapi.TimelineLine, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []adminapi.TimelineLine
	for seq = max(seq, o.seq-uint64(len(o.lines))); seq < o.seq; seq++ {
		lines = append(lines, o.lines[seq%maxLines])
	}
	return lines, o.seq
}

// wait waits until there is a line after a cursor.
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

// end ends the waits for lines, because no file names the provider any more.
func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hasEnded = true
	o.wakeWaiters()
}
