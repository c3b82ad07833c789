package recording_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapgw/internal/recording"
)

// start is the first line of a recording.
const start = `{"recording":1,"gateway":"2.1.0","ts":"2026-01-02T15:04:05Z","session":{"id":"s1"},"connections":[]}` + "\n"

func TestReadNamesBrokenLines(t *testing.T) {
	const good = `{"ts":"2026-01-02T15:04:05Z","conn":1,"from":"gateway","to":"provider","message":{"type":"x"}}`
	tests := []struct{ name, line, want string }{
		{"no JSON", `{"ts":`, "line: not valid JSON: it ends too early"},
		{"a list", `[]`, "line: must be an object"},
		{"a wrong time", `{"ts":"yesterday"}`,
			"line.ts: must be a time such as 2026-01-02T15:04:05Z"},
		{"a wrong type", `{"conn":"one"}`, "line.conn: must be a whole number"},
		{"no content", `{"from":"gateway","to":"provider","conn":1}`,
			"it has not one of message, text, size, closed, gap and end"},
		{"two contents", `{"from":"gateway","to":"provider","conn":1,"text":"x","size":3}`,
			"it has not one of message, text, size, closed, gap and end"},
		{"a message that is a list", `{"from":"gateway","to":"provider","conn":1,"message":[]}`,
			"message: must be a JSON object"},
		{"an unknown party", `{"from":"gateway","to":"moon","conn":1,"text":"x"}`,
			"from and to: must be two of gateway, provider and host"},
		{"no connection", `{"from":"gateway","to":"provider","text":"x"}`,
			"conn: must be the number of a connection"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, err := recording.Read(strings.NewReader(start + test.line + "\n\n" + good + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			want := []recording.Fault{{Line: 2, Message: test.want}}
			if diff := cmp.Diff(want, f.Faults); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if len(f.Lines) != 1 || f.Lines[0].Number != 4 {
				t.Errorf("lines: got %+v, want the one of line 4", f.Lines)
			}
		})
	}
}

func TestReadRefusesOtherFiles(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"empty", "", "line 1 is not the first line of a recording"},
		{"another file", "{\"a\":1}\n", "line 1 is not the first line of a recording"},
		{"another format", strings.Replace(start, `"recording":1`, `"recording":2`, 1),
			"the recording has format 2"},
		{"a hello that is none",
			strings.Replace(start, `"connections":[]`,
				`"connections":[{"conn":1,"provider":"p","hello":3}]`, 1),
			"connections[0].hello: must be a JSON object"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := recording.Read(strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: got %v, want one with %q", err, test.want)
			}
		})
	}
}

// FuzzRead reads hostile files: each line is read, or is a fault with its number, and lines that
// were read can be written and are read again as the same.
func FuzzRead(f *testing.F) {
	f.Add(
		start +
			`{"ts":"2026-01-02T15:04:05Z","conn":1,"from":"gateway","to":"provider","message":{"type":"x"}}` + "\n",
	)
	f.Add(start + `{"gap":3}` + "\n" + `{"end":"over"}`)
	f.Add(start + `{"conn":1,"from":"provider","to":"gateway","text":"\ud800"}` + "\n{")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := recording.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		lines := strings.Count(text, "\n") + 1
		for _, fault := range file.Faults {
			if fault.Line < 2 || fault.Line > lines || fault.Message == "" {
				t.Errorf("fault: got %+v, want one of lines 2 to %d", fault, lines)
			}
		}
		var again bytes.Buffer
		enc := json.NewEncoder(&again)
		if err := enc.Encode(file.Start); err != nil {
			t.Fatal(err)
		}
		for _, line := range file.Lines {
			if err := enc.Encode(line.RecordingLine); err != nil {
				t.Fatalf("writing line %d: %v", line.Number, err)
			}
		}
		second, err := recording.Read(&again)
		if err != nil || len(second.Faults) > 0 || len(second.Lines) != len(file.Lines) {
			t.Errorf("read again: got %+v, %v, want the same %d lines", second, err,
				len(file.Lines))
		}
	})
}

func isJSON(text string) bool { return json.Valid([]byte(text)) }
