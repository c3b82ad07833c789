//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// waitProvider waits until a provider stands in the list with a state, and its row has these
// buttons.
func (v *view) waitProvider(name, state string, buttons ...string) {
	v.t.Helper()
	v.until(`[...document.querySelectorAll(".providers tbody tr")].some((tr) =>
		tr.querySelector("th a").textContent === %s && tr.querySelector(".chip").textContent === %s &&
		[...tr.querySelectorAll("button")].filter((b) => !b.hidden).map((b) => b.textContent).join() ===
			(%s ?? []).join())`, name, state, buttons)
}

// TestPageProviders goes through providers in all their states: what does not run says why and
// offers what would work, a stopped one is started again, and one that ends again and again has its
// reason, next start and log where it stands.
func TestPageProviders(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	session := h.local("--label", "desk")
	weather := fmt.Sprintf(
		"kind = \"command\"\nname = \"weather\"\ncommand = [%q, \"__demo-provider\"]\n", tapgw)
	h.put("providers/sky.toml", weather)
	h.put("providers/off.toml", weather+"enabled = false\n")
	h.put("providers/nobody.toml", weather+"sessions = { label = \"nobody\" }\n")
	g.peer(session, "guest")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.show("Providers")
	v.waitProvider("sky", "running", "Restart", "Stop…")
	v.waitProvider("off", "stopped")
	v.waitText(".providers td", "enabled = false")
	v.waitProvider("nobody", "waiting", "Stop…")
	v.waitProvider("guest", "bound", "Stop…")
	v.waitText(".providers td", "only who started it can start it again")

	// What is wrong stands where it is: the line above all views leads there.
	eval[any](v.tab, `window.nexts = new Set(), new MutationObserver(() => {
		for (const el of document.querySelectorAll(".provider ~ *, .next time")) nexts.add(el.textContent);
	}).observe(document.querySelector(".providers"), { subtree: true, childList: true, characterData: true }), 0`)
	h.put("providers/wrong.toml", "kind = \"command\"\ncomand = [\"ci\"]\n")
	h.put("providers/loops.toml",
		"kind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo going under; exit 3\"]\n")
	v.waitProvider("wrong", "failed")
	v.waitProvider("loops", "failed", "Start", "Stop…")
	v.until(`[...nexts].some((text) => text.startsWith("in "))`)
	v.until(
		`document.querySelector(".banners").textContent === "2 providers with a fault: loops, wrong"`)
	v.show("Activity")
	v.focusOn(`.banner a[href$=loops]`)
	v.press(kb.Enter)
	v.waitText(".provider h2", "loops")
	v.waitText(".provider .why-now", "not started again after 5 failures in a minute")
	v.waitText(".provider .entry", "going under")
	v.waitText(".provider .faults", "loops.toml:1:1")
	v.checkEverywhere("providers-failed")
	h.put("providers/loops.toml", weather+"prefix = \"my_\"\n")
	v.waitProvider("loops", "running", "Restart", "Stop…")
	v.waitText(".toollist", "my_get_weather")
	v.until(`!document.querySelector(".providers .next:not([hidden])")`)

	// There and back, with the keyboard alone.
	v.focusOn(`[aria-label="Stop… sky"]`)
	v.press(kb.Enter)
	v.waitText("dialog", "It stays stopped until somebody starts it")
	v.focusOn(`dialog [type=submit]`)
	v.press(kb.Enter)
	v.waitNoDialog()
	v.waitProvider("sky", "stopped", "Start")
	h.toolsAre(session, map[string]string{"my_get_weather": ""})
	v.focusOn(`[aria-label="Start sky"]`)
	v.press(kb.Enter)
	v.waitProvider("sky", "running", "Restart", "Stop…")
	h.toolsAre(session, map[string]string{"my_get_weather": "", "get_weather": ""})
	h.removeFile("providers/loops.toml")
	v.waitText(".provider .why-now", "No file names it, and it is not connected.")
	v.checkFaults(g.origin())
}

const deployParameters = `{"type":"object","required":["name","count"],"properties":{
	"name":{"type":"string","minLength":2,"description":"Of the service \u202egpj"},
	"count":{"type":"integer","minimum":1},
	"ratio":{"type":"number","default":0.5},
	"mode":{"type":"string","enum":["fast","safe"],"default":"safe"},
	"dry":{"type":"boolean"},
	"tags":{"type":"array","items":{"type":"string"}},
	"target":{"$ref":"#/$defs/target"},
	"filter":{"anyOf":[{"type":"string"},{"type":"object"}]}},
	"$defs":{"target":{"type":"object","required":["host"],"properties":{
		"host":{"type":"string"},"port":{"type":"integer"},"next":{"$ref":"#/$defs/target"}}}}}`

// fillField writes into the field whose label begins with a text.
func (v *view) fillField(label, text string) {
	v.t.Helper()
	v.until(`(() => {
		const label = [...document.querySelectorAll(".tool-call label")].find((l) => l.textContent.startsWith(%s));
		label?.control?.focus();
		label?.control?.select?.();
		return label && document.activeElement === label.control;
	})()`, label)
	v.press(text)
}

// says waits until the form says these arguments as JSON.
func (v *view) says(arguments string) {
	v.t.Helper()
	v.until(
		`document.querySelector(".as-json textarea").value === JSON.stringify(JSON.parse(%s), null, 2)`, arguments)
}

// faultAt waits until a fault stands at the field with a label.
func (v *view) faultAt(label, fault string) {
	v.t.Helper()
	v.until(`[...document.querySelectorAll(".tool-call label")].some((l) => l.textContent.startsWith(%s) &&
		l.parentElement.querySelector(".fault").textContent.includes(%s) && document.activeElement === l.control)`, label, fault)
}

// TestPageCallsTool calls a tool with a form of its schema: in the session that is chosen, with
// faults at their fields, through gates, and with each result kept.
func TestPageCallsTool(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	desk, lab := h.local("--label", "desk"), h.local("--label", "lab")
	hello := func(session string) *peer {
		c := g.connect()
		c.send(message{"type": "auth", "token": h.read(".provider-token")})
		c.next("sessions")
		c.send(message{"type": "hello", "name": "ops", "protocolVersion": 2, "session": session,
			"tools": []message{{
				"name": "deploy", "description": "Deploys a service", "timeout": 600_000,
				"annotations": message{"destructiveHint": true},
				"parameters":  json.RawMessage(deployParameters)}},
			"hooks": message{"onPreToolUse": []message{{"action": "deny",
				"reason": "not on a Friday",
				"match":  message{"tool": "deploy", "args": "forbidden"}}}}})
		c.next("hello.ack")
		return c
	}
	hello(desk)
	ops := hello(lab)
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	eval[any](v.tab, `location.hash = "#/providers/ops", 0`)
	v.focusOn(".toollist summary")
	v.press(kb.Enter)
	v.waitText(".tool-call .hint", "It may destroy: so says its provider.")
	v.waitText(".tool-call .hint", `Of the service \u202egpj`)
	v.says(`{"ratio":0.5,"mode":"safe"}`)

	// What is missing is said where it is missing.
	v.button("Call")
	v.faultAt("name", "is required")
	v.fillField("name", "x")
	v.fillField("count", "0")
	v.button("Add to tags")
	v.press("red")
	v.says(`{"name":"x","count":0,"ratio":0.5,"mode":"safe","tags":["red"]}`)
	v.fillField("host", "h1") // of the target, which is an object
	v.fillField("filter", `{"a": [1]`)
	v.button("Call")
	v.faultAt("filter", "is not JSON")
	v.fillField("filter", `{"a":[1]}`)
	v.says(
		`{"name":"x","count":0,"ratio":0.5,"mode":"safe","tags":["red"],"target":{"host":"h1"},"filter":{"a":[1]}}`)

	// The gateway judges, and its faults stand at their fields.
	v.button("Call")
	v.faultAt("count", "minimum")
	v.fillField("count", "1")
	v.button("Call")
	v.faultAt("name", "minLength")
	v.checkEverywhere("tool")

	// The JSON and the form say the same, also what no field has.
	v.click(".as-json summary")
	v.fill(".as-json textarea", `{"name":"api","count":"many","tags":["a","b"],"extra":true}`)
	v.until(`document.querySelectorAll(".tool-call .items-of li").length === 2`)
	v.waitText(".tool-call .hint", "As JSON: many")
	v.fillField("count", "2")
	v.says(`{"name":"api","count":2,"tags":["a","b"],"extra":true}`)

	// It is called in the session that is chosen.
	v.until(`(() => {
		const s = document.querySelector(".tool-call select");
		s.value = %s;
		return s.checkVisibility() && s.value;
	})()`, lab)
	answer := func(result message) {
		t.Helper()
		call := ops.next("tool.call")
		const want = `{"count":2,"extra":true,"name":"api","tags":["a","b"]}`
		if got, _ := json.Marshal(call["args"]); string(got) != want {
			t.Errorf("the provider is called with %s, want %s", got, want)
		}
		ops.send(with(message{"type": "tool.result", "id": call["id"]}, result))
	}
	v.button("Call")
	answer(message{"data": message{"url": hostile}})
	v.waitText(".call-results li.ok pre", "<img src=x")
	v.waitText(".call-results li:first-child .head", "lab")
	v.keepPicture("result")
	v.until(
		`/ok in [0-9.]+ (ms|s)/.test(document.querySelector(".tool-call form [role=status]").textContent)`)
	v.button("Call")
	answer(message{"error": "the host is gone", "errorCode": "INTERNAL"})
	v.waitText(".call-results li:first-child", "the host is gone")
	v.waitText(".call-results li:first-child .outcome", "INTERNAL")

	// A call that runs can be cancelled.
	v.button("Call")
	call := ops.next("tool.call")
	v.button("Cancel")
	if id := ops.next("tool.cancel")["id"]; id != call["id"] {
		t.Errorf("the call %v is cancelled, want %v", id, call["id"])
	}
	v.waitText(".call-results li:first-child .outcome", "CANCELLED")

	// Rules decide about it as about a call of the model.
	v.fillField("name", "forbidden")
	v.button("Call")
	v.waitText(".call-results li:first-child", "not on a Friday")
	v.waitText(".call-results li:first-child .outcome", "DENIED")
	v.until(`document.querySelectorAll(".call-results > li").length === 6`)

	// The rule stands at its provider and in Activity, with what it decided last: about which call,
	// why, and how long.
	for _, at := range []string{"#/providers/ops", "#/activity"} {
		eval[any](v.tab, `location.hash = %s, 0`, at)
		v.until(`[...document.querySelectorAll("main tr")].some((tr) => tr.checkVisibility() &&
			["args forbidden", "(rule 1)", "deny", "lab", "not on a Friday", '"name":"forbidden"', " ms"].every((text) =>
				tr.textContent.includes(text)))`)
		v.until(`[...document.querySelectorAll("main tr")].some((tr) => tr.checkVisibility() &&
			["args forbidden", "desk", "none lately"].every((text) => tr.textContent.includes(text)))`)
	}
	v.checkEverywhere("rules")
	v.checkFaults(g.origin())
}

// TestPageDropped: what a filter dropped stands in Streams, with the rule, and the tester tries it.
func TestPageDropped(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	session := h.local("--label", "desk")
	ci := g.peer(session, "ci")
	ci.send(message{"type": "filter.set", "stream": "builds", "requestId": "f", "rules": []message{
		{"match": "failed", "outcome": "surface"}, {"match": "^GET /healthz", "outcome": "drop"}}})
	ci.next("ack")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	eval[any](v.tab, `location.hash = %s, 0`, "#/streams/"+session)
	v.waitText(".streams .empty", "Nothing was pushed")
	for _, text := range []string{"GET /healthz 200 " + hostile, "run 812 failed"} {
		ci.send(message{"type": "push", "stream": "builds", "level": "keep", "event": text,
			"requestId": text})
	}
	v.until(`[...document.querySelectorAll(".events tbody tr")].some((tr) =>
		["dropped", "by rule 2: ^GET /healthz", "builds@ci", "GET /healthz 200"].every((s) => tr.textContent.includes(s)))`)
	v.waitText(".events tbody", "run 812 failed")
	v.fill(".rules input", "healthz")
	v.waitText(".tester", "1 of 2 events match: 1 drop")
	v.checkEverywhere("dropped")
	v.checkFaults(g.origin())
}
