package conformance

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// This file has the watched rules: the ledger judges every frame of the provider by the messages
// before it.

// callRecord is the kit's knowledge of a call, a gate check or a transform request, by its id.
type callRecord struct {
	link    *providerConn
	results int
	// For calls: it was cancelled after its result, or it was only cancelled and never made.
	cancelledLate, phantom bool
	// For calls: the call was cancelled before its result. The result then still counts, because it
	// may have crossed the cancel.
	cancelled, answered bool
	denyOnly            bool // for gate checks: only a denial is right
}

// talk is the state of one connection, as the protocol's section "States" has it.
type talk struct {
	messages int
	hello    bool // a hello came
	acked    bool
	goodbye  bool
	all      bool            // bound to all sessions
	sessions map[string]bool // bound to
	waiting  map[string]bool // request ids without an answer, and kinds of updates
	pushes   map[string][]time.Time
}

// ledger watches every frame of a provider. It knows which watched rules are broken, and which it
// has seen at work.
type ledger struct {
	persistDir string // fixed at creation

	mu        sync.Mutex // guards the fields that follow
	broken    map[string]*failure
	seen      map[string]int
	talks     map[*providerConn]*talk
	calls     map[string]*callRecord
	checks    map[string]*callRecord // gate checks and transform requests
	offer     offer
	questions map[string]*questionRecord // by id, of all that the provider was told of
	issued    string                     // the last reconnect token
	name      string                     // of the last hello of this process: name and instance
	// restoring has the connections on which a reconnect token came.
	restoring map[*providerConn]bool
}

// offer is a provider's present offer.
type offer struct {
	Tools       []protocol.Tool
	Rules       []protocol.Rule
	Callbacks   []string // sections with a transform of action callback
	Concurrency int      // how many calls may run at once; 0 for no limit
	Subscribe   []string // events
}

func newLedger(persistDir string) *ledger {
	return &ledger{persistDir: persistDir, broken: map[string]*failure{}, seen: map[string]int{},
		talks: map[*providerConn]*talk{}, calls: map[string]*callRecord{},
		checks:    map[string]*callRecord{},
		questions: map[string]*questionRecord{},
		restoring: map[*providerConn]bool{}}
}

// forget begins with a new process: it knows no reconnect token, and may have another name.
func (d *ledger) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.issued, d.name = "", ""
}

// note records that a watched rule was at work, and whether it holds. d.mu is held.
func (d *ledger) note(rule string, holds bool, got string, args ...any) {
	d.seen[rule]++
	if !holds && d.broken[rule] == nil {
		d.broken[rule] = &failure{got: fmt.Sprintf(got, args...)}
	}
}

// verdict returns how a watched rule broke, or nil, and whether it was seen at work.
func (d *ledger) verdict(rule string) (seen bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.broken[rule]; f != nil {
		return true, f
	}
	return d.seen[rule] > 0, nil
}

// current returns the provider's present offer.
func (d *ledger) current() offer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offer
}

// talk returns the state of a connection. d.mu is held.
func (d *ledger) talk(l *providerConn) *talk {
	t := d.talks[l]
	if t == nil {
		t = &talk{sessions: map[string]bool{}, waiting: map[string]bool{},
			pushes: map[string][]time.Time{}}
		d.talks[l] = t
	}
	return t
}

// heard judges a frame by the watched rules. It returns the message, or nil if the frame is not
// one.
func (d *ledger) heard(l *providerConn, f frame) protocol.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.talk(l)
	t.messages++
	d.note("frame.text", f.text, "a binary frame: %.200q", f.data)
	opened, fault := protocol.Open(f.data)
	d.note("frame.json", fault == nil, "%.200q: %v", f.data, messageOf(fault))
	if fault != nil {
		return nil
	}
	typ := opened.Type
	d.note("frame.type", typ.FromProvider(), "a message of type %q", string(typ))
	if !typ.FromProvider() {
		return nil
	}
	limit := protocol.MaxMessage
	if typ == protocol.TypeToolResult {
		limit = protocol.MaxResult
	}
	d.note("frame.size", len(f.data) <= limit, "a %s of %d bytes", typ, len(f.data))
	d.order(t, typ)
	m, fault := opened.Decode()
	d.fields(typ, fault)
	switch {
	case fault == nil:
		d.message(l, t, m)
	case typ == protocol.TypeToolResult && opened.CallID != "": // it answers its call all the same
		d.result(l, &protocol.ToolResult{ID: opened.CallID})
	}
	return m
}

func messageOf(fault *protocol.Error) string {
	if fault == nil {
		return ""
	}
	return fault.Message
}

// order judges when a message comes. d.mu is held.
func (d *ledger) order(t *talk, typ protocol.Type) {
	if t.messages == 1 {
		d.note("connect.auth", typ == protocol.TypeAuth, "%s came first", typ)
	} else if typ == protocol.TypeAuth {
		d.note("connect.auth", false, "another auth came on the connection, as message %d",
			t.messages)
	}
	if t.goodbye {
		d.note("stop.silent", false, "%s came after goodbye", typ)
	}
	switch typ {
	case protocol.TypeAuth, protocol.TypeAuthConfirm:
	case protocol.TypeGoodbye:
		t.goodbye = true
		d.note("stop.silent", true, "")
	case protocol.TypeHello:
		t.hello = true
	default:
		d.note("connect.bound-first", t.acked, "%s came before hello.ack", typ)
	}
}

// fieldRules are the rules about the fields of messages that have one of their own.
var fieldRules = map[protocol.Type]string{
	protocol.TypeHello: "hello.fields", protocol.TypeHooksUpdate: "hooks.fields",
	protocol.TypeToolsUpdate: "tool.fields", protocol.TypeToolResult: "result.fields",
	protocol.TypeGateResult: "gate.fields", protocol.TypeTransformResult: "transform.fields",
	protocol.TypePush: "push.fields",
}

// fields judges the fields of a message by the result of the protocol's own check. d.mu is held.
func (d *ledger) fields(typ protocol.Type, fault *protocol.Error) {
	rule, ok := fieldRules[typ]
	if !ok {
		rule = "frame.fields"
	}
	if fault == nil {
		d.note(rule, true, "")
		if typ == protocol.TypeHello {
			d.note("hello.version", true, "")
		}
		return
	}
	path, _, _ := strings.Cut(fault.Message, ":")
	path = strings.TrimPrefix(path, string(typ)+".")
	switch inTools := strings.HasPrefix(path, "tools"); {
	case inTools && strings.HasSuffix(path, ".name"):
		rule = "tool.names"
	case inTools && strings.Contains(path, ".parameters"):
		rule = "tool.schemas"
	case inTools:
		rule = "tool.fields"
	case strings.HasPrefix(path, "hooks."):
		rule = "hooks.fields"
	case path == "protocolVersion":
		rule = "hello.version"
	}
	d.note(rule, false, "%s", fault.Message)
}

// message judges the content of a message, and keeps its offer. d.mu is held.
func (d *ledger) message(l *providerConn, t *talk, m protocol.Message) {
	switch m := m.(type) {
	case *protocol.Auth:
		d.reconnectToken(l, m.ReconnectToken)
	case *protocol.Hello:
		d.hello(l, m)
	case *protocol.ToolResult:
		d.result(l, m)
	case *protocol.ToolProgress:
		call := d.calls[m.ID]
		d.note("progress.running", call != nil && !call.phantom && call.results == 0,
			"progress of the call %.64q, which does not run", m.ID)
	case *protocol.GateResult:
		d.check("gate.once", m.CallID)
		if c := d.checks[m.CallID]; c != nil && c.denyOnly {
			d.note("gate.unknown", m.Decision == protocol.DecisionDeny,
				"the decision %q for a gate that it does not have", m.Decision)
		}
	case *protocol.TransformResult:
		d.check("transform.once", m.CallID)
	case *protocol.Push:
		d.push(t, m)
		d.request(t, m.RequestID, "")
	case *protocol.ToolsUpdate:
		d.request(t, m.RequestID, "tools.update")
		if m.SessionID == "" {
			d.offer.Tools = updated(d.offer.Tools, m)
		}
		d.tools(m.Tools)
	case *protocol.HooksUpdate:
		d.request(t, m.RequestID, "hooks.update")
		if m.OnPreToolUse != nil {
			d.offer.Rules = m.OnPreToolUse
		}
		d.hooks(m.OnPreToolUse, m.Transforms)
	case *protocol.ContextUpdate:
		d.request(t, m.RequestID, "context.update")
	case *protocol.FilterSet:
		d.request(t, m.RequestID, "filter.set")
	case *protocol.StreamQuery:
		d.request(t, m.QueryID, "")
	case *protocol.QuestionAnswer:
		d.request(t, m.RequestID, "")
		d.questionAnswer(m)
	}
}

// hello keeps the offer of a hello. A field that is left out keeps the value that a reconnect
// restores.
func (d *ledger) hello(l *providerConn, m *protocol.Hello) {
	d.reconnectToken(l, m.ReconnectToken)
	name := protocol.NormalName(m.Name) + " " + m.Instance
	if d.name != "" {
		d.note("reconnect.name", name == d.name,
			"hello with name and instance %q, before it was %q", name, d.name)
	}
	d.name = name
	restores := d.restoring[l]
	if m.Tools != nil || !restores {
		d.offer.Tools = m.Tools
	}
	if m.Hooks != nil || !restores {
		d.offer.Rules, d.offer.Callbacks = nil, nil
	}
	if m.Hooks != nil {
		d.offer.Rules = m.Hooks.OnPreToolUse
		d.hooks(m.Hooks.OnPreToolUse, m.Hooks.Transforms)
	}
	if m.Concurrency != nil || !restores {
		d.offer.Concurrency = 0
		if c := m.Concurrency; c != nil && c.Max != nil {
			d.offer.Concurrency = *c.Max
		}
	}
	if m.Subscribe != nil || !restores {
		d.offer.Subscribe = m.Subscribe
	}
	d.tools(m.Tools)
}

// tools notes that the rules about tools held.
func (d *ledger) tools(tools []protocol.Tool) {
	if len(tools) > 0 {
		for _, rule := range []string{"tool.names", "tool.schemas", "tool.fields"} {
			d.note(rule, true, "")
		}
	}
}

// hooks notes that the rules about hooks held, and keeps which sections have a callback.
func (d *ledger) hooks(rules []protocol.Rule, transforms map[string]*protocol.Transform) {
	if len(rules) > 0 || len(transforms) > 0 {
		d.note("hooks.fields", true, "")
	}
	for _, r := range rules {
		if r.Match.Args != "" {
			_, err := match.Compile(r.Match.Args)
			d.note("hooks.patterns", err == nil, "the pattern %.200q: %v", r.Match.Args, err)
		}
	}
	for section, t := range transforms {
		if t != nil && t.Action == protocol.TransformCallback {
			d.offer.Callbacks = append(d.offer.Callbacks, section)
		}
	}
}

// updated returns the tools after an update.
func updated(tools []protocol.Tool, m *protocol.ToolsUpdate) (now []protocol.Tool) {
	if m.Remove == nil {
		return m.Tools
	}
	gone := map[string]bool{}
	for _, name := range m.Remove {
		gone[name] = true
	}
	for _, t := range m.Tools {
		gone[t.Name] = true
	}
	for _, t := range tools {
		if !gone[t.Name] {
			now = append(now, t)
		}
	}
	return append(now, m.Tools...)
}

// result judges a tool.result by the kit's request.
func (d *ledger) result(l *providerConn, m *protocol.ToolResult) {
	d.note("result.one", m.Data == nil || !m.Failed(), "data beside error %.64q, errorCode %.64q",
		m.Error, m.ErrorCode)
	if m.ErrorCode != "" {
		d.note("result.code", m.ErrorCode.ResultCode() == m.ErrorCode, "errorCode %q",
			string(m.ErrorCode))
	}
	if m.File != nil {
		d.note("result.file", d.inPersistDir(m.File.Path), "the file %q; persistDir is %q",
			m.File.Path, d.persistDir)
	}
	call := d.calls[m.ID]
	d.note("call.issued", call != nil, "a result for %.64q, which is no call's id", m.ID)
	switch {
	case call == nil:
		return
	case call.phantom:
		d.note("cancel.unknown", false, "a result for a call that was cancelled and never made")
		return
	case call.link != l:
		d.note("reconnect.calls", false,
			"a result for the call %.64q, which came on the connection before", m.ID)
		return
	// A second result counts as one too much, and not as an answer to the cancel.
	case call.results > 0 && call.cancelledLate && d.broken["call.once"] == nil,
		call.results == 1 && call.cancelled && call.answered &&
			m.ErrorCode == protocol.CodeCancelled:
		d.note("cancel.ended", false,
			"another result for a call that was cancelled after its result")
	default:
		d.note("call.once", call.results == 0, "result %d for one call", call.results+1)
	}
	call.answered = call.results == 0 && m.ErrorCode != protocol.CodeCancelled
	call.results++
}

// inPersistDir reports whether a path is one of a file in the directory that hello.ack named.
func (d *ledger) inPersistDir(path string) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	dir, err := filepath.EvalSymlinks(d.persistDir)
	if err != nil {
		return false
	}
	inside, err := filepath.Rel(dir, target)
	return err == nil && filepath.IsLocal(inside)
}

// check judges the answer to a gate check or a transform request.
func (d *ledger) check(rule, id string) {
	c := d.checks[id]
	d.note(rule, c != nil && c.results == 0,
		"an answer to %.64q, which was answered before or never asked", id)
	if c != nil {
		c.results++
	}
}

// maxPushes is how many pushes a second break a rule: the budget twice, because a busy machine
// delivers those of two seconds together.
const maxPushes = 2 * protocol.PushRate

func (d *ledger) push(t *talk, m *protocol.Push) {
	got := fmt.Sprintf("the session %q", m.SessionID)
	if m.SessionID == "" {
		got = "neither sessionId nor broadcast, from a provider of all sessions"
	}
	aimed := t.sessions[m.SessionID] || m.SessionID == "" && (m.Broadcast || !t.all)
	d.note("push.target", aimed, "a push with %s", got)
	now := time.Now()
	times := append(t.pushes[m.SessionID], now)
	for len(times) > 0 && now.Sub(times[0]) >= time.Second {
		times = times[1:]
	}
	t.pushes[m.SessionID] = times
	d.note("push.rate", len(times) <= maxPushes, "%d pushes within a second", len(times))
}

// request judges the id of a request that waits for an answer, and for an update that it is the
// only one of its kind.
func (d *ledger) request(t *talk, id, update string) {
	if id != "" {
		d.note("request.ids", !t.waiting["id "+id],
			"the id %.64q while an earlier request with it has no answer", id)
		t.waiting["id "+id] = true
	}
	if update != "" && id != "" {
		d.note("update.one", !t.waiting[update], "a second %s before the answer to the first",
			update)
		t.waiting[update] = true
	}
}

// answered notes that a request is about to be answered.
func (d *ledger) answered(l *providerConn, id string, typ protocol.Type) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.talk(l)
	delete(t.waiting, "id "+id)
	delete(t.waiting, string(typ))
}

// reconnectToken judges a reconnect token that came on a connection.
func (d *ledger) reconnectToken(l *providerConn, token string) {
	if token == "" {
		return
	}
	d.note("reconnect.token", token == d.issued,
		"a reconnect token that is not the last hello.ack's")
	d.restoring[l] = true
}

// bound notes that hello.ack goes out with a new reconnect token.
func (d *ledger) bound(l *providerConn, token string, all bool, sessions ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.talk(l)
	t.acked, t.all = true, all
	for _, s := range sessions {
		t.sessions[s] = true
	}
	d.issued = token
}

// called notes that a call, or with phantom only a cancel of one, goes out.
func (d *ledger) called(l *providerConn, id string, phantom bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[id] = &callRecord{link: l, phantom: phantom}
}

// cancelled notes that a cancel goes out.
func (d *ledger) cancelled(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c := d.calls[id]; {
	case c == nil:
	case c.results > 0:
		c.cancelledLate = true
	default:
		c.cancelled = true
	}
}

// checked notes that a gate check or a transform request goes out.
func (d *ledger) checked(l *providerConn, id string, denyOnly bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checks[id] = &callRecord{link: l, denyOnly: denyOnly}
}

// results returns how many results a call has.
func (d *ledger) results(id string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.calls[id]; c != nil {
		return c.results
	}
	return 0
}
