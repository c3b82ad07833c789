package cluster

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// relay stands between a provider of this gateway and the gateways whose sessions it serves: this one, by a
// [gateway.Conn] as ever, and others, each by an upstream. To the provider all of them are one gateway: it sees the
// sessions of all in one list, binds to one of them or to all, and each of its messages goes to the gateways that it is
// about.
//
// It implements [gateway.Peer] for this gateway's connection.
type relay struct {
	c     *Cluster
	peer  gateway.Peer
	local *gateway.Conn // set before the provider's first message

	receiving sync.Mutex // held while the local connection handles a message

	mu         sync.Mutex // guards the fields that follow
	isAuthed   bool
	reach      *gateway.Reach     // nil: it may serve sessions of this gateway only
	mustOpen   bool               // the provider has authenticated, and nothing was opened
	first      *protocol.Sessions // the first list, while it waits for those of other gateways
	firstTimer *time.Timer
	own        []protocol.SessionInfo
	listed     []protocol.SessionInfo // that the provider was told last
	wasListed  bool                   // it was told of sessions
	upstreams  map[*trunk]*upstream
	calls      map[string]asked // what other gateways have asked the provider, by its id
	setup      setup            // of a provider of all sessions, for gateways that come later
	all        bool             // it has bound to all sessions
	isBound    bool             // here
	home       *upstream        // the only gateway that it is bound at; nil for this one, or for all
	answered   bool             // its hello has an answer
	unbinding  bool             // the next error is the answer to a hello that only ends the bindings here
	joining    bool             // the next answer is to a hello that the relay has sent
	isClosed   bool
	token      string            // of its auth
	old        *memory           // what the reconnect token of its auth, or of a hello that failed, restores
	ending     map[string]bool   // sessions of other gateways whose end it was told of, and has not answered
	memory     *memory           // what its own reconnect token restores
	shown      adminapi.Provider // what lists show while it is bound elsewhere only
	tools      map[string]bool   // that it offers, of a provider that may serve elsewhere
}

// Connect begins the connection of a provider, as [gateway.Gateway.Connect] does. A provider that may serve sessions of
// other gateways does, if it and the sessions are shared.
func (c *Cluster) Connect(p gateway.Peer, o gateway.ConnOptions) *Conn {
	r := &relay{c: c, peer: p, upstreams: map[*trunk]*upstream{}, calls: map[string]asked{}}
	r.receiving.Lock() // nothing is received before local is set
	r.local = c.gateway.Connect(r, o)
	r.receiving.Unlock()
	return &Conn{r}
}

// Conn is a provider's connection to a gateway of a cluster. Its methods are those of a [gateway.Conn].
type Conn struct{ r *relay }

// AuthEnded is that of [gateway.Conn].
func (c *Conn) AuthEnded() bool { return c.r.local.AuthEnded() }

// Receive is that of [gateway.Conn].
func (c *Conn) Receive(data []byte) { c.r.receive(data) }

// ReceiveOversized is that of [gateway.Conn].
func (c *Conn) ReceiveOversized(beginning []byte, size int) {
	head := protocol.Peek(beginning)
	if u := c.r.targetOf(head.Type, head.ID); u != nil {
		u.push(opOversized, append(appendSize(size), headOnly(head)...))
		return
	}
	c.r.toLocal(func() { c.r.local.ReceiveOversized(beginning, size) })
}

// ReceiveBinary is that of [gateway.Conn].
func (c *Conn) ReceiveBinary(size int) {
	if u := c.r.targetOf("", ""); u != nil {
		u.push(opBinary, appendSize(size))
		return
	}
	c.r.toLocal(func() { c.r.local.ReceiveBinary(size) })
}

// headOnly is what is sent of a message that is too large.
func headOnly(h protocol.Head) []byte {
	members := map[string]string{}
	for name, value := range map[string]string{"type": string(h.Type), "id": h.ID, "requestId": h.RequestID} {
		if value != "" && len(value) < maxBatch {
			members[name] = value
		}
	}
	if h.Type == protocol.TypeStreamQuery {
		members["queryId"] = members["requestId"]
	}
	data, _ := json.Marshal(members, json.Deterministic(true)) // cannot fail
	return data
}

// appendSize is the size of a frame as records have it.
func appendSize(size int) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(min(size, protocol.MaxFrame))) //nolint:gosec // it is small
}

// Closed is that of [gateway.Conn].
func (c *Conn) Closed() {
	c.r.local.Closed()
	c.r.leave()
}

func (r *relay) toLocal(receive func()) {
	r.receiving.Lock()
	defer r.receiving.Unlock()
	receive()
}

// leave ends what the provider has elsewhere.
func (r *relay) leave() {
	r.mu.Lock()
	if r.firstTimer != nil {
		r.firstTimer.Stop()
	}
	r.isClosed, r.first = true, nil
	upstreams := slices.Collect(maps.Values(r.upstreams))
	r.upstreams, r.calls, r.home = map[*trunk]*upstream{}, map[string]asked{}, nil
	r.mu.Unlock()
	for _, u := range upstreams {
		u.close()
	}
	r.c.mu.Lock()
	delete(r.c.relays, r)
	if m := r.memory; m != nil && m.endedAt.IsZero() {
		m.endedAt, m.setup = time.Now(), r.setup
	}
	r.c.mu.Unlock()
}

// open connects the provider with the gateways within reach, if it may serve sessions of others.
func (r *relay) open() {
	reach, ok := r.local.Reach()
	if !ok || len(r.c.share) == 0 {
		return
	}
	r.mu.Lock()
	r.reach, r.shown.ConnectedAt = &reach, time.Now().UTC()
	r.mu.Unlock()
	r.c.mu.Lock()
	isClosed := r.c.isClosed
	if !isClosed {
		r.c.relays[r] = true
	}
	r.c.mu.Unlock()
	if isClosed {
		return
	}
	for _, tr := range r.c.trunks {
		r.openAt(tr)
	}
}

// openAt connects the provider with another gateway, if that is within reach and it is not connected there.
func (r *relay) openAt(tr *trunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isClosed || r.reach == nil || r.upstreams[tr] != nil {
		return
	}
	tools := r.reach.Tools
	request, _ := json.Marshal(openRequest{Allow: tools.Allow, Deny: tools.Deny, Prefix: tools.Prefix,
		Concurrency: tools.Concurrency, TimeoutMs: tools.Timeout.Milliseconds()}) // cannot fail
	if u := tr.connect(r, request); u != nil {
		r.upstreams[tr] = u
	}
}

// reopen replaces a connection elsewhere, which ends its bindings there. Call with r.mu held.
func (r *relay) reopen(u *upstream) func() {
	delete(r.upstreams, u.tr)
	for _, m := range r.forgetCalls(u) {
		r.peer.Send(m)
	}
	return func() {
		u.close()
		r.openAt(u.tr)
	}
}

// forgetCalls forgets what a gateway has asked, and returns what takes its calls back. Call with r.mu held.
func (r *relay) forgetCalls(u *upstream) (cancels []protocol.Message) {
	for id, a := range r.calls {
		if a.by != u {
			continue
		}
		delete(r.calls, id)
		if a.tool != "" {
			cancels = append(cancels,
				&protocol.ToolCancel{ID: id, SessionID: a.session, Reason: protocol.ReasonInterrupted})
		}
	}
	return cancels
}

// Send implements [gateway.Peer] for this gateway.
func (r *relay) Send(m protocol.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m := m.(type) {
	case *protocol.Sessions:
		isFirst := !r.isAuthed
		r.own = m.Active
		if isFirst {
			r.isAuthed, r.mustOpen, r.first = true, true, m
			return
		}
		kind := protocol.TypeSessionsUpdated
		if r.home == nil && !r.all && !r.isBound { // some clients say hello again only at this message
			kind = protocol.TypeSessions
		}
		r.list(kind)
		if r.all && !r.isBound && !r.joining {
			r.joining = true
			r.c.begin(r.joinHere)
		}
	case *protocol.SessionsUpdated:
		r.own = m.Active
		if len(r.upstreams) == 0 && r.wasListed {
			r.listed = m.Active
			r.peer.Send(m)
			return
		}
		r.list("")
	case *protocol.HelloAck:
		r.isBound = true
		if !r.joining {
			r.answered = true
			r.remember(m, nil)
			r.peer.Send(m)
		}
		r.joining = false
	case *protocol.Error:
		isHello := m.ReplyTo == protocol.TypeHello
		if isHello && (r.unbinding && m.Code != protocol.CodeRateLimited || r.joining) {
			r.unbinding, r.joining = false, false
			return
		}
		r.answered = r.answered || isHello
		r.peer.Send(m)
	case *protocol.Ack:
		if !isOwnRequest(m.RequestID) {
			r.peer.Send(m)
		}
	default:
		r.peer.Send(m)
	}
}

// joinHere binds a provider of all sessions at this gateway, which has its first one now.
func (r *relay) joinHere() {
	r.mu.Lock()
	frames := r.setup.frames()
	r.mu.Unlock()
	r.toLocal(func() {
		for _, data := range frames {
			r.local.Receive(data)
		}
	})
}

// Flush implements [gateway.Peer].
func (r *relay) Flush() {
	r.peer.Flush()
	r.mu.Lock()
	mustOpen := r.mustOpen
	r.mustOpen = false
	r.mu.Unlock()
	if mustOpen {
		r.open()
		r.mu.Lock()
		r.list("")
		if r.first != nil {
			r.firstTimer = time.AfterFunc(listsWithin, r.sendFirst)
		}
		r.mu.Unlock()
		r.peer.Flush()
	}
}

// listsWithin is how long the first list waits for those of other gateways. Providers often take its first session.
const listsWithin = 300 * time.Millisecond

// sendFirst sends the first list with what is known.
func (r *relay) sendFirst() {
	r.mu.Lock()
	r.sendFirstNow()
	r.mu.Unlock()
	r.peer.Flush()
}

// sendFirstNow sends the first list if it has not been sent. Call with r.mu held.
func (r *relay) sendFirstNow() {
	if r.first == nil {
		return
	}
	m := &protocol.Sessions{Token: r.first.Token, Active: r.merged()}
	r.first, r.listed, r.wasListed = nil, m.Active, len(m.Active) > 0
	if r.firstTimer != nil {
		r.firstTimer.Stop()
	}
	r.peer.Send(m)
}

// Close implements [gateway.Peer].
func (r *relay) Close(code protocol.CloseCode, reason string) {
	r.peer.Close(code, reason)
	r.leave()
}

// view is what lists show of a provider that serves sessions of other gateways, and none of this one.
func (r *relay) view() (v adminapi.Provider, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isBound || r.reach == nil {
		return v, false
	}
	v = r.shown
	v.Trust, v.State, v.Tools, v.InFlight = string(r.reach.Trust), "bound", len(r.tools), len(r.calls)
	for tr, u := range r.upstreams {
		if u.isBound {
			v.Serves = append(v.Serves, tr.peer)
		}
	}
	slices.Sort(v.Serves)
	return v, len(v.Serves) > 0
}

// show notes what lists show of a provider, as its hello or an update of its tools says. Call with r.mu held.
func (r *relay) show(data []byte) {
	m, err := decode(data)
	if err != nil {
		return
	}
	switch m := m.(type) {
	case *protocol.Hello:
		r.shown.Name, r.shown.Instance, r.shown.Session = protocol.NormalName(m.Name), m.Instance, m.Session
		r.tools = map[string]bool{}
		for i := range m.Tools {
			r.tools[m.Tools[i].Name] = true
		}
	case *protocol.ToolsUpdate:
		if m.Remove == nil {
			r.tools = map[string]bool{}
		}
		for i := range m.Tools {
			r.tools[m.Tools[i].Name] = true
		}
		for _, name := range m.Remove {
			delete(r.tools, name)
		}
	}
}

// list tells the provider of the sessions, those of this gateway first: with a message of a kind, or if that is "", of
// a list that has changed. Call with r.mu held.
func (r *relay) list(kind protocol.Type) {
	if r.first != nil {
		for _, u := range r.upstreams {
			if !u.hasList {
				return
			}
		}
		r.sendFirstNow()
		return
	}
	all := r.merged()
	isSame := slices.Equal(all, r.listed)
	r.listed = all
	switch {
	case !r.wasListed && len(all) == 0:
	case !r.wasListed: // a client that has not said hello yet waits for this message
		r.wasListed = true
		r.peer.Send(&protocol.Sessions{Active: all})
	case kind == protocol.TypeSessions:
		r.peer.Send(&protocol.Sessions{Active: all})
	case kind != "" || !isSame:
		r.peer.Send(&protocol.SessionsUpdated{Active: all})
	}
}

// merged is the list of all sessions. Call with r.mu held.
func (r *relay) merged() []protocol.SessionInfo {
	all := append([]protocol.SessionInfo{}, r.own...)
	byName := func(a, b *trunk) int { return strings.Compare(a.peer, b.peer) }
	trunks := slices.SortedFunc(maps.Keys(r.upstreams), byName)
	for _, tr := range trunks {
		for _, s := range r.upstreams[tr].sessions {
			isKnown := slices.ContainsFunc(all, func(o protocol.SessionInfo) bool { return o.ID == s.ID })
			if isKnown { // an id that two gateways give is that of the first
				continue
			}
			s.Foreground = s.Foreground && !slices.ContainsFunc(all,
				func(o protocol.SessionInfo) bool { return o.Foreground })
			all = append(all, s)
		}
	}
	return all
}

// upstreamOf returns the gateway that has a session; nil for this one, and for none. Call with r.mu held.
func (r *relay) upstreamOf(session string) *upstream {
	if session == "" || r.isOwn(session) {
		return nil
	}
	for _, u := range r.upstreams {
		if slices.ContainsFunc(u.sessions, func(s protocol.SessionInfo) bool { return s.ID == session }) {
			return u
		}
	}
	return nil
}

// isOwn reports whether this gateway has a session. Call with r.mu held.
func (r *relay) isOwn(session string) bool {
	return slices.ContainsFunc(r.own, func(s protocol.SessionInfo) bool { return s.ID == session })
}

// mayJoin reports whether the provider may serve all sessions of other gateways. Call with r.mu held.
func (r *relay) mayJoin() bool {
	return r.reach != nil && r.reach.All && r.mayServe(readAbout(r.setup.hello).name) == nil
}

// fallback is where messages go that are about nothing in particular; nil for this gateway. Call with r.mu held.
func (r *relay) fallback() *upstream {
	if r.home != nil || r.isBound || !r.all {
		return r.home
	}
	for _, u := range r.upstreams {
		if u.isBound {
			return u
		}
	}
	return nil
}

// targetOf is where a message goes of which only the head could be read; nil for this gateway.
func (r *relay) targetOf(t protocol.Type, call string) *upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isAnswer(t) {
		return r.askedBy(t, call)
	}
	return r.fallback()
}

// askedBy returns the gateway that an answer is for, nil for this one. It may have one answer. Call with r.mu held.
func (r *relay) askedBy(t protocol.Type, call string) *upstream {
	u := r.calls[call].by
	if u == nil {
		return r.fallback()
	}
	if t != protocol.TypeToolProgress {
		delete(r.calls, call)
		u.open--
	}
	return u
}

func isAnswer(t protocol.Type) bool {
	switch t {
	case protocol.TypeToolResult, protocol.TypeToolProgress, protocol.TypeGateResult, protocol.TypeTransformResult:
		return true
	}
	return false
}

// about is what a message of a provider says about where it belongs.
type about struct {
	kind        protocol.Type
	call        string // that it answers
	session     string // that it names, of a hello too
	name        string // of a hello
	restores    string // the reconnect token of a hello
	isBroadcast bool
	error       string // of a result
	errorCode   string
}

func readAbout(data []byte) (a about) {
	_ = protocol.Object(data, func(name string, value protocol.Raw) error { // what is wrong is said by who gets it
		switch name {
		case "broadcast":
			a.isBroadcast = string(value) == "true"
		case "type", "id", "callId", "sessionId", "session", "name", "reconnectToken", "error", "errorCode":
		default:
			return nil
		}
		text, _ := protocol.Text(value)
		switch name {
		case "type":
			a.kind = protocol.Type(text)
		case "id", "callId":
			a.call = text
		case "sessionId", "session":
			a.session = text
		case "name":
			a.name = text
		case "reconnectToken":
			a.restores = text
		case "error":
			a.error = text
		case "errorCode":
			a.errorCode = text
		}
		return nil
	})
	return a
}

// receive handles a message of the provider. Only the connection's reader calls it.
func (r *relay) receive(data []byte) {
	if !r.local.AuthEnded() {
		r.auth(data)
		return
	}
	if r.isWaiting() {
		r.sendFirst()
	}
	a := readAbout(data)
	switch a.kind {
	case protocol.TypeHello:
		r.hello(a, data)
		return
	case protocol.TypeShutdownReady, protocol.TypeGoodbye:
		r.noteEnd(a)
	}
	r.mu.Lock()
	record := r.callRecord(a)
	r.mu.Unlock()
	if record != nil && r.c.o.Record != nil {
		r.c.o.Record(*record)
	}
	toLocal, upstreams := r.route(a, data)
	for _, u := range upstreams {
		u.send(data, a)
	}
	if toLocal {
		r.toLocal(func() { r.local.Receive(data) })
	}
}

// route says where a message goes that is no hello: here, and to which other gateways.
func (r *relay) route(a about, data []byte) (toLocal bool, upstreams []*upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all {
		r.setup.add(a, data)
	}
	if a.kind == protocol.TypeToolsUpdate && a.session == "" && r.reach != nil {
		r.show(data)
	}
	one := func(u *upstream) (bool, []*upstream) {
		if u == nil {
			return true, nil
		}
		return false, []*upstream{u}
	}
	if isAnswer(a.kind) {
		return one(r.askedBy(a.kind, a.call))
	}
	if !r.all || a.kind == protocol.TypeQuestionAnswer || a.kind == protocol.TypeStreamQuery && a.session == "" {
		return one(r.fallback())
	}
	if a.session != "" {
		if u := r.upstreamOf(a.session); u != nil {
			return one(u)
		}
		return one(r.fallback())
	}
	switch a.kind {
	case protocol.TypeToolsUpdate, protocol.TypeHooksUpdate, protocol.TypeContextUpdate, protocol.TypeFilterSet,
		protocol.TypeShutdownReady:
	case protocol.TypePush:
		if !a.isBroadcast {
			return one(r.fallback())
		}
	default:
		return one(r.fallback())
	}
	for _, u := range r.upstreams {
		if u.isBound {
			upstreams = append(upstreams, u)
		}
	}
	return r.isBound || len(upstreams) == 0, upstreams
}

// hello handles a hello: it binds the provider here, elsewhere, or everywhere.
func (r *relay) hello(a about, data []byte) {
	r.mu.Lock()
	target := r.upstreamOf(a.session)
	isAll := a.session == protocol.AllSessions
	if old := r.c.recall(a.restores); old != nil {
		r.old = old
	}
	old := r.old
	if old != nil && (old.name != protocol.NormalName(a.name) || old.token == "") {
		old = nil
	}
	if old != nil && a.session == "" {
		if isAll = old.session == protocol.AllSessions; !isAll {
			target = r.upstreams[old.tr]
		}
	}
	if old != nil && old.isElsewhere {
		data = withMember(data, "reconnectToken", old.token)
		if isAll {
			data = withMember(data, "session", protocol.AllSessions)
		}
	}
	if target == nil && !isAll && !r.isOwn(a.session) { // nobody knows the session
		target = r.home
	}
	var reopen []func()
	for _, u := range r.upstreams { // a hello ends all bindings
		if u.isBound && u != target && !isAll {
			reopen = append(reopen, r.reopen(u))
		}
	}
	wasBound := r.isBound
	r.all, r.home, r.answered = isAll, nil, false
	if r.reach != nil {
		r.show(data)
	}
	r.setup = setup{}
	if isAll {
		r.setup.hello = data
		if old != nil {
			r.setup = old.setup.renewed(data)
		}
	}
	r.unbinding = target != nil && wasBound
	r.mu.Unlock()
	for _, f := range reopen {
		f()
	}
	switch {
	case target != nil:
		r.helloElsewhere(target, a, data, wasBound)
	case isAll:
		r.helloEverywhere(a, data)
	default:
		r.toLocal(func() {
			r.setBound(false)
			r.local.Receive(data)
		})
	}
}

func (r *relay) setBound(isBound bool) {
	r.mu.Lock()
	r.isBound = isBound
	r.mu.Unlock()
}

// helloElsewhere binds the provider to a session of another gateway.
func (r *relay) helloElsewhere(u *upstream, a about, data []byte, wasBound bool) {
	r.mu.Lock()
	err := r.mayServe(a.name)
	r.unbinding = r.unbinding && err == nil
	r.mu.Unlock()
	if err != nil {
		err.SessionID = a.session
		r.peer.Send(err)
		r.peer.Flush()
		return
	}
	if wasBound { // this gateway does not know the session, so that its bindings end
		r.toLocal(func() {
			r.setBound(false)
			r.local.Receive(data)
		})
	}
	r.mu.Lock()
	wasRefused := r.answered // too many hellos: the bindings here stay
	if !wasRefused {
		r.home, u.isQuiet, u.isAsked, u.name = u, false, true, protocol.NormalName(a.name)
	}
	r.isBound, r.unbinding = wasRefused, false
	r.mu.Unlock()
	if !wasRefused {
		u.send(data, a)
	}
}

// helloEverywhere binds the provider to all sessions, here and elsewhere. The answer is that of this gateway, or if it
// has no session, of the first that answers.
func (r *relay) helloEverywhere(a about, data []byte) {
	r.toLocal(func() {
		r.setBound(false)
		r.local.Receive(data)
	})
	r.mu.Lock()
	wasRefused := r.answered && !r.isBound
	if wasRefused {
		r.all, r.setup = false, setup{}
	}
	r.mu.Unlock()
	if wasRefused {
		return
	}
	r.mu.Lock()
	var upstreams []*upstream
	if !r.mayJoin() {
		if !r.answered && r.reach != nil && !r.reach.All && len(r.merged()) > 0 {
			r.all = false
			r.peer.Send(&protocol.Error{Code: protocol.CodeUnauthorized, ReplyTo: protocol.TypeHello,
				Message: fmt.Sprintf("hello.session: a provider of trust %s may not bind to all sessions; "+
					"choose one id from the sessions list", r.reach.Trust)})
		}
		r.mu.Unlock()
		r.peer.Flush()
		return
	}
	for _, u := range r.upstreams {
		if len(u.sessions) > 0 {
			upstreams = append(upstreams, u)
			u.isAsked, u.isQuiet, u.name = true, r.answered, protocol.NormalName(a.name)
		}
	}
	frames := r.setup.frames()
	if len(frames) < 2 {
		frames = [][]byte{data}
	}
	r.mu.Unlock()
	for _, u := range upstreams {
		for _, frame := range frames {
			u.send(frame, a)
		}
	}
}

// mayServe checks whether the provider may serve sessions of other gateways with a name. Call with r.mu held.
func (r *relay) mayServe(name string) *protocol.Error {
	name = protocol.NormalName(name)
	fault := func(code protocol.Code, format string, args ...any) *protocol.Error {
		return &protocol.Error{Code: code, ReplyTo: protocol.TypeHello, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case r.reach == nil:
		return fault(protocol.CodeInvalidSession, "hello.session: is of another gateway, and not open to this token")
	case r.reach.Name != "" && r.reach.Name != name:
		return fault(protocol.CodeUnauthorized, "hello.name: %q is not the name that this token is for, which is %q",
			name, r.reach.Name)
	case !r.c.isShared(name):
		return fault(protocol.CodeInvalidSession,
			"hello.session: is of another gateway, and share of [cluster] here does not have provider %q", name)
	}
	return nil
}

// isWaiting reports whether the first list has not been sent.
func (r *relay) isWaiting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first != nil
}
