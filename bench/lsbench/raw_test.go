//go:build runtime

// Package lsbench measures the language-server client against the least that a
// client can be: frames by hand on the same server, in the same run. Medians want
// some iterations:
//
//	go test -tags runtime -run '^$' -bench Ready -benchtime 10x ./bench/lsbench
//	go test -tags runtime -run '^$' -bench FirstToken -benchtime 10x ./bench/lsbench
//	go test -tags runtime -run '^$' -bench Turn -benchtime 200x ./bench/lsbench
//	go test -tags runtime -run '^$' -bench Memory -benchtime 3x ./bench/lsbench
package lsbench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// raw is the floor: one goroutine, no checks, one turn at a time.
type raw struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	folder map[string]any
	id     int
}

type object = map[string]any

func startRaw(path, workspace string, env []string) (*raw, error) {
	r := &raw{cmd: exec.Command(path, "--stdio"), folder: object{"uri": "file://" + workspace,
		"name": "workspace"}}
	r.cmd.Env, r.cmd.Dir = env, workspace
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	who := object{"name": "raw", "version": "1"}
	_, err = r.call("initialize", object{
		"processId": os.Getpid(), "workspaceFolders": []any{r.folder},
		"capabilities":          object{"workspace": object{"workspaceFolders": true}},
		"initializationOptions": object{"editorInfo": who, "editorPluginInfo": who},
	}, nil)
	if err != nil {
		return nil, err
	}
	r.send(object{"method": "initialized", "params": object{}})
	r.send(object{"method": "workspace/didChangeConfiguration",
		"params": object{"settings": object{"telemetry": object{"telemetryLevel": "off"}}}})
	if _, err := r.call("checkStatus", object{}, nil); err != nil {
		return nil, err
	}
	// As the client does, so that the model's requests are equally long.
	ids := []string{"copilot.read_file", "copilot.list_dir", "copilot.file_search",
		"copilot.grep_search"}
	if _, err := r.call("conversation/unregisterTools", object{"toolIds": ids}, nil); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *raw) stop() {
	_, _ = r.call("shutdown", object{}, nil)
	r.send(object{"method": "exit"})
	_ = r.in.Close()
	_ = r.cmd.Wait()
}

func (r *raw) send(m object) {
	m["jsonrpc"] = "2.0"
	body, _ := json.Marshal(m)
	_, _ = fmt.Fprintf(r.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
}

type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

func (r *raw) read() (m message, err error) {
	var size int
	for {
		line, err := r.out.ReadString('\n')
		if err != nil {
			return m, err
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			if size, err = strconv.Atoi(n); err != nil {
				return m, err
			}
		}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r.out, body); err != nil {
		return m, err
	}
	return m, json.Unmarshal(body, &m)
}

// call waits for an answer and serves what comes before it.
func (r *raw) call(method string, params any,
	notified func(method string, params json.RawMessage)) (json.RawMessage, error) {
	r.id++
	r.send(object{"id": r.id, "method": method, "params": params})
	for {
		m, err := r.read()
		switch {
		case err != nil:
			return nil, err
		case m.Method != "" && m.ID != nil:
			r.send(object{"id": m.ID,
				"result": []any{object{"content": []any{object{"value": "answered"}},
					"status": "success"}, nil}})
		case m.Method != "":
			if notified != nil {
				notified(m.Method, m.Params)
			}
		case m.Error != nil:
			return nil, errors.New(m.Error.Message)
		default:
			return m.Result, nil
		}
	}
}

func (r *raw) register(name string) error {
	_, err := r.call("conversation/registerTools", object{"tools": []any{object{
		"name": name, "description": "A tool.",
		"inputSchema": object{"type": "object", "properties": object{},
			"required": []string{}},
	}}}, nil)
	return err
}

// turn runs a turn in a new conversation and returns what the model said.
func (r *raw) turn(prompt string) (text string, err error) {
	_, err = r.call("conversation/create", object{
		"workDoneToken": "t" + strconv.Itoa(r.id), "turns": []any{object{"request": prompt}},
		"capabilities": object{"skills": []string{}},
		"source":       "panel", "chatMode": "Agent", "modelInfo": object{"id": "scripted"},
		"computeSuggestions": false,
		"workspaceFolder":    r.folder["uri"], "workspaceFolders": []any{r.folder},
	}, func(method string, params json.RawMessage) {
		if method != "$/progress" {
			return
		}
		var p struct {
			Value struct{ EditAgentRounds []struct{ Reply string } }
		}
		if json.Unmarshal(params, &p) == nil {
			for _, round := range p.Value.EditAgentRounds {
				text += round.Reply
			}
		}
	})
	return text, err
}
