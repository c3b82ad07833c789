package server_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
)

// stage is a gateway with everything around it.
type stage struct {
	t         *testing.T
	transport string
	gateway   *gateway.Gateway
	server    *server.Server
	pipes     *pipeListener
	names     *names
	elsewhere *elsewhere // the gateway that providers connect to, with the transport twoGateways

	mu      sync.Mutex
	outputs map[string][]string // by who they came to
	read    map[string]uint64   // of each session's timeline
	conns   map[string]sender
	hosts   map[string]*scriptedHost
	calls   map[string]context.CancelFunc
	serving sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
}

func newStage(t *testing.T, over string) *stage {
	s := &stage{
		t:         t,
		transport: over,
		names:     newNames(),
		outputs:   map[string][]string{},
		read:      map[string]uint64{},
		conns:     map[string]sender{},
		hosts:     map[string]*scriptedHost{},
		calls:     map[string]context.CancelFunc{},
		pipes:     newPipeListener(),
	}
	s.ctx, s.cancel = context.WithCancel(t.Context())
	s.gateway = gateway.New(
		gateway.Options{
			PersistDir: func(name string) (string, error) { return persistDir(name), nil },
			ReadFile:   readFile,
		},
	)
	s.names.set("instance", s.gateway.InstanceToken())
	s.names.set("admin", s.gateway.AdminToken())
	if over == twoGateways {
		s.elsewhere = newElsewhere(s)
	}
	s.server = server.New(server.Options{Gateway: s.gateway, Version: "test"})
	s.server.Use(s.pipes)
	s.serving.Go(func() {
		if err := s.server.Serve(); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return s
}

func persistDir(name string) string { return "/home/u/.copilot/providers/" + name + "/" }

// readFile stands in for the file system: every file in a provider's directory is
// there and says so.
func readFile(name string, ref protocol.FileRef) (*gateway.File, error) {
	rest, ok := strings.CutPrefix(ref.Path, persistDir(name))
	if !ok {
		return nil, errors.New("the path is not inside the provider's persistDir")
	}
	return &gateway.File{Name: rest, MimeType: ref.MimeType, Content: []byte("this is " + rest)},
		nil
}

func (s *stage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, c := range s.conns {
		c.hangUp()
	}
	if s.elsewhere != nil {
		defer s.elsewhere.close(ctx)
	}
	if err := s.server.Shutdown(ctx); err != nil {
		s.t.Errorf("shutting down: %v", err)
	}
	s.cancel()
	s.serving.Wait()
}

func (s *stage) emit(who, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outputs[who] = append(s.outputs[who], what)
}

// collect returns what came since, by who it came to, in the order it came.
func (s *stage) collect() []string {
	for _, q := range s.gateway.Questions() {
		s.names.setQuestion(q.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, who := range slices.Sorted(maps.Keys(s.outputs)) {
		for _, o := range s.outputs[who] {
			all = append(all, s.names.hide(o))
		}
	}
	s.outputs = map[string][]string{}
	return all
}

func (s *stage) do(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	if name, ok := strings.CutSuffix(word, ">"); ok && s.conns[name] != nil {
		s.conns[name].send([]byte(s.names.reveal(rest)))
		return nil
	}
	if name, verb, ok := strings.Cut(word, ">"); ok {
		return s.sendSpecial(s.conns[name], verb, rest)
	}
	args := strings.Fields(rest)
	switch word {
	case "session":
		return s.session(args)
	case "connect":
		return s.connect(args[0], slices.Contains(args, "foreign"))
	case "connecthost":
		return s.dial(args[0], "/host", nil)
	case "call":
		return s.call(rest, 0)
	case "callfor":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		return s.call(strings.TrimPrefix(rest, args[0]+" "), d)
	case "stop":
		s.emit("stopped", fmt.Sprintf("stopped: %d", s.gateway.StopProvider(args[0])))
		return nil
	case "drain":
		go s.gateway.Drain(s.ctx)
		return nil
	case "providers":
		for _, p := range s.gateway.Providers() {
			s.emit(
				"providers",
				fmt.Sprintf("providers: %s %s %s session=%q tools=%d inFlight=%d", p.ID, p.Name,
					p.State, p.Session, p.Tools, p.InFlight),
			)
		}
		return nil
	case "cancel":
		s.calls[args[0]]()
		return nil
	case "wait":
		d, err := time.ParseDuration(args[0])
		<-time.After(d) // on the bubble's clock
		return err
	case "spawn":
		s.names.set("spawn", s.gateway.IssueSpawnToken(args[0]))
		return nil
	}
	if known, err := s.doV2(word, args, rest); known {
		return err
	}
	return s.onSession(word, args, rest)
}

func (s *stage) onSession(verb string, args []string, rest string) error {
	session, ok := s.gateway.Session(args[0])
	if !ok {
		return fmt.Errorf("no session %s", args[0])
	}
	_, text, _ := strings.Cut(rest, " ")
	text = s.names.reveal(text)
	switch verb {
	case "end":
		go func() { _ = session.Stop(s.ctx, "the script ended it") }()
	case "interrupt":
		go func() {
			if _, err := session.Interrupt(s.ctx, "the script said so"); err != nil {
				s.emit(args[0], fmt.Sprintf("%s: interrupt failed: %v", args[0], err))
			}
		}()
	case "idle":
		session.Idle()
	case "busy":
		session.Busy()
	case "foreground":
		return s.gateway.SetForeground(args[0])
	case "relabel":
		session.Update(text, "")
	case "timeline":
		lines, next := session.Timeline(s.read[args[0]])
		s.read[args[0]] = next
		for _, l := range lines {
			s.emit(args[0], fmt.Sprintf("%s: timeline %s %s: %.300s", args[0], l.Level, l.Source,
				l.Message))
		}
	case "history":
		s.history(session, args[1:])
	case "pretool":
		tool, input, _ := strings.Cut(text, " ")
		go func() {
			d := session.PreToolUse(s.ctx, tool, protocol.Raw(input))
			s.emit(args[0], fmt.Sprintf("%s: deny=%v reason=%q context=%q", args[0], d.Deny,
				d.Reason, d.Context))
		}()
	case "userprompt":
		s.emit(args[0],
			fmt.Sprintf("%s: adds %q", args[0], session.UserPrompt(s.ctx, "hello", text)))
	case "transform":
		var sections map[string]string
		if err := json.Unmarshal([]byte(text), &sections); err != nil {
			return err
		}
		go func() {
			changed, _ := json.Marshal(session.Transform(s.ctx, sections))
			s.emit(args[0], fmt.Sprintf("%s: transformed %s", args[0], changed))
		}()
	case "prompt":
		go func() {
			if _, err := session.Prompt(s.ctx, gateway.Prompt{Text: text}); err != nil {
				s.emit(args[0], fmt.Sprintf("%s: prompt failed: %v", args[0], err))
			}
		}()
	case "push":
		var p protocol.Push
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		go func() {
			r, err := session.Push(s.ctx, "tapctl", &p)
			if err != nil {
				s.emit(args[0], fmt.Sprintf("%s: push refused: %v", args[0], err))
				return
			}
			s.emit(args[0], fmt.Sprintf("%s: push %d %s %s", args[0], r.Seq, r.Fate, r.Reason))
		}()
	default:
		return fmt.Errorf("unknown verb %q", verb)
	}
	return nil
}

// history writes the newest and the oldest of a session's events.
func (s *stage) history(session *gateway.Session, streams []string) {
	rows := session.History(streams, 0, time.Time{})
	s.emit(session.ID(), fmt.Sprintf("%s: history of %d", session.ID(), len(rows)))
	for i, r := range rows {
		if i >= 3 && i < len(rows)-1 {
			continue
		}
		line := fmt.Sprintf("%s: history %d %s@%s %s %.100q", session.ID(), r.Seq, r.Stream,
			r.Provider, r.Level, r.Event)
		if r.Prompt != "" {
			line += fmt.Sprintf(" prompt=%q", r.Prompt)
		}
		if r.Metadata != nil {
			line += fmt.Sprintf(" metadata=%s", r.Metadata)
		}
		s.emit(session.ID(), line)
	}
}

func (s *stage) sendSpecial(c sender, verb, rest string) error {
	if c == nil {
		return errors.New("no such connection")
	}
	switch verb {
	case "binary":
		c.binary([]byte(s.names.reveal(rest)))
	case "close":
		c.hangUp()
	case "hex":
		text, err := hex.DecodeString(rest)
		if err != nil {
			return err
		}
		c.send(text)
	case "pad":
		size, text, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(size)
		if err != nil {
			return err
		}
		before, after, ok := strings.Cut(s.names.reveal(text), "$pad")
		if !ok {
			return errors.New("no $pad")
		}
		c.send([]byte(before + strings.Repeat("x", n-len(before)-len(after)) + after))
	default:
		return fmt.Errorf("unknown way to send %q", verb)
	}
	return nil
}

func (s *stage) call(rest string, timeout time.Duration) error {
	parts := strings.SplitN(rest, " ", 4)
	session, ok := s.gateway.Session(parts[1])
	if !ok {
		return fmt.Errorf("no session %s", parts[1])
	}
	c := gateway.Call{Name: parts[2], Timeout: timeout}
	if len(parts) == 4 {
		c.Args = protocol.Raw(s.names.reveal(parts[3]))
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.calls[parts[0]] = cancel
	go func() {
		o := session.CallTool(ctx, c)
		s.emit(parts[0], fmt.Sprintf("%s= %s after %s", parts[0], outcomeText(o), o.Duration))
	}()
	return nil
}

// outcomeText writes an outcome on one line.
func outcomeText(o gateway.Outcome) string {
	switch {
	case o.Failed():
		line := fmt.Sprintf("%s %q", o.ErrorCode, o.Error)
		if o.Retryable {
			line += " retryable"
		}
		return line
	case o.Content != nil:
		return fmt.Sprintf("parts %q data %s", o.Text(), o.Data)
	case o.File != nil:
		return fmt.Sprintf("file %s %q", o.File, o.File.Content)
	case len(o.Data) > 400:
		return fmt.Sprintf("%d bytes", len(o.Data))
	}
	return string(o.Data)
}

func (s *stage) session(args []string) error {
	h := &scriptedHost{stage: s, id: args[0]}
	spec := gateway.SessionSpec{ID: args[0], Label: "label of " + args[0], CWD: "/code/" + args[0]}
	info := gateway.HostInfo{Kind: "scripted", Send: true, Log: true, Interrupt: true}
	for _, a := range args[1:] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "label":
			spec.Label = value
		case "cwd":
			spec.CWD = value
		case "no-send":
			info.Send = false
		case "no-log":
			info.Log = false
		case "no-interrupt":
			info.Interrupt = false
		case "hooks":
			info.Hooks = true
		case "live":
			info.LiveTools = true
		default:
			if !sessionWord(key, value, &info) {
				return fmt.Errorf("unknown word %q", a)
			}
		}
	}
	_, err := s.gateway.Register(spec, info, h)
	return err
}

// scriptedHost writes down what the gateway tells it.
type scriptedHost struct {
	stage *stage
	id    string
}

func (h *scriptedHost) say(format string, args ...any) {
	h.stage.emit(h.id, h.id+": "+fmt.Sprintf(format, args...))
}

func (h *scriptedHost) SetTools(_ context.Context, revision uint64, tools []gateway.Tool) error {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	if n := len(names); n > 8 {
		names = []string{names[0], names[1], "…", names[n-1], fmt.Sprintf("(%d)", n)}
	}
	h.say("tools %d %v", revision, names)
	return nil
}

func (h *scriptedHost) Send(_ context.Context, p gateway.Prompt) error {
	h.say("send %q mode=%s source=%s", p.Text, p.Mode, p.Source)
	return nil
}

func (h *scriptedHost) Log(level adminapi.LogLevel, message string) {
	h.say("log %s %q", level, message)
}

func (h *scriptedHost) Interrupt(_ context.Context, reason string) ([]string, error) {
	// A part of its own: the questions of the session end at the same moment, each on its
	// goroutine.
	h.stage.emit(h.id+" interrupt", fmt.Sprintf("%s: interrupt %q", h.id, reason))
	return nil, nil
}

func (h *scriptedHost) Close(_ context.Context, reason string) error {
	h.say("close %q", reason)
	return nil
}
