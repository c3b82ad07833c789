package records

import (
	"strconv"
	"time"
	"unicode/utf8"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/recording"
	"tapgw/internal/secrets"
)

// Limits of a record, in bytes: of each text that a provider wrote, and of names and reasons.
const (
	maxText = 64 << 10
	maxName = 1 << 10
)

// timeLayout is the time of a line. All have the same length, so that the bytes of two times
// compare as the times do.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// appendRecord appends a record as a line. Strings have the escapes of JSON, and secrets are
// replaced.
func appendRecord(line []byte, r *adminapi.Record) []byte {
	line = append(line, `{"ts":"`...)
	line = appendTime(line, r.TS)
	line = append(line, `","kind":"`...)
	line = append(line, r.Kind...)
	line = append(line, '"')
	for _, f := range [...]struct{ name, value string }{
		{`,"session":`, r.Session}, {`,"provider":`, r.Provider},
		{`,"gateway":`, r.Gateway}, {`,"trace":`, r.Trace},
		{`,"span":`, r.Span}, {`,"parent":`, r.Parent}, {`,"state":`, r.State},
		{`,"label":`, r.Label},
		{`,"host":`, r.Host}, {`,"cwd":`, r.CWD}, {`,"id":`, r.ID}, {`,"tool":`, r.Tool},
		{`,"outcome":`, r.Outcome}, {`,"code":`, r.Code}, {`,"by":`, r.By},
		{`,"reason":`, r.Reason},
		{`,"stream":`, r.Stream}, {`,"level":`, r.Level}, {`,"fate":`, string(r.Fate)},
	} {
		line = appendText(line, f.name, f.value, maxName)
	}
	if r.DurationMs > 0 {
		line = strconv.AppendFloat(append(line, `,"durationMs":`...), r.DurationMs, 'f', -1, 64)
	}
	line = appendText(line, `,"command":`, r.Command, maxName)
	if r.ExitCode != nil {
		line = strconv.AppendInt(append(line, `,"exitCode":`...), int64(*r.ExitCode), 10)
	}
	if r.Seq > 0 {
		line = strconv.AppendUint(append(line, `,"seq":`...), r.Seq, 10)
	}
	line = appendText(line, `,"event":`, r.Event, maxText)
	line = appendText(line, `,"prompt":`, r.Prompt, maxText)
	if len(r.Metadata) > 0 && len(r.Metadata) <= maxText {
		metadata := recording.NewRedactor("records").Message(r.Metadata)
		line = append(append(line, `,"metadata":`...), metadata...)
	}
	return append(line, "}\n"...)
}

// appendText appends a member with a text, unless it is empty. A text that is too long is cut.
func appendText(line []byte, name, text string, limit int) []byte {
	if text == "" {
		return line
	}
	if isID(text) {
		return append(append(append(append(line, name...), '"'), text...), '"')
	}
	if text = secrets.Redact(text); len(text) > limit {
		text = text[:limit]
		for !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) &&
			len(text) > limit-utf8.UTFMax {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return protocol.AppendText(append(line, name...), text)
}

// isID reports whether a text has the form of an id of a session, a call, a trace or a span, as
// most texts of records do: hexadecimal digits, with a minus only where a UUID has one. Such a text
// has no secret and needs no escape, and to search it for both was half of the time that a record
// took.
func isID(text string) bool {
	if len(text) > len("01234567-89ab-cdef-0123-456789abcdef") {
		return false
	}
	for i := range len(text) {
		if !isHex[text[i]] && (text[i] != '-' || i != 8 && i != 13 && i != 18 && i != 23) {
			return false
		}
	}
	return true
}

// isHex are the digits of ids. Comparisons instead would often be predicted wrongly by the
// processor, because the digits are random.
var isHex = [256]bool{
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true,
	'8': true, '9': true, 'a': true, 'b': true, 'c': true, 'd': true, 'e': true, 'f': true,
}

// appendTime appends a time in timeLayout. Go formats RFC 3339 in half the time of other layouts.
func appendTime(line []byte, t time.Time) []byte {
	t = t.UTC()
	line = t.AppendFormat(line, time.RFC3339)
	dot := len(line) - len("Z")
	line = strconv.AppendInt(line[:dot], int64(1_000_000+t.Nanosecond()/1000), 10)
	line[dot] = '.' // instead of the 1, which keeps the zeros behind it
	return append(line, 'Z')
}

// lineTime is how a time is written in a line.
func lineTime(t time.Time) string { return t.UTC().Format(timeLayout) }
