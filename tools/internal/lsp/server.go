package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tapgw/internal/jsonrpc"
	"tapgw/internal/proc"
	"tapgw/tools/internal/program"
	"tapgw/tools/internal/shell"
)

// server is a language server that runs.
type server struct {
	// Fixed at start.
	lang    *Language
	root    string
	process *proc.Process
	conn    *jsonrpc.Conn

	turn   chan struct{}        // whose turn it is to ask: holds one token
	known  map[string]fileStamp // files that it has been told of; of whoever's turn it is
	anchor string               // file that is kept open, for servers that need one

	mu        sync.Mutex        // guards those below
	pull      bool              // it answers when asked what is wrong
	published map[string]report // by path
	news      chan struct{}     // closed and replaced when one of them changes
}

// report is what a server said last about a file.
type report struct {
	count int // of reports
	items []diagnostic
}

// fileStamp tells whether a file has changed.
type fileStamp struct {
	size    int64
	changed time.Time
}

// start starts a server and greets it. ctx bounds that.
func start(ctx context.Context, lang *Language, root string) (*server, error) {
	path, err := program.Find(lang.Server, root)
	if err != nil {
		return nil, err
	}
	if lang.ready != nil {
		if err := lang.ready(path); err != nil {
			return nil, err
		}
	}
	env := program.Environ(root)
	if lang.environ != nil {
		if env, err = lang.environ(ctx, root); err != nil {
			return nil, err
		}
	}
	s := &server{lang: lang, root: root, turn: make(chan struct{}, 1), published: map[string]report{},
		news: make(chan struct{})}
	s.turn <- struct{}{}
	out, in := io.Pipe()
	s.process, err = proc.Start(proc.Command{Path: path, Args: lang.args, Dir: program.Dir, Env: env, Stdout: in,
		Grace: stopGrace})
	if err != nil {
		return nil, err
	}
	shell.EndFirst(s.process.PID())
	go func() { // ends with the process, which stop waits for
		<-s.process.Done()
		_ = in.Close()
	}()
	s.conn = jsonrpc.New(pipes{out, s.process.Stdin()}, jsonrpc.Options{OnNotify: s.told, OnRequest: s.asked})
	if err := s.greet(ctx, path); err != nil {
		s.stop()
		return nil, fmt.Errorf("starting %s: %w", lang.Server, err)
	}
	return s, nil
}

// pipes are a server's stdout and stdin.
type pipes struct {
	*io.PipeReader
	stdin io.WriteCloser
}

func (p pipes) Write(b []byte) (int, error) { return p.stdin.Write(b) }

func (p pipes) Close() error { return errors.Join(p.PipeReader.Close(), p.stdin.Close()) }

// stop ends the server. It has nothing to save: it is not asked first.
func (s *server) stop() {
	s.conn.Close()
	s.process.Stop()
}

func (s *server) greet(ctx context.Context, path string) error {
	var hello struct {
		Capabilities struct {
			DiagnosticProvider json.RawMessage `json:"diagnosticProvider"`
		} `json:"capabilities"`
	}
	err := s.conn.Call(ctx, "initialize", object{
		"processId":        os.Getpid(),
		"rootUri":          uriOf(s.root),
		"workspaceFolders": []any{object{"uri": uriOf(s.root), "name": filepath.Base(s.root)}},
		"capabilities": object{
			"workspace": object{
				"configuration": true, "workspaceFolders": true,
				"didChangeWatchedFiles": object{"dynamicRegistration": true},
			},
			"textDocument": object{
				"synchronization":    object{"didSave": true},
				"publishDiagnostics": object{"versionSupport": true},
				"diagnostic":         object{"dynamicRegistration": true, "relatedDocumentSupport": false},
				"references":         object{},
			},
			"general": object{"positionEncodings": []string{"utf-16"}},
		},
		"initializationOptions": s.options(path),
	}, &hello)
	if err != nil {
		return err
	}
	provider := string(hello.Capabilities.DiagnosticProvider)
	if provider != "" && provider != "null" && provider != "false" {
		s.answersDiagnostics()
	}
	return s.conn.Notify("initialized", object{})
}

func (s *server) options(path string) any {
	if s.lang.options == nil {
		return object{}
	}
	return s.lang.options(path)
}

// told takes the server's notifications.
func (s *server) told(method string, params json.RawMessage) {
	var p struct {
		URI         string       `json:"uri"`
		Diagnostics []diagnostic `json:"diagnostics"`
	}
	if method != "textDocument/publishDiagnostics" || json.Unmarshal(params, &p) != nil {
		return
	}
	path := pathOf(p.URI) // servers encode URIs in ways of their own
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[path] = report{s.published[path].count + 1, p.Diagnostics}
	s.tell()
}

// tell wakes those who wait for news. s.mu is held.
func (s *server) tell() {
	close(s.news)
	s.news = make(chan struct{})
}

func (s *server) answersDiagnostics() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pull = true
	s.tell()
}

// asked answers the server's requests: it gets no more than it needs.
func (s *server) asked(_ context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case "workspace/configuration":
		var p struct{ Items []struct{ Section string } }
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		settings := make([]any, len(p.Items))
		for i, item := range p.Items {
			if item.Section == s.lang.Server && s.lang.options != nil {
				settings[i] = s.lang.options("")
			}
		}
		return settings, nil
	case "workspace/workspaceFolders":
		return []any{object{"uri": uriOf(s.root), "name": filepath.Base(s.root)}}, nil
	case "workspace/applyEdit":
		return object{"applied": false}, nil
	case "client/registerCapability":
		if bytes.Contains(params, []byte(`"textDocument/diagnostic"`)) {
			s.answersDiagnostics()
		}
		return nil, nil
	case "client/unregisterCapability", "window/workDoneProgress/create", "window/showMessageRequest",
		"workspace/diagnostic/refresh", "workspace/semanticTokens/refresh", "workspace/inlayHint/refresh",
		"workspace/codeLens/refresh":
		return nil, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method: " + method}
}

// catchUp tells the server which of the workspace's files have changed since it
// was last asked: nobody else watches them for it.
func (s *server) catchUp(files []string) error {
	now := make(map[string]fileStamp, len(files))
	var changes []any
	change := func(path string, kind int) {
		changes = append(changes, object{"uri": uriOf(path), "type": kind})
	}
	const created, changed, deleted = 1, 2, 3
	for _, path := range files {
		if !s.lang.matters(path) {
			continue
		}
		path = filepath.Join(s.root, path)
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		stamp := fileStamp{info.Size(), info.ModTime()}
		now[path] = stamp
		if old, ok := s.known[path]; !ok {
			change(path, created)
		} else if old != stamp {
			change(path, changed)
		}
	}
	for path := range s.known {
		if _, ok := now[path]; !ok {
			change(path, deleted)
		}
	}
	if s.anchor != "" && s.known[s.anchor] != now[s.anchor] {
		s.release()
	}
	first := s.known == nil // then it has just looked itself
	s.known = now
	if first || len(changes) == 0 {
		return nil
	}
	return s.conn.Notify("workspace/didChangeWatchedFiles", object{"changes": changes})
}

// open tells the server a file's text, which it then takes for what the file is.
func (s *server) open(path, text string) error {
	if path == s.anchor {
		s.release()
	}
	return s.conn.Notify("textDocument/didOpen", object{"textDocument": object{
		"uri": uriOf(path), "languageId": s.lang.suffixes[filepath.Ext(path)], "version": 1, "text": text,
	}})
}

func (s *server) close(path string) {
	_ = s.conn.Notify("textDocument/didClose", object{"textDocument": object{"uri": uriOf(path)}})
}

// hold keeps a file of the language open: some servers know of no project until
// then, and load it anew each time.
func (s *server) hold(files []string) {
	if s.anchor != "" {
		return
	}
	for _, f := range files {
		path := filepath.Join(s.root, f)
		if !s.lang.Has(f) {
			continue
		}
		if text, err := os.ReadFile(path); err == nil && s.open(path, string(text)) == nil {
			s.anchor = path
			return
		}
	}
}

// release lets go of the file that is kept open: it has changed, or is opened for
// a question.
func (s *server) release() {
	s.close(s.anchor)
	s.anchor = ""
}

// state is what the server has said about files so far, and when it says more.
func (s *server) state(paths []string) (reports map[string]report, pull bool, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reports = map[string]report{}
	for _, path := range paths {
		reports[path] = s.published[path]
	}
	return reports, s.pull, s.news
}

// below reports whether a path is in the workspace.
func (s *server) below(path string) bool {
	return strings.HasPrefix(path, s.root+string(filepath.Separator))
}
