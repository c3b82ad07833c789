package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"tapgw/internal/protocol"
	"tapgw/testdata/sdk"
)

// scenarioTokens are those that the gateway of a scenario knows: the sample's, and the one that
// pairing gives.
var scenarioTokens = []string{"ptk-1", "ext-tok-1"}

// Program is a provider that runs, as a process or within a test.
type Program struct {
	Stop func()       // asks it to end, as SIGTERM does; does not wait
	Kill func()       // ends it at once and waits for its end
	Done <-chan error // gets how it ended, once: nil for exit code 0
}

// StartSample starts a sample of an SDK, as testdata/sdk/README.md describes it, with a gateway's
// URL and a token.
type StartSample func(name, url, token string) (Program, error)

// Scenario is a file of testdata/sdk; README.md there explains the format.
type Scenario struct {
	Name   string `json:"-"`
	About  string
	Sample string
	Steps  []step
}

// step is one step of a scenario. One field is set.
type step struct {
	Connect bool
	Bind    string
	Send    json.RawMessage
	Text    *string
	Bytes   []byte
	Want    json.RawMessage
	Cut     bool
	Close   int
	Closed  bool
	Stop    bool
	Ended   string
}

// Scenarios returns the scenarios that every SDK plays, by name. The error names the file that is
// not one.
func Scenarios() ([]Scenario, error) {
	files, err := fs.Glob(sdk.Scenarios, "*.json")
	if err != nil {
		return nil, err
	}
	var all []Scenario
	for _, file := range files {
		text, err := fs.ReadFile(sdk.Scenarios, file)
		if err != nil {
			return nil, err
		}
		s := Scenario{Name: strings.TrimSuffix(path.Base(file), ".json")}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&s); err != nil {
			return nil, fmt.Errorf("reading the scenario %s: %w", file, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// rule is the scenario as a rule.
func (s *Scenario) rule() Rule {
	return Rule{
		ID:      "sdk." + s.Name,
		Title:   strings.TrimSuffix(s.About, "."),
		Section: "testdata/sdk/" + s.Name + ".json",
		Kind:    Must,
	}
}

// Play plays the scenario with a sample. The error names the step that failed, and the message that
// it wanted.
func (s *Scenario) Play(ctx context.Context, start StartSample) error {
	dir, err := os.MkdirTemp("", "scenario-*")
	if err != nil {
		return fmt.Errorf("making a directory for files: %w", err)
	}
	defer os.RemoveAll(dir)
	listener, err := listenTCP(anyPort)
	if err != nil {
		return err
	}
	g := newStage(listener, scenarioTokens, nil)
	defer g.close()
	p := &player{ctx: ctx, stage: g, vars: map[string]string{"token": scenarioTokens[0],
		"dir": dir}}
	if p.program, err = start(s.Sample, g.url, scenarioTokens[0]); err != nil {
		return err
	}
	defer p.program.Kill()
	for i, step := range s.Steps {
		if err := p.play(step); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// player plays the gateway of a scenario.
type player struct {
	ctx     context.Context
	stage   *stage
	link    *providerConn
	vars    map[string]string
	program Program
	end     *error // how the program ended; nil while it runs
}

func (p *player) play(s step) error {
	if p.link == nil && !s.Connect && s.Bind == "" && s.Ended == "" && !s.Stop {
		return fmt.Errorf("no connection yet: the scenario needs a step connect or bind first")
	}
	switch {
	case s.Connect:
		return p.accept()
	case s.Bind != "":
		return p.bind(s.Bind)
	case s.Send != nil:
		p.link.send([]byte(p.fill(s.Send)))
	case s.Text != nil:
		p.link.send([]byte(*s.Text))
	case s.Bytes != nil:
		p.link.sendBytes(s.Bytes)
	case s.Want != nil:
		return p.want(s.Want)
	case s.Cut:
		p.link.cut()
	case s.Close != 0:
		p.link.close(protocol.CloseCode(s.Close))
	case s.Closed:
		return p.closed()
	case s.Stop:
		p.program.Stop()
	case s.Ended != "":
		return p.ended(s.Ended == "ok")
	}
	return nil
}

// accept waits for the sample's next connection.
func (p *player) accept() error {
	select {
	case p.link = <-p.stage.links:
		return nil
	case err := <-p.program.Done:
		p.end = &err
		return fmt.Errorf("the sample ended with %w, want a connection", orNoError(err))
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-time.After(startPatience):
		return fmt.Errorf("no connection in %v, want one", startPatience)
	}
}

// bind takes the sample to a session.
func (p *player) bind(session string) error {
	if err := p.accept(); err != nil {
		return err
	}
	take := func(typ protocol.Type) error {
		got, err := p.next()
		if err == nil && got["type"] != string(typ) {
			err = fmt.Errorf("got %s", encode(got))
		}
		if err != nil {
			return fmt.Errorf("%w, want %s", err, typ)
		}
		return nil
	}
	if err := take(protocol.TypeAuth); err != nil {
		return err
	}
	p.link.sendObject(object{"type": "sessions", "active": []object{
		{"id": session, "label": "the " + session, "cwd": "/" + session},
	}})
	if err := take(protocol.TypeHello); err != nil {
		return err
	}
	p.link.sendObject(object{"type": "hello.ack", "protocolVersion": 2, "providerId": "p-1",
		"sessionId": session, "reconnectToken": "rt-1", "persistDir": p.vars["dir"]})
	return nil
}

// closed waits until the sample has closed the connection.
func (p *player) closed() error {
	select {
	case f, ok := <-p.link.frames:
		if ok {
			return fmt.Errorf("got %.600s, want the connection to end", f.data)
		}
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	case <-time.After(patience):
		return fmt.Errorf("the connection is still open after %v, want it closed", patience)
	}
}

// ended waits for the sample's end.
func (p *player) ended(well bool) error {
	if p.end == nil {
		select {
		case err := <-p.program.Done:
			p.end = &err
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case <-time.After(patience):
			return fmt.Errorf("the sample still ran after %v, want its end", patience)
		}
	}
	if (*p.end == nil) != well {
		return fmt.Errorf("the sample ended with %w, want an error: %v", orNoError(*p.end), !well)
	}
	return nil
}

// errNone stands for the end of a program without an error.
var errNone = errors.New("exit code 0")

func orNoError(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

var variable = regexp.MustCompile(`\$[a-z]+[0-9]*`)

// fill puts the values of the known variables into JSON.
func (p *player) fill(text []byte) string {
	return variable.ReplaceAllStringFunc(string(text), func(name string) string {
		if v, ok := p.vars[name[1:]]; ok {
			quoted := encode(v)
			return string(quoted[1 : len(quoted)-1])
		}
		return name
	})
}

// want takes one message, or as many as the list has in any order.
func (p *player) want(text json.RawMessage) error {
	var list []json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		list = []json.RawMessage{text}
	}
	for range len(list) {
		got, err := p.next()
		if err != nil {
			return fmt.Errorf("%w, want %s", err, list)
		}
		i := slices.IndexFunc(list, func(want json.RawMessage) bool {
			var w any
			found := map[string]string{}
			if json.Unmarshal([]byte(p.fill(want)), &w) != nil || !matches(w, any(got), found) {
				return false
			}
			maps.Copy(p.vars, found)
			return true
		})
		if i < 0 {
			return fmt.Errorf("got %.600s, want %s", encode(got), list)
		}
		list = slices.Delete(list, i, i+1)
	}
	return nil
}

// next takes the next message. Messages that a sample sent before its end still count.
func (p *player) next() (object, error) {
	for {
		done := p.program.Done
		if p.end != nil {
			done = nil
		}
		select {
		case f, ok := <-p.link.frames:
			switch {
			case !ok && p.end != nil:
				return nil, fmt.Errorf("the sample ended with %w", orNoError(*p.end))
			case !ok:
				return nil, fmt.Errorf("the connection ended")
			case f.object == nil:
				return nil, fmt.Errorf("got %.600q, which is no JSON object", f.data)
			}
			return f.object, nil
		case err := <-done:
			p.end = &err
		case <-p.ctx.Done():
			return nil, context.Cause(p.ctx)
		case <-time.After(patience):
			return nil, fmt.Errorf("nothing came in %v", patience)
		}
	}
}

// encode returns a value of the kit as JSON.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// matches compares a message with a pattern. found gets the values of new variables.
func matches(want, got any, found map[string]string) bool {
	switch w := want.(type) {
	case string:
		if w == "*" || w == "?" {
			return true
		}
		text, ok := got.(string)
		if ok && strings.HasPrefix(w, "$") && variable.FindString(w) == w {
			found[w[1:]] = text
			return true
		}
		return ok && w == text
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(w, g, func(w, g any) bool { return matches(w, g, found) })
	case object:
		g, ok := got.(object)
		if !ok {
			return false
		}
		for key := range g {
			if _, wanted := w[key]; !wanted {
				return false
			}
		}
		for key, w := range w {
			if value, there := g[key]; there && !matches(w, value, found) || !there && w != "?" {
				return false
			}
		}
		return true
	}
	return want == got
}
