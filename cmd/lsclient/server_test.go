//go:build runtime

package main

import (
	"bufio"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/langserver"
	"tapgw/internal/scriptmodel"
	"tapgw/internal/taptest/cloud"
)

// TestServerScripts runs the program with the real language server, whose cloud
// is a stand-in with a scripted model.
func TestServerScripts(t *testing.T) {
	server := os.Getenv(langserver.EnvServer)
	if server == "" {
		found, err := filepath.Glob(
			"../../.runtime/node_modules/@github/copilot-language-server-*/copilot-language-server*")
		if err != nil || len(found) != 1 {
			t.Fatalf("found %d language servers in .runtime (%v), want 1; make runtime fetches it",
				len(found), err)
		}
		if server, err = filepath.Abs(found[0]); err != nil {
			t.Fatal(err)
		}
	}
	models := &models{by: map[*testscript.TestScript]*cloud.Cloud{}}
	commands := screenCommands()
	maps.Copy(commands, map[string]func(*testscript.TestScript, bool, []string){
		"model":        models.start,
		"sees":         models.sees,
		"offers":       models.offers,
		"images":       models.images,
		"sends":        models.sends,
		"sendsonce":    models.sendsOnce,
		"awaitrequest": models.await,
	})
	runScripts(t, "testdata/server", map[string]string{"COPILOT_LANGUAGE_SERVER": server}, commands)
}

// models are the scripts' clouds.
type models struct {
	mu sync.Mutex
	by map[*testscript.TestScript]*cloud.Cloud
}

func (m *models) of(ts *testscript.TestScript) *cloud.Cloud {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by[ts] == nil {
		ts.Fatalf("the script has no model, want a line model FILE before this one")
	}
	return m.by[ts]
}

// turn is one line of a model's file: what it answers to its next request.
type turn struct {
	Text   string          `json:"text"`
	Thinks string          `json:"thinks"` // its reasoning
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Status int             `json:"status"`
	Await  string          `json:"await"` // a file that must be there first
	Pause  string          `json:"pause"` // a file that must be there before the second word
	Until  string          `json:"until"` // again and again, until this tool is offered
	Gone   string          `json:"gone"`  // likewise, until this tool is not
	For    string          `json:"for"`   // the line is only for prompts with this text
}

// over reports whether a request has what a line waits for.
func (t turn) over(r *scriptmodel.Request) bool {
	return t.Until != "" && r.HasTool(t.Until) || t.Gone != "" && !r.HasTool(t.Gone)
}

// model FILE: starts a cloud whose model answers with the file's lines, one a
// request, the last one for ever.
func (m *models) start(ts *testscript.TestScript, _ bool, args []string) {
	var turns []turn
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "$WORK", ts.Getenv("WORK"))
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		var t turn
		ts.Check(json.Unmarshal(lines.Bytes(), &t))
		turns = append(turns, t)
	}
	play := player{turns: turns}
	c, err := cloud.Start(func(r *scriptmodel.Request) scriptmodel.Reply {
		t := play.next(r)
		p := scriptmodel.Reply{Text: t.Text, Reasoning: t.Thinks, Status: t.Status,
			Gate: appears(ts, r, t.Await), Pause: appears(ts, r, t.Pause)}
		if t.Tool != "" {
			p.ToolCalls = []scriptmodel.ToolCall{{Name: t.Tool, Args: string(t.Args)}}
		}
		return p
	})
	ts.Check(err)
	c.SetCompletion("main() { completed() }")
	ts.Defer(c.Close)
	m.mu.Lock()
	m.by[ts] = c
	m.mu.Unlock()
	ts.Setenv("PROXY", c.Proxy)
	for name, value := range c.Env() {
		ts.Setenv(name, value)
	}
}

// player chooses the lines that answer a model's requests.
type player struct {
	mu    sync.Mutex // guards turns, those that are left
	turns []turn
}

// next returns the line for a request. The last one, or the last one for a text, stays.
func (p *player) next(r *scriptmodel.Request) turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turns[0].For != "" {
		return p.nextFor(cloud.Prompt(r))
	}
	for len(p.turns) > 1 && p.turns[0].over(r) {
		p.turns = p.turns[1:]
	}
	t := p.turns[0]
	if t.Until+t.Gone == "" && len(p.turns) > 1 {
		p.turns = p.turns[1:]
	}
	return t
}

// nextFor is next for lines that are for certain prompts.
func (p *player) nextFor(prompt string) turn {
	fits := func(t turn) bool { return strings.Contains(prompt, t.For) }
	at := slices.IndexFunc(p.turns, fits)
	if at < 0 {
		return turn{Status: http.StatusBadRequest, Text: "no line is for this prompt"}
	}
	t := p.turns[at]
	if slices.ContainsFunc(p.turns[at+1:], func(o turn) bool { return o.For == t.For }) {
		p.turns = slices.Delete(p.turns, at, at+1)
	}
	return t
}

// appears is closed when a file is there; nil for none.
func appears(ts *testscript.TestScript, r *scriptmodel.Request, file string) <-chan struct{} {
	if file == "" {
		return nil
	}
	path, there := ts.MkAbs(file), make(chan struct{})
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if _, err := os.Stat(path); err == nil {
				close(there)
				return
			}
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
	}()
	return there
}

func (m *models) request(ts *testscript.TestScript, n string) *scriptmodel.Request {
	i, err := strconv.Atoi(n)
	ts.Check(err)
	all := m.of(ts).Requests()
	if i < 1 || i > len(all) {
		ts.Fatalf("the model got %d requests, want a request %d", len(all), i)
	}
	return all[i-1]
}

// sees N REGEXP: the model's Nth request holds a match.
func (m *models) sees(ts *testscript.TestScript, neg bool, args []string) {
	r := m.request(ts, args[0])
	var text strings.Builder
	for _, message := range r.Messages {
		text.WriteString(message.Role + ": " + message.Text + "\n")
	}
	if regexp.MustCompile("(?m)"+args[1]).MatchString(text.String()) == neg {
		ts.Fatalf("request %s has the messages\n%s\nwant a match of %s: %v", args[0], text.String(),
			args[1], !neg)
	}
}

// sends N REGEXP: the body of the model's Nth request holds a match.
func (m *models) sends(ts *testscript.TestScript, neg bool, args []string) {
	body := m.request(ts, args[0]).Body
	if regexp.MustCompile(args[1]).Match(body) == neg {
		ts.Fatalf("request %s has the body\n%s\nwant a match of %s: %v", args[0], body, args[1],
			!neg)
	}
}

// sendsonce N TEXT: the body of the model's Nth request holds the text once.
func (m *models) sendsOnce(ts *testscript.TestScript, _ bool, args []string) {
	body := string(m.request(ts, args[0]).Body)
	if n := strings.Count(body, args[1]); n != 1 {
		ts.Fatalf("request %s has %q %d times, want once:\n%s", args[0], args[1], n, body)
	}
}

// images N URL: the last image in the model's Nth request has that URL.
func (m *models) images(ts *testscript.TestScript, _ bool, args []string) {
	var last string
	for _, message := range m.request(ts, args[0]).Messages {
		for _, url := range message.Images {
			last = url
		}
	}
	if last != args[1] {
		ts.Fatalf("got the image %q, want %q", last, args[1])
	}
}

// offers N TOOL...: the model's Nth request offers the tools.
func (m *models) offers(ts *testscript.TestScript, neg bool, args []string) {
	r := m.request(ts, args[0])
	for _, name := range args[1:] {
		if r.HasTool(name) == neg {
			ts.Fatalf("request %s offers %q, want %s among them: %v", args[0], r.ToolNames(), name,
				!neg)
		}
	}
}

// awaitrequest N: the model gets its Nth request.
func (m *models) await(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	c := m.of(ts)
	until(ts, "model request "+args[0], func() bool { return len(c.Requests()) >= n })
}
