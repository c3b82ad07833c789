package gateway

import (
	"fmt"
	"maps"
	"strings"

	"tapgw/internal/protocol"
)

// step is something that a provider does of its own accord. It reports false if it
// can't.
type step struct {
	weight int
	what   string
	rough  bool // may cost its connection, or a call that it is not about
	do     func(*life) bool
}

func always(do func(*life)) func(*life) bool {
	return func(l *life) bool { do(l); return true }
}

var steps = []step{
	{60, "answers", false, (*life).stepAnswer},
	{4, "answers again", false, (*life).stepAgain},
	{2, "forgets a call", false, (*life).stepForget},
	{3, "tool.progress", false, (*life).stepProgress},
	{20, "answers a gate later", false, (*life).stepGate},
	{20, "answers a transform later", false, (*life).stepTransform},
	{3, "offers tools anew", false, always((*life).stepTools)},
	{3, "adds and removes tools", false, (*life).stepDelta},
	{4, "offers hooks anew", false, (*life).stepHooks},
	{1, "denies all its tools", false, (*life).stepDeny},
	{2, "context.update", false, always((*life).stepContext)},
	{2, "filter.set", false, always((*life).stepFilter)},
	{1, "stream.query", false, always((*life).stepQuery)},
	{3, "push", false, always((*life).stepPush)},
	{1, "another with its name", false, (*life).stepImpostor},
	{2, "rebinds", true, always(func(l *life) { l.hello("") })},
	{1, "rebinds, malformed", true, always(func(l *life) {
		l.ask(string(protocol.TypeHello), func() {})
		l.say(`{"type":"hello"}`)
	})},
	{1, "nonsense", true, always(func(l *life) { l.say(`nonsense`) })},
	{1, "a binary frame", true, always(func(l *life) { l.conn.ReceiveBinary() })},
	{1, "an answer to nothing", true, always(func(l *life) {
		l.strays++
		l.say(`{"type":"tool.result","id":"never","data":1}`)
	})},
	{1, "leaves", true, always(func(l *life) { l.ends = true })},
}

var stepWeights = func() (sum int) {
	for _, s := range steps {
		sum += s.weight
	}
	return sum
}()

// act takes a step.
func (l *life) act() {
	n := l.r.IntN(stepWeights)
	for _, s := range steps {
		if n -= s.weight; n >= 0 {
			continue
		}
		if (!s.rough || !l.kind.steady) && s.do(l) {
			l.w.tally.add("step: " + s.what)
		}
		return
	}
}

// pick returns a random element of a list.
func pick[T any](l *life, list *[]T) (it T, ok bool) {
	if len(*list) == 0 {
		return it, false
	}
	i := l.r.IntN(len(*list))
	it = (*list)[i]
	*list = append((*list)[:i], (*list)[i+1:]...)
	return it, true
}

// surely is the number of later calls for which the gateway certainly remembers the
// end of a call. It remembers more, since calls that were sent before may end after.
const surely = protocol.MaxFinishedCalls / 4

func (l *life) stepAnswer() bool {
	c, ok := pick(l, &l.open)
	if ok = ok && l.peer.since(c.heard) < surely; ok {
		l.reply(c)
	}
	return ok
}

func (l *life) stepAgain() bool {
	c, ok := pick(l, &l.answered)
	if ok = ok && l.peer.since(c.heard) < surely; ok {
		l.reply(c)
	}
	return ok
}

func (l *life) stepForget() bool {
	_, ok := pick(l, &l.open)
	return ok
}

func (l *life) stepProgress() bool {
	c, ok := pick(l, &l.open)
	if ok {
		l.open = append(l.open, c)
		l.say(`{"type":"tool.progress","id":%q,"message":"m"}`, c.id)
	}
	return ok
}

func (l *life) stepGate() bool {
	m, ok := pick(l, &l.checks)
	if ok {
		l.grant(m, protocol.DecisionAllow)
	}
	return ok
}

func (l *life) stepTransform() bool {
	m, ok := pick(l, &l.requests)
	if ok {
		l.say(`{"type":"transform.result","callId":%q,"content":%q}`, m.CallID, m.Current+"-")
	}
	return ok
}

// reply answers a call in one of several ways.
func (l *life) reply(c received) {
	l.answered = append(l.answered, c)
	at, running := l.running[c.id]
	delete(l.running, c.id)
	if running && !at.IsZero() {
		l.w.tally.add("result: late")
	}
	add := func(what string) { l.w.tally.add("result: " + what) }
	switch n := l.r.IntN(24); {
	case n < 14:
		add("data")
		l.say(`{"type":"tool.result","id":%q,"data":{"n":%d}}`, c.id, c.n)
	case n < 16:
		add("error")
		l.say(`{"type":"tool.result","id":%q,"error":"no","errorCode":"UNAUTHORIZED"}`, c.id)
	case n < 19:
		add("error, retryable")
		l.w.entryOf(c.n).retries.Add(1)
		l.say(`{"type":"tool.result","id":%q,"error":"no","errorCode":"UNAUTHORIZED","retryable":true}`, c.id)
	case n < 20:
		add("error, of an unknown code")
		l.say(`{"type":"tool.result","id":%q,"error":"it went wrong","errorCode":"OOPS"}`, c.id)
	case n < 21:
		add("data and error")
		l.say(`{"type":"tool.result","id":%q,"data":1,"error":"no","errorCode":"UNAUTHORIZED"}`, c.id)
	case n < 22:
		add("file")
		l.say(`{"type":"tool.result","id":%q,"file":{"path":"%d"}}`, c.id, c.n)
	case n < 23:
		add("malformed")
		l.say(`{"type":"tool.result","id":%q}`, c.id)
	default:
		add("too large")
		l.conn.ReceiveOversized(fmt.Appendf(nil, `{"type":"tool.result","id":%q,"data":"`, c.id), protocol.MaxResult+1)
	}
}

// hello binds the provider to a session, or binds it again.
func (l *life) hello(token string) {
	w, r := l.w, l.r
	members := ""
	add := func(format string, args ...any) { members += fmt.Sprintf(","+format, args...) }
	if l.kind.all {
		add(`"session":"all"`)
	} else {
		at := calmSession
		if !l.kind.steady {
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
	if l.kind.limited || r.IntN(8) == 0 {
		most = 1 + r.IntN(2)
		add(`"concurrency":{"max":%d,"scope":%q}`, most, []string{scopeInstance, scopeProvider, scopeTool}[r.IntN(3)])
	}
	var offered map[string]bool
	if l.restored && r.IntN(3) == 0 {
		// With its token it gets back what it had; without one it has nothing.
		w.tally.add("step: hello, as it was")
	} else {
		offered = l.tools()
		add(`"tools":[%s],"hooks":%s`, l.definitions(offered), l.hooks())
	}
	if l.kind.guard {
		add(`"context":"ambient","startup_context":"startup"`)
	}
	l.ask(string(protocol.TypeHello), func() {
		l.max, l.offered, l.denying = most, offered, false
		clear(l.running)
	})
	l.say(`{"type":"hello","name":%q,"protocolVersion":2%s}`, l.kind.name, members)
	w.note(l.conn)
}

// tools are the tools of its kind, and sometimes one of another kind.
func (l *life) tools() map[string]bool {
	list := map[string]bool{}
	for _, i := range l.kind.tools {
		list[fmt.Sprintf("t%d", i)] = true
	}
	if l.kind.instance == "" && !l.kind.steady && l.r.IntN(20) == 0 {
		list[fmt.Sprintf("t%d", l.r.IntN(stormTools-1))] = true
	}
	return list
}

func (l *life) definitions(tools map[string]bool) string {
	var list []string
	for name := range tools {
		list = append(list, fmt.Sprintf(`{"name":%q,"description":"d","timeout":%d,"parameters":{"properties":{"n":{"type":"integer"}}}}`,
			name, int64(1+l.r.IntN(longestTool))*unit.Milliseconds()))
	}
	return strings.Join(list, ",")
}

// hooks are rules and transforms; a kind without gates sometimes has one.
func (l *life) hooks() string {
	return fmt.Sprintf(`{"onPreToolUse":[%s],"transforms":{%s}}`, l.rules(), l.transforms())
}

func (l *life) rules() string {
	r := l.r
	var rules []string
	add := func(format string, args ...any) { rules = append(rules, fmt.Sprintf(format, args...)) }
	if l.kind.all {
		add(`{"match":{"args":"\"frozen\":true"},"action":"gate","gateId":%q}`, gateStrict)
		add(`{"match":{"args":"\"thawing\":true"},"action":"gate","gateId":%q,"failOpen":true}`, gateOpen)
		return strings.Join(rules, ",")
	}
	if !l.kind.guard {
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
			add(`{"match":{"tool":"t%d"},"action":"gate","gateId":%q}`, r.IntN(stormTools), gateStrict)
		}
	}
	return strings.Join(rules, ",")
}

func (l *life) transforms() string {
	switch {
	case l.kind.all:
		return `"frozen":{"action":"callback"},"safety":{"action":"append","content":"a"}`
	case l.kind.guard:
		return `"tone":{"action":"callback"},"safety":{"action":"append","content":"a"}`
	}
	return ""
}

func (l *life) stepTools() {
	tools := l.tools()
	l.update(protocol.TypeToolsUpdate, fmt.Sprintf(`"tools":[%s]`, l.definitions(tools)), func() { l.offered = tools })
}

// stepDelta removes a tool, or adds it again.
func (l *life) stepDelta() bool {
	if len(l.kind.tools) == 0 {
		return false
	}
	own := fmt.Sprintf("t%d", l.kind.tools[0])
	tools, remove := map[string]bool{}, own
	if l.r.IntN(5) != 0 {
		tools[own], remove = true, "t9"
	}
	l.update(protocol.TypeToolsUpdate, fmt.Sprintf(`"tools":[%s],"remove":[%q]`, l.definitions(tools), remove), func() {
		if l.offered != nil {
			l.offered = maps.Clone(l.offered)
			maps.Copy(l.offered, tools)
			delete(l.offered, remove)
		}
	})
	return true
}

func (l *life) stepHooks() bool {
	if l.kind.all && l.r.IntN(1000) != 0 { // a call that waits for a gate of it for long is asked about again
		return false
	}
	transforms := l.transforms()
	if l.kind.guard && !l.kind.all && l.r.IntN(3) == 0 {
		transforms = `"tone":null`
	}
	l.update(protocol.TypeHooksUpdate, fmt.Sprintf(`"onPreToolUse":[%s],"transforms":{%s}`, l.rules(), transforms),
		func() { l.denying = false })
	return true
}

func (l *life) stepDeny() bool {
	if len(l.kind.tools) == 0 || l.kind.guard {
		return false
	}
	l.update(protocol.TypeHooksUpdate, fmt.Sprintf(`"onPreToolUse":[{"match":{"provider":%q},"action":"deny"}]`,
		l.kind.name), func() { l.denying = true })
	return true
}

func (l *life) stepContext() {
	l.update(protocol.TypeContextUpdate, fmt.Sprintf(`"context":%q`, []string{"", "new"}[l.r.IntN(2)]), func() {})
}

func (l *life) stepFilter() {
	l.update(protocol.TypeFilterSet, `"stream":"s","rules":[{"match":"^e\\d","outcome":"drop"},{"match":"x","outcome":"keep"}]`, func() {})
}

func (l *life) stepQuery() {
	session := l.session
	if session == "" {
		session = l.w.session(l.r).ID()
	}
	l.say(`{"type":"stream.query","queryId":"q","sessionId":%q}`, session)
}

func (l *life) stepPush() {
	l.number++
	level := []protocol.Level{protocol.LevelKeep, protocol.LevelSurface, protocol.LevelInject}[l.r.IntN(3)]
	l.say(`{"type":"push","requestId":"p%d","level":%q,"stream":"s","event":%q,"broadcast":true}`, l.number, level,
		[]string{"e", "e1", "x"}[l.r.IntN(3)])
}

// stepImpostor has another connection claim this instance.
func (l *life) stepImpostor() bool {
	if l.kind.instance == "" {
		return false
	}
	other := l.w.newLife(l.index, l.r)
	other.say(`{"type":"auth","token":%q}`, l.w.g.InstanceToken())
	other.say(`{"type":"hello","name":%q,"instance":%q,"protocolVersion":2,"session":%q,"tools":[]}`, l.kind.name,
		l.kind.instance, l.w.session(l.r).ID())
	l.w.note(other.conn)
	for _, m := range other.peer.take() {
		if e, ok := m.(*protocol.Error); ok {
			l.w.tally.add(fmt.Sprintf("error: %s", e.Code))
		}
	}
	other.conn.Closed()
	return true
}
