package gateway

import (
	"fmt"
	"maps"
	"strings"

	"tapgw/internal/protocol"
)

// step is something that a provider does without being asked. do returns false if the
// provider can't do it now.
type step struct {
	weight       int
	name         string
	isDisruptive bool // may end its connection or an unrelated call
	do           func(*link) bool
}

func always(do func(*link)) func(*link) bool {
	return func(l *link) bool { do(l); return true }
}

var steps = []step{
	{60, "answers", false, (*link).stepAnswer},
	{4, "answers again", false, (*link).stepAgain},
	{2, "forgets a call", false, (*link).stepForget},
	{3, "tool.progress", false, (*link).stepProgress},
	{20, "answers a gate later", false, (*link).stepGate},
	{20, "answers a transform later", false, (*link).stepTransform},
	{3, "offers tools anew", false, always((*link).stepTools)},
	{3, "adds and removes tools", false, (*link).stepDelta},
	{4, "offers hooks anew", false, (*link).stepHooks},
	{1, "denies all its tools", false, (*link).stepDeny},
	{2, "context.update", false, always((*link).stepContext)},
	{2, "filter.set", false, always((*link).stepFilter)},
	{1, "stream.query", false, always((*link).stepQuery)},
	{3, "push", false, always((*link).stepPush)},
	{1, "another with its name", false, (*link).stepImpostor},
	{2, "rebinds", true, always(func(l *link) { l.hello("") })},
	{1, "rebinds, malformed", true, always(func(l *link) {
		l.expectAnswer(string(protocol.TypeHello), func() {})
		l.send(`{"type":"hello"}`)
	})},
	{1, "nonsense", true, always(func(l *link) { l.send(`nonsense`) })},
	{1, "a binary frame", true, always(func(l *link) { l.conn.ReceiveBinary(2) })},
	{1, "an answer to nothing", true, always(func(l *link) {
		l.strayAnswers++
		l.send(`{"type":"tool.result","id":"never","data":1}`)
	})},
	{1, "leaves", true, always(func(l *link) { l.shouldLeave = true })},
}

var stepWeights = func() (sum int) {
	for _, s := range steps {
		sum += s.weight
	}
	return sum
}()

// runStep runs a random step.
func (l *link) runStep() {
	n := l.r.IntN(stepWeights)
	for _, s := range steps {
		if n -= s.weight; n >= 0 {
			continue
		}
		if (!s.isDisruptive || !l.kind.isSteady) && s.do(l) {
			l.w.tally.add("step: " + s.name)
		}
		return
	}
}

// removeRandom removes and returns a random element of a list.
func removeRandom[T any](l *link, list *[]T) (it T, ok bool) {
	if len(*list) == 0 {
		return it, false
	}
	i := l.r.IntN(len(*list))
	it = (*list)[i]
	*list = append((*list)[:i], (*list)[i+1:]...)
	return it, true
}

// minRemembered is the number of later calls for which the gateway certainly remembers the
// end of a call. It remembers more, since calls that were sent before may end after.
const minRemembered = protocol.MaxFinishedCalls / 4

func (l *link) stepAnswer() bool {
	c, ok := removeRandom(l, &l.openCalls)
	if ok = ok && l.inbox.callsAfter(c.number) < minRemembered; ok {
		l.reply(c)
	}
	return ok
}

func (l *link) stepAgain() bool {
	c, ok := removeRandom(l, &l.answeredCalls)
	if ok = ok && l.inbox.callsAfter(c.number) < minRemembered; ok {
		l.reply(c)
	}
	return ok
}

func (l *link) stepForget() bool {
	_, ok := removeRandom(l, &l.openCalls)
	return ok
}

func (l *link) stepProgress() bool {
	c, ok := removeRandom(l, &l.openCalls)
	if ok {
		l.openCalls = append(l.openCalls, c)
		l.send(`{"type":"tool.progress","id":%q,"message":"m"}`, c.id)
	}
	return ok
}

func (l *link) stepGate() bool {
	m, ok := removeRandom(l, &l.pendingChecks)
	if ok {
		l.allow(m, protocol.DecisionAllow)
	}
	return ok
}

func (l *link) stepTransform() bool {
	m, ok := removeRandom(l, &l.pendingTransforms)
	if ok {
		l.send(`{"type":"transform.result","callId":%q,"content":%q}`, m.CallID, m.Current+"-")
	}
	return ok
}

// reply answers a call in one of several ways.
func (l *link) reply(c received) {
	l.answeredCalls = append(l.answeredCalls, c)
	at, running := l.running[c.id]
	delete(l.running, c.id)
	if running && !at.IsZero() {
		l.w.tally.add("result: late")
	}
	add := func(what string) { l.w.tally.add("result: " + what) }
	switch n := l.r.IntN(24); {
	case n < 14:
		add("data")
		l.send(`{"type":"tool.result","id":%q,"data":{"n":%d}}`, c.id, c.n)
	case n < 16:
		add("error")
		l.send(`{"type":"tool.result","id":%q,"error":"no","errorCode":"UNAUTHORIZED"}`, c.id)
	case n < 19:
		add("error, retryable")
		l.w.record(c.n).retries.Add(1)
		l.send(
			`{"type":"tool.result","id":%q,"error":"no","errorCode":"UNAUTHORIZED","retryable":true}`, c.id)
	case n < 20:
		add("error, of an unknown code")
		l.send(`{"type":"tool.result","id":%q,"error":"it went wrong","errorCode":"OOPS"}`, c.id)
	case n < 21:
		add("data and error")
		l.send(`{"type":"tool.result","id":%q,"data":1,"error":"no","errorCode":"UNAUTHORIZED"}`,
			c.id)
	case n < 22:
		add("file")
		l.send(`{"type":"tool.result","id":%q,"file":{"path":"%d"}}`, c.id, c.n)
	case n < 23:
		add("malformed")
		l.send(`{"type":"tool.result","id":%q}`, c.id)
	default:
		add("too large")
		l.conn.ReceiveOversized(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":"`, c.id),
			protocol.MaxResult+1)
	}
}

// hello binds the provider to a session, or binds it again.
func (l *link) hello(token string) {
	w, r := l.w, l.r
	members := ""
	add := func(format string, args ...any) { members += fmt.Sprintf(","+format, args...) }
	if l.kind.inAllSessions {
		add(`"session":"all"`)
	} else {
		at := calmSession
		if !l.kind.isSteady {
			at += 1 + r.IntN(stormSessions-1)
		}
		add(`"session":%q`, w.sessions[at].Load().ID())
	}
	if l.kind.instance != "" {
		add(`"instance":%q,"metadata":{"title":"tab %s"}`, l.kind.instance, l.kind.instance)
	}
	if token != "" {
		add(`"reconnectToken":%q`, token)
	}
	most := 0
	if l.kind.isLimited || r.IntN(8) == 0 {
		most = 1 + r.IntN(2)
		add(`"concurrency":{"max":%d,"scope":%q}`, most,
			[]string{scopeInstance, scopeProvider, scopeTool}[r.IntN(3)])
	}
	var offered map[string]bool
	if l.isReconnect && r.IntN(3) == 0 {
		// With its token it gets back its earlier offer.
		w.tally.add("step: hello, as it was")
	} else {
		offered = l.tools()
		add(`"tools":[%s],"hooks":%s`, l.definitions(offered), l.hooks())
	}
	if l.kind.isGuard {
		add(`"context":"ambient","startup_context":"startup"`)
	}
	l.expectAnswer(string(protocol.TypeHello), func() {
		l.maxCalls, l.offered, l.deniesOwnTools = most, offered, false
		clear(l.running)
	})
	l.send(`{"type":"hello","name":%q,"protocolVersion":2%s}`, l.kind.name, members)
	w.trackProvider(l.conn)
}

// tools are the tools of its kind, and sometimes one of another kind.
func (l *link) tools() map[string]bool {
	list := map[string]bool{}
	for _, i := range l.kind.tools {
		list[fmt.Sprintf("t%d", i)] = true
	}
	if l.kind.instance == "" && !l.kind.isSteady && l.r.IntN(20) == 0 {
		list[fmt.Sprintf("t%d", l.r.IntN(stormTools-1))] = true
	}
	return list
}

func (l *link) definitions(tools map[string]bool) string {
	var list []string
	for name := range tools {
		list = append(list,
			fmt.Sprintf(
				`{"name":%q,"description":"d","timeout":%d,"parameters":{"properties":{"n":{"type":"integer"}}}}`,
				name, int64(1+l.r.IntN(longestTool))*unit.Milliseconds()))
	}
	return strings.Join(list, ",")
}

// hooks are rules and transforms; a kind without gates sometimes has one.
func (l *link) hooks() string {
	return fmt.Sprintf(`{"onPreToolUse":[%s],"transforms":{%s}}`, l.rules(), l.transforms())
}

func (l *link) rules() string {
	r := l.r
	var rules []string
	add := func(format string, args ...any) { rules = append(rules, fmt.Sprintf(format, args...)) }
	if l.kind.inAllSessions {
		add(`{"match":{"args":"\"frozen\":true"},"action":"gate","gateId":%q}`, gateStrict)
		add(`{"match":{"args":"\"thawing\":true"},"action":"gate","gateId":%q,"failOpen":true}`,
			gateOpen)
		return strings.Join(rules, ",")
	}
	if !l.kind.isGuard {
		if r.IntN(10) == 0 {
			add(`{"match":{"provider":%q},"action":"gate","gateId":%q}`, l.kind.name, gateStrict)
		}
		return strings.Join(rules, ",")
	}
	for range 1 + r.IntN(3) {
		switch r.IntN(8) {
		case 0:
			add(`{"match":{"tool":"t*"},"action":"gate","gateId":%q,"failOpen":true}`, gateOpen)
		case 1:
			add(`{"match":{"args":"\"n\":\\d*7\\b"},"action":"gate","gateId":%q}`, gateStrict)
		case 2:
			add(`{"match":{"tool":"t%d","args":"5}"},"action":"deny"}`, r.IntN(stormTools))
		case 3:
			add(`{"match":{"tool":"t*"},"action":"context","content":"c"}`)
		default:
			add(`{"match":{"tool":"t%d"},"action":"gate","gateId":%q}`, r.IntN(stormTools),
				gateStrict)
		}
	}
	return strings.Join(rules, ",")
}

func (l *link) transforms() string {
	switch {
	case l.kind.inAllSessions:
		return `"frozen":{"action":"callback"},"safety":{"action":"append","content":"a"}`
	case l.kind.isGuard:
		return `"tone":{"action":"callback"},"safety":{"action":"append","content":"a"}`
	}
	return ""
}

func (l *link) stepTools() {
	tools := l.tools()
	members := fmt.Sprintf(`"tools":[%s]`, l.definitions(tools))
	l.sendUpdate(protocol.TypeToolsUpdate, members, func() { l.offered = tools })
}

// stepDelta removes a tool, or adds it again.
func (l *link) stepDelta() bool {
	if len(l.kind.tools) == 0 {
		return false
	}
	own := fmt.Sprintf("t%d", l.kind.tools[0])
	tools, remove := map[string]bool{}, own
	if l.r.IntN(5) != 0 {
		tools[own], remove = true, "t9"
	}
	members := fmt.Sprintf(`"tools":[%s],"remove":[%q]`, l.definitions(tools), remove)
	l.sendUpdate(protocol.TypeToolsUpdate, members, func() {
		if l.offered != nil {
			l.offered = maps.Clone(l.offered)
			maps.Copy(l.offered, tools)
			delete(l.offered, remove)
		}
	})
	return true
}

func (l *link) stepHooks() bool {
	// new rules would restart the long waits for its gates
	if l.kind.inAllSessions && l.r.IntN(1000) != 0 {
		return false
	}
	transforms := l.transforms()
	if l.kind.isGuard && !l.kind.inAllSessions && l.r.IntN(3) == 0 {
		transforms = `"tone":null`
	}
	l.sendUpdate(protocol.TypeHooksUpdate, fmt.Sprintf(`"onPreToolUse":[%s],"transforms":{%s}`,
		l.rules(), transforms),
		func() { l.deniesOwnTools = false })
	return true
}

func (l *link) stepDeny() bool {
	if len(l.kind.tools) == 0 || l.kind.isGuard {
		return false
	}
	l.sendUpdate(protocol.TypeHooksUpdate,
		fmt.Sprintf(`"onPreToolUse":[{"match":{"provider":%q},"action":"deny"}]`,
			l.kind.name), func() { l.deniesOwnTools = true })
	return true
}

func (l *link) stepContext() {
	l.sendUpdate(protocol.TypeContextUpdate,
		fmt.Sprintf(`"context":%q`, []string{"", "new"}[l.r.IntN(2)]), func() {})
}

func (l *link) stepFilter() {
	l.sendUpdate(protocol.TypeFilterSet,
		`"stream":"s","rules":[{"match":"^e\\d","outcome":"drop"},{"match":"x","outcome":"keep"}]`,
		func() {})
}

func (l *link) stepQuery() {
	session := l.session
	if session == "" {
		session = l.w.randomSession(l.r).ID()
	}
	l.send(`{"type":"stream.query","queryId":"q","sessionId":%q}`, session)
}

func (l *link) stepPush() {
	l.requestCount++
	level := []protocol.Level{protocol.LevelKeep, protocol.LevelSurface,
		protocol.LevelInject}[l.r.IntN(3)]
	l.send(`{"type":"push","requestId":"p%d","level":%q,"stream":"s","event":%q,"broadcast":true}`,
		l.requestCount, level, []string{"e", "e1", "x"}[l.r.IntN(3)])
}

// stepImpostor has another connection claim this instance.
func (l *link) stepImpostor() bool {
	if l.kind.instance == "" {
		return false
	}
	other := l.w.newLink(l.index, l.r)
	other.send(`{"type":"auth","token":%q}`, l.w.g.InstanceToken())
	other.send(
		`{"type":"hello","name":%q,"instance":%q,"protocolVersion":2,"session":%q,"tools":[]}`,
		l.kind.name, l.kind.instance, l.w.randomSession(l.r).ID())
	l.w.trackProvider(other.conn)
	for _, m := range other.inbox.drain() {
		if e, ok := m.(*protocol.Error); ok {
			l.w.tally.add(fmt.Sprintf("error: %s", e.Code))
		}
	}
	other.conn.Closed()
	return true
}
