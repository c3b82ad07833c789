package server_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
)

var update = server.Update

// The wire corpus: testdata/wire/*.txtar, each a conversation. The comment is
// prose; the file "script" holds what is done, a line each, and under each line
// what came of it:
//
//	session ID [label=L] [cwd=D] [no-send] [no-log] [no-interrupt] [hooks] [live]
//	                              a session begins
//	end ID | interrupt ID | idle ID | busy ID | foreground ID
//	relabel ID LABEL              its label changes
//	spawn ID                      a token for that session: $spawn
//	connect NAME [foreign]        a provider connects
//	join NAME SESSION [TOOL[:TIMEOUT]…]   a provider connects and binds; of what it
//	                              hears only the ack is written
//	connecthost NAME              a session host connects (WebSocket only)
//	NAME> TEXT                    it sends TEXT; $names stand for earlier values,
//	                              $tools(N) for N tools, $x(N) for N letters
//	NAME>pad N TEXT               it sends TEXT, N bytes long: $pad is as long as it takes
//	NAME>hex DIGITS               it sends these bytes as text
//	NAME>binary [TEXT]            it sends a binary frame: the text, or what is no UTF-8
//	NAME>close                    its connection is gone
//	call ID SESSION TOOL [JSON]   the session calls a tool
//	callfor DURATION ID SESSION TOOL [JSON]   and waits so long at most
//	cancel ID                     and gives it up
//	pretool SESSION TOOL [JSON]   the session asks before one of its own calls
//	userprompt SESSION SOURCE     the session asks what to add to a prompt
//	transform SESSION JSON        the session asks for its system prompt
//	push SESSION JSON             somebody pushes on the admin side
//	prompt SESSION TEXT           the user prompts
//	timeline SESSION              what its timeline got since last asked
//	history SESSION [STREAM…]     what its streams hold
//	providers                     who is connected
//	stop NAME                     the user stops a provider
//	drain                         the gateway ends everything
//	wait DURATION                 time passes
//	times N [every DURATION] LINE the line, N times, $n being the number
//
// and comes of it: "NAME< JSON", "NAME<close CODE REASON", "ID= JSON" for the
// outcome of a call, "SESSION: …" for what its host was told, "(×N)" behind what
// came N times in a row. Values that differ from run to run are written as
// $names. Lines that begin with # are comments.
func TestWireCorpus(t *testing.T) {
	files, err := filepath.Glob("../../testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no corpus: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		script := archive.Files[0]
		for _, over := range []string{"in-process", "local", "websocket"} {
			if over != "websocket" && strings.Contains("\n"+string(script.Data), "\nconnecthost ") {
				continue
			}
			if over == "local" && strings.Contains(string(script.Data), "# text only\n") {
				continue // about what a message as it is can't hold
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+over, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					got := play(t, over, string(script.Data))
					if *update && over == "websocket" {
						archive.Files[0].Data = []byte(got)
						if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
							t.Fatal(err)
						}
						return
					}
					if diff := cmp.Diff(string(script.Data), got); diff != "" && !*update {
						t.Errorf("%s (-want +got); run with -update and review if it is right:\n%s", file, diff)
					}
				})
			})
		}
	}
}

// play runs a script and returns it with what came of each line.
func play(t *testing.T, over, script string) string {
	s := newStage(t, over)
	defer s.close()
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if isOutput(line) {
			continue
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var came []string
		for _, step := range unrolled(t, line) {
			if err := s.do(step); err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			synctest.Wait()
			came = append(came, s.collect()...)
		}
		if strings.HasPrefix(line, "join ") {
			came = slices.DeleteFunc(came, func(o string) bool { return !strings.Contains(o, `"hello.ack"`) })
		}
		out.WriteString(folded(came))
	}
	return out.String()
}

var repeated = regexp.MustCompile(`^times (\d+) (?:every (\S+) )?(.+)$`)

// unrolled is a line as the steps that it stands for.
func unrolled(t *testing.T, line string) []string {
	if rest, ok := strings.CutPrefix(line, "join "); ok {
		return joining(strings.Fields(rest))
	}
	m := repeated.FindStringSubmatch(line)
	if m == nil {
		return []string{line}
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for i := range n {
		if m[2] != "" && i > 0 {
			steps = append(steps, "wait "+m[2])
		}
		steps = append(steps, strings.ReplaceAll(m[3], "$n", strconv.Itoa(i+1)))
	}
	return steps
}

// joining is how a provider with some tools joins a session.
func joining(args []string) []string {
	tools := make([]string, 0, len(args))
	for _, a := range args[2:] {
		name, timeout, timed := strings.Cut(a, ":")
		if timed {
			timeout = `,"timeout":` + timeout
		}
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"d","parameters":{}%s}`, name, timeout))
	}
	return []string{
		"connect " + args[0],
		args[0] + `> {"type":"auth","token":"$instance"}`,
		fmt.Sprintf(`%s> {"type":"hello","name":%q,"protocolVersion":2,"session":%q,"tools":[%s]}`, args[0], args[0],
			args[1], strings.Join(tools, ",")),
	}
}

// folded writes lines, those that come again in a row only once.
func folded(lines []string) string {
	var out strings.Builder
	for i := 0; i < len(lines); {
		n := 1
		for i+n < len(lines) && lines[i+n] == lines[i] {
			n++
		}
		out.WriteString(lines[i])
		if n > 1 {
			fmt.Fprintf(&out, " (×%d)", n)
		}
		out.WriteString("\n")
		i += n
	}
	return out.String()
}

var outputLine = regexp.MustCompile(`^\S+(< |<close |= |: )`)

func isOutput(line string) bool { return outputLine.MatchString(line) }

// stage is a gateway with everything around it.
type stage struct {
	t       *testing.T
	over    string
	gateway *gateway.Gateway
	server  *server.Server
	pipes   *pipeListener
	names   *names

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

// sender is the provider's end of a connection.
type sender interface {
	send(text []byte)
	binary(text []byte) // none: what is no UTF-8
	hangUp()
}

func newStage(t *testing.T, over string) *stage {
	s := &stage{
		t:       t,
		over:    over,
		names:   newNames(),
		outputs: map[string][]string{},
		read:    map[string]uint64{},
		conns:   map[string]sender{},
		hosts:   map[string]*scriptedHost{},
		calls:   map[string]context.CancelFunc{},
		pipes:   newPipeListener(),
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
	return &gateway.File{Name: rest, MimeType: ref.MimeType, Content: []byte("this is " + rest)}, nil
}

func (s *stage) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, c := range s.conns {
		c.hangUp()
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
				fmt.Sprintf("providers: %s %s %s session=%q tools=%d inFlight=%d", p.ID, p.Name, p.State, p.Session,
					p.Tools, p.InFlight),
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
			s.emit(args[0], fmt.Sprintf("%s: timeline %s %s: %.300s", args[0], l.Level, l.Source, l.Message))
		}
	case "history":
		s.history(session, args[1:])
	case "pretool":
		tool, input, _ := strings.Cut(text, " ")
		go func() {
			d := session.PreToolUse(s.ctx, tool, protocol.Raw(input))
			s.emit(args[0], fmt.Sprintf("%s: deny=%v reason=%q context=%q", args[0], d.Deny, d.Reason, d.Context))
		}()
	case "userprompt":
		s.emit(args[0], fmt.Sprintf("%s: adds %q", args[0], session.UserPrompt(s.ctx, "hello", text)))
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
		line := fmt.Sprintf("%s: history %d %s@%s %s %.100q", session.ID(), r.Seq, r.Stream, r.Provider, r.Level,
			r.Event)
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
		s.emit(parts[0], fmt.Sprintf("%s= %s after %s", parts[0], told(o), o.Duration))
	}()
	return nil
}

// told is an outcome on one line.
func told(o gateway.Outcome) string {
	switch {
	case o.Failed():
		line := fmt.Sprintf("%s %q", o.ErrorCode, o.Error)
		if o.Retryable {
			line += " retryable"
		}
		return line
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
func (h *scriptedHost) Log(level gateway.LogLevel, message string) {
	h.say("log %s %q", level, message)
}
func (h *scriptedHost) Interrupt(_ context.Context, reason string) ([]string, error) {
	h.say("interrupt %q", reason)
	return nil, nil
}
func (h *scriptedHost) Close(_ context.Context, reason string) error {
	h.say("close %q", reason)
	return nil
}

func (s *stage) connect(name string, foreign bool) error {
	if s.over == "websocket" {
		var header http.Header
		if foreign {
			header = http.Header{"Origin": {"https://elsewhere.example"}}
		}
		return s.dial(name, "/", header)
	}
	p := &memoryPeer{stage: s, name: name, typed: s.over == "local"}
	p.conn = s.gateway.Connect(p, gateway.ConnOptions{ForeignOrigin: foreign})
	s.conns[name] = p
	return nil
}

// memoryPeer is a provider in this process: what the WebSocket does is left out.
type memoryPeer struct {
	stage *stage
	name  string
	conn  *gateway.Conn
	typed bool // messages are handed over as they are, not as text
	gone  atomic.Bool
}

func (p *memoryPeer) Send(m protocol.Message) {
	if !p.gone.Load() {
		p.stage.emit(p.name, p.name+"< "+string(protocol.Append(nil, m)))
	}
}
func (p *memoryPeer) Flush() {}
func (p *memoryPeer) Close(code protocol.CloseCode, reason string) {
	if p.gone.CompareAndSwap(false, true) {
		p.stage.emit(p.name, fmt.Sprintf("%s<close %d %s", p.name, code, reason))
	}
}
func (p *memoryPeer) send(text []byte) {
	switch {
	case p.gone.Load():
	case len(text) > protocol.MaxFrame:
		p.Close(protocol.CloseTooBig, "the frame is over 16 MiB")
		p.conn.Closed()
	case len(text) > protocol.MaxResult:
		p.conn.ReceiveOversized(text[:protocol.MaxResult], len(text))
	case p.typed && len(text) <= protocol.MaxMessage:
		f, err := protocol.Open(text)
		if err == nil {
			var m protocol.Message
			if m, err = f.Decode(); err == nil {
				p.conn.ReceiveMessage(m)
				return
			}
		}
		// What is no message can only be text.
		p.conn.Receive(text)
	default:
		p.conn.Receive(text)
	}
}
func (p *memoryPeer) binary(text []byte) {
	if len(text) > 0 {
		p.send(text)
		return
	}
	p.conn.ReceiveBinary()
}
func (p *memoryPeer) hangUp() {
	p.gone.Store(true)
	p.conn.Closed()
}

// dial connects over a real WebSocket.
func (s *stage) dial(name, path string, header http.Header) error {
	client := &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial, DisableKeepAlives: true}}
	ws, _, err := websocket.Dial(s.ctx, "ws://127.0.0.1"+path,
		&websocket.DialOptions{HTTPClient: client, HTTPHeader: header})
	if err != nil {
		return err
	}
	ws.SetReadLimit(-1)
	s.conns[name] = socketWriter{s, ws}
	s.serving.Go(func() {
		for {
			_, data, err := ws.Read(context.Background())
			if err != nil {
				if ce, ok := errors.AsType[websocket.CloseError](err); ok {
					s.emit(name, fmt.Sprintf("%s<close %d %s", name, ce.Code, ce.Reason))
				}
				_ = ws.CloseNow()
				return
			}
			s.emit(name, name+"< "+string(data))
		}
	})
	return nil
}

type socketWriter struct {
	stage *stage
	ws    *websocket.Conn
}

func (c socketWriter) send(text []byte) { _ = c.ws.Write(c.stage.ctx, websocket.MessageText, text) }
func (c socketWriter) hangUp()          { _ = c.ws.CloseNow() }
func (c socketWriter) binary(text []byte) {
	if len(text) == 0 {
		text = []byte{0xff, 2}
	}
	_ = c.ws.Write(c.stage.ctx, websocket.MessageBinary, text)
}

// names stand for values that differ from run to run.
type names struct {
	mu     sync.Mutex
	real   map[string]string // by name
	hidden map[string]string // by value
	count  map[string]int
}

func newNames() *names {
	return &names{real: map[string]string{}, hidden: map[string]string{}, count: map[string]int{}}
}

func (n *names) set(name, value string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.real[name], n.hidden[value] = value, "$"+name
}

var changing = regexp.MustCompile(
	`(tok|ptk|adm|ext-tok)-[0-9a-f]{32}|\bp-[0-9a-f]{8}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
)

var pairingCode = regexp.MustCompile(`Pairing code: (\d{6})`)

// hide names the changing values of a line.
func (n *names) hide(line string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := pairingCode.FindStringSubmatch(line); m != nil {
		n.real["code"] = m[1]
		line = strings.Replace(line, m[1], "$code", 1)
	}
	return changing.ReplaceAllStringFunc(line, func(value string) string {
		if name, ok := n.hidden[value]; ok {
			return name
		}
		kind := "id"
		switch {
		case strings.HasPrefix(value, "tok-"):
			kind = "tok"
		case strings.HasPrefix(value, "p-"):
			kind = "p"
		}
		n.count[kind]++
		name := kind + strconv.Itoa(n.count[kind])
		n.real[name], n.hidden[value] = value, "$"+name
		return "$" + name
	})
}

var (
	placeholder = regexp.MustCompile(`\$[a-z]+[0-9]*`)
	generated   = regexp.MustCompile(`\$(tools|rules|filters|sections|x)\((\d+)\)`)
)

func (n *names) reveal(text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = generated.ReplaceAllStringFunc(text, func(g string) string {
		m := generated.FindStringSubmatch(g)
		count, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "x":
			return strings.Repeat("x", count)
		case "rules":
			return denyRules(count)
		case "filters":
			return filterRules(count)
		case "sections":
			return sections(count)
		}
		tools := make([]string, count)
		for i := range tools {
			tools[i] = fmt.Sprintf(`{"name":"t%d","description":"d","parameters":{}}`, i+1)
		}
		return "[" + strings.Join(tools, ",") + "]"
	})
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := n.real[name[1:]]; ok {
			return value
		}
		return name
	})
}

// pipeListener accepts connections in memory, which a bubble's clock can wait for.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:9400" }
