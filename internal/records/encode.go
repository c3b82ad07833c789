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
	line = r.TS.UTC().AppendFormat(line, timeLayout)
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

// lineTime is how a time is written in a line.
func lineTime(t time.Time) string { return t.UTC().Format(timeLayout) }
