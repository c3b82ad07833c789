package gateway

import (
	"context"
	"strings"
	"unicode"

	"tapgw/internal/adminapi"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/visible"
)

// The timeline is a session's log for people.

// Sources of timeline lines that no provider wrote, beside [SourceUser]. Only an internal
// provider may use one as its name, so that no other can write lines that look like the
// gateway's.
const (
	sourceGateway   = "gateway"
	sourcePairing   = "tapgw"
	SourceSession   = "session"
	SourceAssistant = "assistant"
)

// SourceProvider stands before a provider's name in [Prompt].Source and [Event].Source: the
// prompt is a provider's inject, not the word of a person.
const SourceProvider = "provider:"

// note adds a line to the gateway's timeline of the session only.
func (s *Session) note(level adminapi.LogLevel, source, message string) {
	s.noteOf("", level, source, message)
}

// noteOf adds a line about a call of the host's id.
func (s *Session) noteOf(callID string, level adminapi.LogLevel, source, message string) {
	s.feed.addLine(adminapi.TimelineLine{Level: level, Source: source,
		Message: stripEscapes(message), ToolCallID: callID})
}

// show adds a line to the gateway's timeline and to the host's. Call under no lock.
func (s *Session) show(level adminapi.LogLevel, source, message string) {
	s.showOf("", level, source, message)
}

// showOf is show for a line about a call of the host's id.
func (s *Session) showOf(callID string, level adminapi.LogLevel, source, message string) {
	s.noteOf(callID, level, source, message)
	if s.info.Log {
		s.host.Log(level, source+": "+stripEscapes(message))
	}
}

// Note implements [HostCalls]. The line's source is [SourceSession]; the host's own
// timeline does not get it.
func (s *Session) Note(level adminapi.LogLevel, message string) {
	s.note(level, SourceSession, message)
}

// RestoreTimeline implements [HostCalls]. It uses half of the timeline at most, 10,000 lines,
// so that there is room for new lines, and begins with a line that says that the session
// was resumed. Restored lines get new numbers.
func (s *Session) RestoreTimeline(lines []adminapi.TimelineLine, isWhole bool) {
	if len(lines) > maxTimelineLines/2 {
		lines, isWhole = lines[len(lines)-maxTimelineLines/2:], false
	}
	text := "the session was resumed; what was said before follows, with its times"
	if !isWhole {
		text += ", but for lines that are too old to be here"
	}
	s.note(adminapi.LogInfo, sourceGateway, text)
	for _, l := range lines {
		l.TS, l.Message = l.TS.UTC(), stripEscapes(l.Message)
		s.feed.addLine(l)
	}
}

// Timeline returns the lines after a number, oldest first, and the cursor for the next
// read; 0 means from the beginning. If lines left the timeline before, the first line says
// how many.
func (s *Session) Timeline(after uint64) (lines []adminapi.TimelineLine, cursor uint64) {
	lines, cursor = listAfter[adminapi.TimelineLine](s.feed, kindTimeline, after)
	if len(lines) == 0 || lines[0].Seq == after+1 {
		return lines, cursor
	}
	first := lines[0]
	left := first.Seq - after - 1
	gap := adminapi.TimelineLine{
		Seq:    first.Seq - 1,
		TS:     first.TS,
		Level:  adminapi.LogInfo,
		Source: sourceGateway,
		Message: visible.Count(left, "line") + " before this " + visible.IsAre(left) +
			" not kept any more",
	}
	return append([]adminapi.TimelineLine{gap}, lines...), cursor
}

// WaitTimeline waits until there is a line after a number. The error is [ErrSessionEnded] if the
// session ends first, or that of ctx.
func (s *Session) WaitTimeline(ctx context.Context, after uint64) error {
	return s.feed.wait(ctx, kindTimeline, after)
}

// escapes are ANSI sequences and control characters other than tab and newline, which could make a
// terminal do more than print. Some terminals also obey the sequences of one character, U+0080 to
// U+009F.
var escapes = lazyregexp.New("(?:\x1b\\[|\u009b)[0-9;?]*[ -/]*[@-~]|" +
	"(?:\x1b\\]|\u009d)[^\x07\x1b\u009c]*(?:\x07|\x1b\\\\|\u009c)|" +
	"[\x00-\x08\x0b-\x1f\x7f-\u009f]")

// stripEscapes removes escapes from foreign text.
func stripEscapes(s string) string {
	if !strings.ContainsFunc(s, unicode.IsControl) {
		return s // all escapes begin with a control character; the expression would copy the text
	}
	return escapes.ReplaceAllString(s, "")
}
