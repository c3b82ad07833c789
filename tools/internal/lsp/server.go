package lsp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tapgw/internal/chans"
	"tapgw/internal/jsonrpc"
	"tapgw/internal/proc"
	"tapgw/tools/internal/program"
	"tapgw/tools/internal/shell"
)

// server is a running language server.
type server struct {
	// Fixed at start.
	lang    *Language
	root    string
	process *proc.Process
	conn    *jsonrpc.Conn

	lock   chans.Lock           // of a question, which owns the next two fields
	stamps map[string]fileStamp // of the files that the server knows, by path
	anchor string               // file that is kept open, for servers that need one, or ""

	mu        sync.Mutex        // guards the fields that follow
	canAsk    bool              // the server answers questions about diagnostics
	published map[string]report // diagnostics that it reported by itself, by path
	news      chan struct{}     // closed and replaced when canAsk or published changes
}

// report is the last report of a server about a file.
type report struct {
	count int // number of reports so far
	items []diagnostic
}

// fileStamp changes when the file does.
type fileStamp struct {
	size    int64
	modTime time.Time
}

// start starts a server and initializes it, within ctx.
func start(ctx context.Context, lang *Language, root string) (*server, error) {
	path, err := lang.find(root)
	if err != nil {
		return nil, err
	}
	if lang.check != nil {
		if err := lang.check(path); err != nil {
			return nil, err
		}
	}
	env := program.Environ(root)
	if lang.environ != nil {
		if env, err = lang.environ(ctx, root); err != nil {
			return nil, err
		}
	}
	s := &server{
		lang: lang, root: root, lock: chans.NewLock(), published: map[string]report{},
		news: make(chan struct{}),
	}
	process, connection, err := proc.Connect(proc.Command{
		Path: path, Args: lang.args, Dir: program.Dir, Env: env, Grace: stopGrace,
	})
	if err != nil {
		return nil, err
	}
	s.process = process
	shell.EndFirst(process.PID())
	s.conn = jsonrpc.New(connection, jsonrpc.Options{OnNotify: s.onNotification,
		OnRequest: s.onRequest})
	if err := s.initialize(ctx, path); err != nil {
		s.stop()
		return nil, fmt.Errorf("starting %s: %w", lang.Server, err)
	}
	return s, nil
}

// stop ends the server's process. It sends no shutdown request, because the server has no data to
// save.
func (s *server) stop() {
	s.conn.Close()
	s.process.Stop()
}

// isOver reports whether the connection to the server has ended.
func (s *server) isOver() bool { return chans.IsClosed(s.conn.Done()) }

func (s *server) initialize(ctx context.Context, path string) error {
	var result struct {
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
				"diagnostic": object{"dynamicRegistration": true,
					"relatedDocumentSupport": false},
				"references": object{},
			},
			"general": object{"positionEncodings": []string{"utf-16"}},
		},
		"initializationOptions": s.options(path),
	}, &result)
	if err != nil {
		return err
	}
	provider := string(result.Capabilities.DiagnosticProvider)
	if provider != "" && provider != "null" && provider != "false" {
		s.enableQuestions()
	}
	return s.conn.Notify("initialized", object{})
}

func (s *server) options(path string) any {
	if s.lang.options == nil {
		return object{}
	}
	return s.lang.options(path)
}

// onNotification handles the server's notifications.
func (s *server) onNotification(method string, params json.RawMessage) {
	var p struct {
		URI         string       `json:"uri"`
		Diagnostics []diagnostic `json:"diagnostics"`
	}
	if method != "textDocument/publishDiagnostics" || json.Unmarshal(params, &p) != nil {
		return
	}
	path := pathOf(p.URI) // compared as a path, because servers encode URIs differently
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[path] = report{s.published[path].count + 1, p.Diagnostics}
	s.wake()
}

// wake wakes the goroutines that wait for news. s.mu is held.
func (s *server) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

// enableQuestions records that the server answers questions about diagnostics.
func (s *server) enableQuestions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canAsk = true
	s.wake()
}

// onRequest answers the server's requests. The server gets no more than it needs.
func (s *server) onRequest(_ context.Context, method string, params json.RawMessage) (any, error) {
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
			s.enableQuestions()
		}
		return nil, nil
	case "client/unregisterCapability", "window/workDoneProgress/create",
		"window/showMessageRequest",
		"workspace/diagnostic/refresh", "workspace/semanticTokens/refresh",
		"workspace/inlayHint/refresh", "workspace/codeLens/refresh":
		return nil, nil
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
		Message: "no such method: " + method}
}

// sendChanges tells the server which files of the workspace have changed since the
// last question. It has no other way to know.
func (s *server) sendChanges(files []string) error {
	now := make(map[string]fileStamp, len(files))
	var changes []any
	addChange := func(path string, kind int) {
		changes = append(changes, object{"uri": uriOf(path), "type": kind})
	}
	const created, changed, deleted = 1, 2, 3
	for _, path := range files {
		if !s.lang.reads(path) {
			continue
		}
		path = filepath.Join(s.root, path)
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		stamp := fileStamp{info.Size(), info.ModTime()}
		now[path] = stamp
		if old, ok := s.stamps[path]; !ok {
			addChange(path, created)
		} else if old != stamp {
			addChange(path, changed)
		}
	}
	for path := range s.stamps {
		if _, ok := now[path]; !ok {
			addChange(path, deleted)
		}
	}
	if s.anchor != "" && s.stamps[s.anchor] != now[s.anchor] {
		s.closeAnchor()
	}
	isFirst := s.stamps == nil // the server has just read the files itself
	s.stamps = now
	if isFirst || len(changes) == 0 {
		return nil
	}
	return s.conn.Notify("workspace/didChangeWatchedFiles", object{"changes": changes})
}

// open sends a file's text to the server, which from then on ignores the file on disk.
func (s *server) open(path, text string) error {
	if path == s.anchor {
		s.closeAnchor()
	}
	return s.conn.Notify("textDocument/didOpen", object{"textDocument": object{
		"uri": uriOf(path), "languageId": s.lang.suffixes[filepath.Ext(path)], "version": 1,
		"text": text,
	}})
}

func (s *server) close(path string) {
	_ = s.conn.Notify("textDocument/didClose", object{"textDocument": object{"uri": uriOf(path)}})
}

// openAnchor keeps a file of the language open. Some servers load a project only for
// an open file, and again each time.
func (s *server) openAnchor(files []string) {
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

// closeAnchor closes the file that is kept open, because it has changed or is opened for
// a question.
func (s *server) closeAnchor() {
	s.close(s.anchor)
	s.anchor = ""
}

// state returns the last reports about files, whether the server can be asked, and a
// channel that is closed when either changes.
func (s *server) state(
	paths []string,
) (reports map[string]report, canAsk bool, news <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reports = map[string]report{}
	for _, path := range paths {
		reports[path] = s.published[path]
	}
	return reports, s.canAsk, s.news
}

// contains reports whether a path is in the workspace.
func (s *server) contains(path string) bool {
	return strings.HasPrefix(path, s.root+string(filepath.Separator))
}
