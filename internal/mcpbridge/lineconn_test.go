package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const plainAnswer = `{"jsonrpc":"2.0","id":7,"result":{"content":[` +
	`{"type":"text","text":"a\nb"},{"text":"é","type":"text"}]}}`

// show describes a message that a connection has read, and whether the SDK decodes its result.
func show(m jsonrpc.Message) string {
	switch m := m.(type) {
	case *jsonrpc.Request:
		return m.Method
	case *jsonrpc.Response:
		answer, ok := errors.AsType[*callAnswer](m.Error)
		if !ok {
			return fmt.Sprintf("%v: SDK", m.ID.Raw())
		}
		var texts []string
		for _, content := range answer.result.Content {
			texts = append(texts, content.(*mcp.TextContent).Text)
		}
		return fmt.Sprintf("%v: %q %t", m.ID.Raw(), texts, answer.result.IsError)
	}
	return fmt.Sprintf("%T", m)
}

func TestReadLines(t *testing.T) {
	t.Parallel()
	result := func(result string) string {
		return `{"jsonrpc":"2.0","id":7,"result":` + result + "}\n"
	}
	const ping = `{"jsonrpc":"2.0","method":"ping","id":1}`
	for name, test := range map[string]struct {
		in   string
		want []string
		err  string // "": io.EOF
	}{
		"texts":           {plainAnswer + "\n", []string{`7: ["a\nb" "é"] false`}, ""},
		"without its end": {plainAnswer, []string{`7: ["a\nb" "é"] false`}, ""},
		"long": {result(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 100_000) +
			`"}]}`),
			[]string{`7: ["` + strings.Repeat("x", 100_000) + `"] false`}, ""},
		"a failure": {result(
			`{"content":[],"isError":true,"resultType":"complete","_meta":{"a":1}}`),
			[]string{`7: [] true`}, ""},
		"a question": {result(`{"content":[],"resultType":"input_required"}`),
			[]string{"7: SDK"}, ""},
		"an image": {result(`{"content":[{"type":"image","data":""}]}`),
			[]string{"7: SDK"}, ""},
		"a structure": {result(`{"content":[],"structuredContent":{}}`), []string{"7: SDK"},
			""},
		"a key twice":         {result(`{"content":[],"content":[]}`), []string{"7: SDK"}, ""},
		"keys in other cases": {result(`{"Content":[]}`), []string{"7: SDK"}, ""},
		"no text":             {result(`{"content":[{"type":"text"}]}`), []string{"7: SDK"}, ""},
		"an error": {`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"\"content\""}}`,
			[]string{"7: SDK"}, ""},
		"a batch": {"[" + ping + "," + plainAnswer + "]\r\n" + ping,
			[]string{"ping", "7: SDK", "ping"}, ""},
		"an empty batch":   {"[]\n", nil, "not JSON"},
		"more in its line": {ping + ping, nil, "not JSON"},
		"no id":            {`{"jsonrpc":"2.0","result":{"content":[]}}`, nil, "invalid request"},
		"no JSON":          {"{\n", nil, "not JSON"},
		"deep": {result(strings.Repeat(`{"content":`, 2000) + "1" +
			strings.Repeat("}", 2000)), nil, "depth"},
		"without end": {"{" + strings.Repeat(" ", maxMessage), nil, "more than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := lineTransport{out: io.NopCloser(strings.NewReader(test.in))}.Connect(
				t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				m, err := c.Read(t.Context())
				if err != nil {
					if test.err == "" && err != io.EOF || !strings.Contains(err.Error(), test.err) {
						t.Errorf("ends with %q, want %q", err, test.err)
					}
					break
				}
				got = append(got, show(m))
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("read %.200q, want %.200q", got, test.want)
			}
		})
	}
}

func TestCloseEndsRead(t *testing.T) {
	t.Parallel()
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c, err := lineTransport{out: out, in: theirs}.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := c.Read(context.Background())
		ended <- err
	}()
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != io.EOF {
		t.Errorf("Read ends with %v, want %v", err, io.EOF)
	}
}

// FuzzAnswer reads answers as the SDK does, where it reads them at all.
func FuzzAnswer(f *testing.F) {
	f.Add(plainAnswer)
	f.Add(`{"id":1.0,"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"\ud800"}]}}`)
	f.Add(`{"id":-1,"jsonrpc":"2.0","result":{"_meta":{"a":[1]},"content":[],"isError":true}}`)
	f.Fuzz(func(t *testing.T, line string) {
		ours, _ := decodeAnswer([]byte(line)).(*jsonrpc.Response)
		if ours == nil {
			return
		}
		message, err := jsonrpc.DecodeMessage([]byte(line))
		theirs, ok := message.(*jsonrpc.Response)
		if err != nil || !ok {
			t.Fatalf("%q: the SDK reads %T, %v", line, message, err)
		}
		var want mcp.CallToolResult
		if err := json.Unmarshal(theirs.Result, &want); err != nil {
			t.Fatalf("%q: the SDK reads %v", line, err)
		}
		got := ours.Error.(*callAnswer).result
		if ours.ID != theirs.ID || got.IsError != want.IsError ||
			len(got.Content) != len(want.Content) {
			t.Fatalf("%q: read %v, the SDK %v", line, got, want)
		}
		for i := range want.Content {
			if !reflect.DeepEqual(got.Content[i], want.Content[i]) {
				t.Errorf("%q: content %d is %v, the SDK's %v", line, i, got.Content[i],
					want.Content[i])
			}
		}
	})
}
