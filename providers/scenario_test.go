package providers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// scenario is a file of testdata/sdk; its README.md explains the format.
type scenario struct {
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

// startSample starts a sample of an SDK. stop makes it end; done gets the error of its end.
type startSample func(t *testing.T, name, url, token string) (stop func(), done <-chan error)

// TestScenarios plays the scenarios with the samples in Go.
func TestScenarios(t *testing.T) {
	playAll(t, func(t *testing.T, name, url, token string) (func(), <-chan error) {
		p, before := sample(name, url, token)
		ctx, cancel := context.WithCancel(context.Background())
		done, returned := make(chan error, 1), make(chan struct{})
		go func() {
			defer close(returned)
			err := before(ctx)
			if err == nil {
				err = p.Run(ctx)
			}
			done <- err
		}()
		t.Cleanup(func() { cancel(); <-returned })
		return cancel, done
	})
}

// playAll plays each scenario with the samples of one SDK.
func playAll(t *testing.T, start startSample) {
	files, err := filepath.Glob(filepath.Join("..", "testdata", "sdk", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the scenarios: %d files, %v, want some", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dec := json.NewDecoder(bytes.NewReader(text))
			dec.DisallowUnknownFields()
			var s scenario
			if err := dec.Decode(&s); err != nil {
				t.Fatalf("reading %s: %v", file, err)
			}
			s.play(t, start)
		})
	}
}

// player plays the gateway of a scenario.
type player struct {
	t    *testing.T
	g    *gateway
	peer *peer
	vars map[string]string
	stop func()
	done <-chan error
}

func (s *scenario) play(t *testing.T, start startSample) {
	p := &player{t: t, g: newGateway(t), vars: map[string]string{"token": "ptk-1", "dir": t.TempDir()}}
	p.stop, p.done = start(t, s.Sample, p.g.url, "ptk-1")
	for i, step := range s.Steps {
		if err := p.play(step); err != nil {
			t.Fatalf("step %d: %v", i+1, err)
		}
	}
}

func (p *player) play(s step) error {
	switch {
	case s.Connect:
		p.peer = p.g.accept()
	case s.Bind != "":
		p.bind(s.Bind)
	case s.Send != nil:
		p.peer.send(p.fill(s.Send))
	case s.Text != nil:
		p.peer.send(*s.Text)
	case s.Bytes != nil:
		return p.peer.ws.Write(p.peer.ctx, websocket.MessageBinary, s.Bytes)
	case s.Want != nil:
		return p.want(s.Want)
	case s.Cut:
		p.peer.cut()
	case s.Close != 0:
		_ = p.peer.ws.Close(websocket.StatusCode(s.Close), "")
	case s.Closed:
		p.peer.closed()
	case s.Stop:
		p.stop()
	case s.Ended != "":
		select {
		case err := <-p.done:
			if (err == nil) != (s.Ended == "ok") {
				return fmt.Errorf("the sample ended with %w, want %s", err, s.Ended)
			}
		case <-time.After(patience):
			return fmt.Errorf("the sample still ran after %v, want it to end: %s", patience, s.Ended)
		}
	}
	return nil
}

// bind takes the sample to a session.
func (p *player) bind(session string) {
	p.peer = p.g.accept()
	p.peer.next("auth")
	p.peer.list("sessions", session)
	p.peer.next("hello")
	ack, err := json.Marshal(
		object{"type": "hello.ack", "protocolVersion": 2, "providerId": "p-1", "sessionId": session,
			"reconnectToken": "rt-1", "persistDir": p.vars["dir"]},
	)
	if err != nil {
		p.t.Fatal(err)
	}
	p.peer.send(string(ack))
}

var variable = regexp.MustCompile(`\$[a-z]+[0-9]*`)

// fill puts the values of the known variables into JSON.
func (p *player) fill(text []byte) string {
	return variable.ReplaceAllStringFunc(string(text), func(name string) string {
		if v, ok := p.vars[name[1:]]; ok {
			quoted, _ := json.Marshal(v)
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
			text, _ := json.Marshal(got)
			return fmt.Errorf("got %.600s, want %s", text, list)
		}
		list = slices.Delete(list, i, i+1)
	}
	return nil
}

func (p *player) next() (object, error) {
	select {
	case m, ok := <-p.peer.msgs:
		if !ok {
			return nil, fmt.Errorf("the connection ended")
		}
		return m, nil
	case err := <-p.done:
		return nil, fmt.Errorf("the sample ended with %w", err)
	case <-time.After(patience):
		return nil, fmt.Errorf("nothing came in %v", patience)
	}
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
