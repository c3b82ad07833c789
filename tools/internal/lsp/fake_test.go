package lsp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/jsonrpc"
)

// fakeVar makes the test program a language server of this temper.
const fakeVar = "LSP_FAKE"

func TestMain(m *testing.M) {
	if temper := os.Getenv(fakeVar); temper != "" {
		os.Exit(fake(temper))
	}
	goleak.VerifyTestMain(m)
}

// fakeLanguage is a language whose server is this program. Each line of its files
// that contains "bad" is an error.
func fakeLanguage(t *testing.T, temper string) *Language {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "fakels")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv(fakeVar, temper)
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	return &Language{
		Name: "Fake", Server: "fakels", suffixes: map[string]string{".fake": "fake"},
		projects: []string{"fake.mod"},
		options:  func(string) map[string]any { return map[string]any{"set": true} },
	}
}

// fakeServer is a language server. For the query "log" it returns the notifications that
// it received as symbols.
type fakeServer struct {
	temper string
	root   string        // of the workspace, a URI: set before anything else is asked
	ready  chan struct{} // closed when conn is set
	conn   *jsonrpc.Conn

	mu    sync.Mutex
	log   []string
	texts map[string]string // of what is open, by URI
}

func fake(temper string) int {
	switch temper {
	case "dies at once":
		fmt.Fprintln(os.Stderr, "no licence")
		return 3
	case "hangs at once":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return 0
	case "prints":
		fmt.Println("Welcome!")
	}
	s := &fakeServer{temper: temper, ready: make(chan struct{}), texts: map[string]string{}}
	s.conn = jsonrpc.New(stdio{}, jsonrpc.Options{OnNotify: s.onNotification, OnRequest: s.asked})
	close(s.ready)
	<-s.conn.Done()
	return 0
}

type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { return os.Stdin.Close() }

func (s *fakeServer) onNotification(method string, params json.RawMessage) {
	<-s.ready
	var p struct {
		TextDocument struct{ URI, Text string }
		Changes      []struct {
			URI  string
			Type int
		}
	}
	_ = json.Unmarshal(params, &p)
	uri := p.TextDocument.URI
	s.mu.Lock()
	switch method {
	case "textDocument/didOpen":
		s.log = append(s.log, "open "+filepath.Base(uri))
		s.texts[uri] = p.TextDocument.Text
	case "textDocument/didClose":
		s.log = append(s.log, "close "+filepath.Base(uri))
		delete(s.texts, uri)
	case "workspace/didChangeWatchedFiles":
		var all []string
		for _, c := range p.Changes {
			all = append(all, fmt.Sprintf("%s %d", filepath.Base(c.URI), c.Type))
		}
		slices.Sort(all)
		s.log = append(s.log, "changed "+strings.Join(all, ", "))
	}
	s.mu.Unlock()
	switch {
	case method == "textDocument/didOpen" && s.temper == "tells":
		// First an empty report, then the real one; the last file comes last.
		_ = s.conn.Notify("textDocument/publishDiagnostics",
			object{"uri": uri, "diagnostics": []any{}})
		_ = s.conn.Notify("textDocument/publishDiagnostics",
			object{"uri": strings.Replace(uri, "file:///", "file:/", 1),
				"diagnostics": s.problems(uri)})
	case method == "initialized" && s.temper == "answers later":
		go func() {
			_ = s.conn.Call(context.Background(), "client/registerCapability",
				object{"registrations": []any{object{"id": "1",
					"method": "textDocument/diagnostic"}}}, nil)
		}()
	case method == "textDocument/didOpen" && s.temper == "dies when told":
		os.Exit(1)
	case method == "textDocument/didOpen" && s.temper == "stops reading":
		<-time.After(time.Hour) // not for ever: the runtime ends a program that is stuck
	}
}

func (s *fakeServer) problems(uri string) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []any{}
	for n, line := range strings.Split(s.texts[uri], "\n") {
		if before, _, ok := strings.Cut(line, "bad"); ok {
			at := object{"line": n, "character": utf16Len(before)}
			all = append(all,
				object{"range": object{"start": at, "end": at}, "severity": 1, "code": 42,
					"source": "fake", "message": line})
		}
	}
	return all
}

func (s *fakeServer) asked(
	ctx context.Context, method string, params json.RawMessage,
) (any, error) {
	<-s.ready
	var p struct {
		Query        string
		RootURI      string
		TextDocument struct{ URI string }
		Position     position
	}
	_ = json.Unmarshal(params, &p)
	switch method {
	case "initialize":
		s.root = p.RootURI
		capabilities := object{}
		if s.temper == "answers" {
			capabilities["diagnosticProvider"] = object{}
		}
		return object{"capabilities": capabilities}, nil
	case "textDocument/diagnostic":
		return object{"kind": "full", "items": s.problems(p.TextDocument.URI)}, nil
	case "textDocument/references":
		return []any{object{"uri": p.TextDocument.URI,
			"range": object{"start": p.Position, "end": p.Position}},
			object{"uri": "untitled:x"}}, nil
	case "workspace/symbol":
		switch {
		case s.temper == "hangs when asked":
			<-ctx.Done()
			<-time.After(time.Hour) // not for ever: the runtime ends a program that is stuck
		case s.temper == "dies when asked":
			os.Exit(1)
		case p.Query == "refuse":
			return nil, &jsonrpc.Error{Code: 1, Message: "not today"}
		case p.Query == "settings":
			var settings []any
			err := s.conn.Call(ctx, "workspace/configuration",
				object{"items": []any{object{"section": "fakels"}, object{"section": "x"}}},
				&settings)
			return []any{s.symbol(fmt.Sprint(settings, err))}, nil
		case p.Query == "unknown request":
			return []any{s.symbol(fmt.Sprint(s.conn.Call(ctx, "no/such", nil, nil)))}, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var all []any
		for _, line := range s.log {
			all = append(all, s.symbol(line))
		}
		return append(all,
			object{"name": "outside", "location": object{"uri": "file:///elsewhere.fake"}}), nil
	}
	return nil, nil
}

// symbol is one in the workspace.
func (s *fakeServer) symbol(name string) any {
	return object{"name": name, "kind": 12,
		"location": object{"uri": s.root + "/a.fake", "range": object{"start": position{4, 2}}}}
}
