package mcpserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

const listenLine = `{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"_meta":{"a":1},` +
	`"notifications":{"toolsListChanged":true,"taskIds":["x","y"]}}}`

func TestTaskIDsAreMoved(t *testing.T) {
	moved := moveTaskIDs([]byte(listenLine))
	if !sameJSON(t, string(moved), strings.Replace(listenLine, `"a":1`, `"a":1,"tapgw/taskIds":["x","y"]`, 1)) {
		t.Errorf("got %s, want the ids in _meta, too", moved)
	}
	for _, line := range []string{
		"", "{", `[]`, `{"method":"subscriptions/listen","params":{"notifications":{"taskIds":["x"]}}}`,
		`{"method":"subscriptions/listen","params":{"_meta":null,"notifications":{"taskIds":["x"]}}}`,
		`{"method":"subscriptions/listen","params":{"_meta":{},"notifications":["taskIds"]}}`,
		`{"method":"tools/call","params":{"_meta":{},"notifications":{"taskIds":["x"]}}}`,
	} {
		if got := moveTaskIDs([]byte(line)); string(got) != line {
			t.Errorf("%s: got %s, want it as it was", line, got)
		}
	}
}

// What a client sends arrives as it was, however it is cut in pieces, but for the ids.
func TestWirePassesAll(t *testing.T) {
	long := `{"id":1,"text":"` + strings.Repeat("subscriptions/listen taskIds ", maxListen/8) + `"}`
	text := "\n" + long + "\n" + listenLine + "\n" + `{"id":2}` + "\n" + "no line feed"
	want := "\n" + long + "\n" + string(moveTaskIDs([]byte(listenLine))) + `{"id":2}` + "\n" + "no line feed"
	for name, in := range map[string]io.Reader{
		"whole":        strings.NewReader(text),
		"by bytes":     iotest.OneByteReader(strings.NewReader(text)),
		"by halves":    iotest.HalfReader(strings.NewReader(text)),
		"err at once":  iotest.DataErrReader(strings.NewReader(text)),
		"read by byte": strings.NewReader(text),
	} {
		ready, ended := make(chan struct{}), 0
		close(ready)
		var r io.Reader = &wireReader{lines: bufio.NewReaderSize(in, maxListen), ready: ready, end: func() { ended++ }}
		if name == "read by byte" {
			r = iotest.OneByteReader(r)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want || ended != 1 {
			t.Errorf("%s: got %d bytes, %v, ended %d times; want %d bytes and one end", name, len(got), err, ended,
				len(want))
		}
	}
}

// FuzzMoveTaskIDs shows that no message is lost, or gets another meaning.
func FuzzMoveTaskIDs(f *testing.F) {
	f.Add([]byte(listenLine))
	f.Add([]byte(`{"method":"subscriptions/listen","params":{"_meta":{},"notifications":{"taskIds":3}}}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		moved := moveTaskIDs(bytes.Clone(message))
		if bytes.Equal(moved, message) {
			return
		}
		var before, after map[string]any
		if json.Unmarshal(message, &before) != nil || json.Unmarshal(moved, &after) != nil {
			t.Fatalf("%q: got %q, want no change of what is not JSON", message, moved)
		}
		params, _ := after["params"].(map[string]any)
		meta, _ := params["_meta"].(map[string]any)
		notifications, _ := params["notifications"].(map[string]any)
		if !sameJSON(t, mustJSON(t, meta[taskIDsKey]), mustJSON(t, notifications["taskIds"])) {
			t.Errorf("%q: got %q, want the ids in both places", message, moved)
		}
		delete(meta, taskIDsKey)
		old, _ := before["params"].(map[string]any)
		oldMeta, _ := old["_meta"].(map[string]any)
		delete(oldMeta, taskIDsKey)
		if !sameJSON(t, mustJSON(t, before), mustJSON(t, after)) {
			t.Errorf("%q: got %q, want nothing else changed", message, moved)
		}
	})
}
