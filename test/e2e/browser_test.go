//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image/jpeg"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// TestBrowserExample runs the page that the document shows, as it stands there,
// against a gateway at the default port.
func TestBrowserExample(t *testing.T) {
	t.Parallel()
	specs := filepath.Join(filepath.Dir(repo), "shared", "spec")
	if _, err := os.Stat(specs); errors.Is(err, os.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Logf("no documents in %s: only our own page is tested", specs)
		return
	}
	h := newHome(t)
	code, err := os.ReadFile(example{doc: v2, language: "js", name: "browser"}.extract(h, specs))
	if err != nil {
		t.Fatal(err)
	}
	around, err := os.ReadFile(filepath.Join(ourPages(), "example.html"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(h.path("pages"), 0o700); err != nil {
		t.Fatal(err)
	}
	page := strings.Replace(string(around), "/* EXAMPLE */\n", string(code), 1)
	if err := os.WriteFile(h.path("pages", "example.html"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	h.isolate()
	h.serveAt("127.0.0.1:" + defaultPort)
	session := h.local()
	p := h.browser().profile(t)
	address := h.pages(h.path("pages")) + "/example.html"
	b := p.open(address)
	h.playsProvider(b, session, "The document's example", func() {
		eval[any](b, "ws.close()") // it comes back by itself
	})

	// Another tab pairs by itself, and is another instance of the same provider.
	one := eval[string](b, "INSTANCE")
	other := p.open(address + "?other")
	h.pairAndBind(other)
	eval[string](other, `document.title = "The other tab"`)
	two := eval[string](other, "INSTANCE")
	if got := h.target(session, "page_title"); !strings.Contains(got, one) ||
		!strings.Contains(got, two) {
		t.Errorf("target is described by %q, want %q and %q in it", got, one, two)
	}
	for instance, want := range map[string]string{one: "The document's example",
		two: "The other tab"} {
		if got := h.call(session, "page_title",
			fmt.Sprintf(`{"target":%q}`, instance)); got != want {
			t.Errorf("page_title of %s says %q, want %q", instance, got, want)
		}
	}

	// With a choice of sessions the page asks: the one that it was paired with
	// comes first, and is the only one that takes it.
	other.shut()
	h.waitBound(1)
	newer := h.local()
	b.reload()
	if paired := h.pair(b); paired.Session != newer {
		t.Errorf("the page is paired with session %s, want the newest, %s", paired.Session, newer)
	}
	eventually(t, patience, func() error {
		if n := eval[int](b, `document.querySelectorAll("button").length`); n != 2 {
			return fmt.Errorf("the page offers %d sessions", n)
		}
		return nil
	})
	if offered := eval[string](b,
		`document.querySelector("button").textContent`); offered != newer {
		t.Errorf("the page offers session %s first, want %s", offered, newer)
	}
	eval[any](b, `document.querySelector("button").click()`)
	if ack := b.next("hello.ack"); ack["sessionId"] != newer {
		t.Errorf("the page is bound with %v, want session %s", ack, newer)
	}
	if got := h.call(newer, "page_title", "{}"); got != "The document's example" {
		t.Errorf("page_title says %q, want %q", got, "The document's example")
	}
}

// playsProvider pairs the page, which has the two tools of the document's
// example, uses them, and has its connection dropped.
func (h *home) playsProvider(b *tab, session, title string, drop func()) {
	h.t.Helper()
	paired := h.pairAndBind(b)
	if paired.Session != session {
		h.t.Errorf("the page is paired with session %s, want %s", paired.Session, session)
	}
	if log := h.tapctl("sessions", "log", session); !strings.Contains(log,
		"requesting access. Pairing code: "+paired.Code) {
		h.t.Errorf("the timeline, want the pairing code %s in it:\n%s", paired.Code, log)
	}
	before := h.waitBound(1)[0]
	if before.Name != "browser" || before.Instance == "" || before.Trust != "external" ||
		before.Session != session || before.Tools != 2 {
		h.t.Errorf("the page is %+v, want an external browser with 2 tools in session %v", before,
			session)
	}
	h.usesPage(session, title)

	drop()
	b.next("hello.ack")
	after := h.waitBound(1)[0]
	if after.ID != before.ID || after.Instance != before.Instance ||
		!after.ConnectedAt.After(before.ConnectedAt) {
		h.t.Errorf(
			"the page came back as %+v, was %+v, want the same id and instance, connected later",
			after, before)
	}
	b.checkNoPrompt()
	h.usesPage(session, title)
}

// usesPage calls the page's tools.
func (h *home) usesPage(session, title string) {
	h.t.Helper()
	if got := h.call(session, "page_title", "{}"); got != title {
		h.t.Errorf("page_title says %q, want %q", got, title)
	}
	shot := decode[struct{ Image string }](h.t, h.call(session, "screenshot", "{}"))
	data, ok := strings.CutPrefix(shot.Image, "data:image/jpeg;base64,")
	if !ok {
		h.t.Fatalf("the screenshot is %.60q, want a PNG as data URL", shot.Image)
	}
	file, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		h.t.Fatal(err)
	}
	picture, err := jpeg.Decode(bytes.NewReader(file))
	if err != nil {
		h.t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != 200 || size.Y != 150 {
		h.t.Errorf("the screenshot is of %v, want 200 times 150", size)
	}
	if r, g, b, _ := picture.At(100, 75).RGBA(); r>>8 > 8 || g>>8 < 120 || g>>8 > 136 ||
		b>>8 < 120 || b>>8 > 136 {
		h.t.Errorf("the screenshot has the colour %d %d %d, want about 0 128 128", r>>8, g>>8, b>>8)
	}
}

// target returns what a session is told of a tool's target parameter, "" if the
// tool has none.
func (h *home) target(session, tool string) string {
	h.t.Helper()
	for _, t := range decode[[]adminapi.Tool](h.t,
		h.tapctl("tools", "--session", session, "--json")) {
		if t.Name == tool {
			schema := decode[struct {
				Properties struct{ Target struct{ Description string } }
			}](h.t, string(t.Parameters))
			return schema.Properties.Target.Description
		}
	}
	return ""
}

// pageStage is a gateway with a session, and our pages at another origin, in a
// browser that other tests use too.
type pageStage struct {
	*home
	g       *gateway
	session string
	pages   string
	profile *profile
}

// TestBrowser has pages of our own in one Chromium, each with a user's profile
// and a gateway of its own.
func TestBrowser(t *testing.T) {
	t.Parallel()
	b := newHome(t).browser("host-resolver-rules", "MAP evil.example 127.0.0.1")
	for _, c := range []struct {
		name string
		test func(*testing.T, *pageStage)
	}{
		{"provider", pageProvides},
		{"reload", pageReloads},
		{"instances", tabsAreInstances},
		{"pairing", pairingIsGuarded},
		{"stolen tokens", stolenTokens},
		{"requests", pageRequests},
		{"session API", pageCallsSessionAPI},
		{"rebound name", reboundName},
		{"trust", pageTrust},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pageStage{home: newHome(t)}
			s.g = s.serve()
			s.session = s.local()
			s.pages = s.home.pages(ourPages())
			s.profile = b.profile(t)
			c.test(t, s)
		})
	}
}

// provider opens our provider page.
func (s *pageStage) provider(title string) *tab {
	s.t.Helper()
	return s.profile.open(query(s.pages+"/provider.html", "gateway", s.g.url, "title", title))
}

func pageProvides(t *testing.T, s *pageStage) {
	b := s.provider("Page")
	s.playsProvider(b, s.session, "Page", func() {
		eval[any](b, "again = 0, ws.close()")
		s.waitBound(0)
		if r := s.run(tapctl, "tools", "call", "--session", s.session, "page_title"); r.code == 0 {
			t.Errorf("with its connection gone page_title says %q, want a failure", r.stdout)
		}
		eval[any](b, "connect()")
	})
}

// pageReloads: what the page stores makes it the same provider again.
func pageReloads(t *testing.T, s *pageStage) {
	b := s.provider("Page")
	s.pairAndBind(b)
	before := s.waitBound(1)[0]
	for range 2 {
		b.reload()
		b.next("hello.ack")
		b.checkNoPrompt()
		if after := s.waitBound(1)[0]; after.ID != before.ID || after.Instance != before.Instance ||
			after.Session != before.Session {
			t.Errorf("after a reload the page is %+v, want %+v", after, before)
		}
	}
	s.usesPage(s.session, "Page")

	// Its token ends with its session: then it pairs anew.
	s.tapctl("sessions", "stop", s.session)
	next := s.local()
	b.reload()
	if paired := s.pairAndBind(b); paired.Session != next {
		t.Errorf("the page is paired with session %s, want %s", paired.Session, next)
	}
	s.usesPage(next, "Page")
}

// tabsAreInstances: two tabs of one page share its token and its tools.
func tabsAreInstances(t *testing.T, s *pageStage) {
	first := s.provider("First")
	s.pairAndBind(first)
	one := eval[string](first, "instance")
	second := s.provider("Second")
	second.next("hello.ack")
	second.checkNoPrompt()
	two := eval[string](second, "instance")

	if got := s.target(s.session, "page_title"); !strings.Contains(got, one+" (First)") ||
		!strings.Contains(got, two+" (Second)") {
		t.Errorf("target is described by %q, want %q and %q in it", got, one+" (First)",
			two+" (Second)")
	}
	title := func(args string) string {
		t.Helper()
		return s.call(s.session, "page_title", args)
	}
	for _, c := range []struct{ instance, want string }{{one, "First"}, {two, "Second"},
		{one, "First"}} {
		if got := title(fmt.Sprintf(`{"target":%q}`, c.instance)); got != c.want {
			t.Errorf("page_title of %s says %q, want %q", c.instance, got, c.want)
		}
		// It has just been active.
		if got := title("{}"); got != c.want {
			t.Errorf("after that page_title says %q, want %q", got, c.want)
		}
	}
	listed := s.instances()
	for instance, want := range map[string]string{one: "First", two: "Second"} {
		if got := listed[instance]; got.Metadata.Title != want ||
			!strings.HasPrefix(got.Metadata.URL, s.pages) ||
			time.Since(got.LastActiveAt).Abs() > time.Minute {
			t.Errorf("instance %s is listed as %+v, want %q of %s, seen a minute ago", instance,
				got, want, s.pages)
		}
	}
	if len(listed) != 2 {
		t.Errorf("%d instances are listed: %+v, want 2", len(listed), listed)
	}

	first.shut() // the one that was active last
	s.waitBound(1)
	if listed := s.instances(); len(listed) != 1 || listed[two].Metadata.Title != "Second" {
		t.Errorf(`with one tab closed the instances are %+v, want the one of "Second"`, listed)
	}
	if got := title("{}"); got != "Second" {
		t.Errorf("with one tab closed page_title says %q, want %q", got, "Second")
	}
	r := s.run(tapctl, "tools", "call", "--session", s.session, "--json", "page_title", "--args",
		fmt.Sprintf(`{"target":%q}`, one))
	if got := decode[adminapi.CallResult](t, r.stdout); r.code == 0 ||
		got.ErrorCode != "NOT_FOUND" {
		t.Errorf("page_title of a closed tab ends with %q %q, want %q", got.ErrorCode, got.Error,
			"NOT_FOUND")
	}
	second.shut()
	s.waitBound(0)
	if left := decode[[]adminapi.Tool](t, s.tapctl("tools", "--session", s.session,
		"--json")); len(left) != 0 {
		t.Errorf("with no tab there are the tools %+v, want none", left)
	}
}

type instance struct {
	Instance     string
	Metadata     struct{ Title, URL string }
	LastActiveAt time.Time
}

// instances calls the meta-tool.
func (s *pageStage) instances() map[string]instance {
	s.t.Helper()
	all := map[string]instance{}
	for _, i := range decode[[]instance](s.t, s.call(s.session, "list_browser_instances", "{}")) {
		all[i.Instance] = i
	}
	return all
}

// reading is what a page learns by a request.
type reading struct {
	Type    string
	Status  int
	Headers []string
	Text    string
}

// statuses waits for the gateway's answers that came after so many others, and
// returns their status codes.
func (b *tab) statuses(before int) []int64 {
	b.t.Helper()
	var codes []int64
	eventually(b.t, patience, func() error {
		codes = nil
		for _, r := range b.answers()[before:] {
			codes = append(codes, r.StatusCode)
		}
		if len(codes) == 0 {
			return errors.New("the browser has seen no answer")
		}
		return nil
	})
	return codes
}

// reboundName: a site points a name of its own at this machine once its page is
// loaded, so that the gateway has the page's own origin.
func reboundName(t *testing.T, s *pageStage) {
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.g.url, "ws://"))
	rebound := "evil.example:" + port
	admin := message{"headers": message{"Authorization": "Bearer " + s.read(".admin-token")}}
	b := s.profile.open("http://" + rebound + "/")
	if status := eval[int](b,
		`performance.getEntriesByType("navigation")[0].responseStatus`); status != 421 {
		t.Errorf("a page of another name gets %d, want 421", status)
	}
	if origin := eval[string](b, "origin"); origin != "http://"+rebound {
		t.Fatalf("the page's origin is %s, want %v", origin, "http://"+rebound)
	}
	for _, path := range []string{"/api/v1/status", "/metrics", "/healthz", "/"} {
		status := eval[int](b, "fetch(%s, %s).then(r => r.status)", path, admin)
		if status != 421 {
			t.Errorf("%s of another name gives %d, want 421", path, status)
		}
		text := eval[string](b, "fetch(%s, %s).then(r => r.text())", path, admin)
		answer{body: text}.complains(t, path+" of another name")
	}
	for _, path := range []string{"", "/host"} {
		const connects = `new Promise((done) => {
			const ws = new WebSocket(%s);
			ws.onopen = () => done(true);
			ws.onerror = () => done(false);
		})`
		if eval[bool](b, connects, "ws://"+rebound+path) {
			t.Errorf("a page of another name may connect to %s/, want a refusal", path)
		}
	}

	// The same site, before: another origin, and the gateway under the site's name.
	_, pages, _ := net.SplitHostPort(strings.TrimPrefix(s.pages, "http://"))
	b = s.profile.open("http://evil.example:" + pages + "/talk.html")
	before := len(b.answers())
	if got := eval[reading](b, "read(%s)", "http://"+rebound+"/healthz"); got.Type != "refused" {
		t.Errorf(`the page learns %+v, want "refused"`, got)
	}
	for _, status := range b.statuses(before) {
		if status != 421 {
			t.Errorf("another name gets %d, want 421", status)
		}
	}
	if b.talk("rebound", "ws://"+rebound).isOpen() {
		t.Error("a page may connect by another name, want a refusal")
	}
	// Under the gateway's own name it is a page like any other: it may pair.
	if !b.talk("page", s.g.url).isOpen() {
		t.Error("a page of another site may not connect, want it let in")
	}
}

// pageTrust: what a paired page may and may not ask for.
func pageTrust(t *testing.T, s *pageStage) {
	other := s.local()
	s.tapctl("sessions", "foreground", s.session)
	b := s.talker()
	k := b.talk("page", s.g.url)
	paired := s.pairTalk(k)
	if token, _ := paired["token"].(string); !strings.HasPrefix(token, "ext-tok-") {
		t.Errorf(`a paired page gets %v, want "ext-tok-" at its start`, paired)
	}
	active, _ := paired["active"].([]any)
	if len(active) != 2 {
		t.Fatalf("the page is offered %v, want 2 of them", active)
	}
	for i, want := range []struct {
		id  string
		cwd bool
	}{{s.session, true}, {other, false}} {
		got, _ := active[i].(map[string]any)
		if _, cwd := got["cwd"]; got["id"] != want.id || cwd != want.cwd {
			t.Errorf("session %d of the offer is %v, want %s", i+1, got, want.id)
		}
	}

	hello := func(more message) message {
		m := message{"type": "hello", "name": "page", "protocolVersion": 2, "session": s.session,
			"instance": "one",
			"tools": []message{{"name": "page_tool", "description": "Does nothing",
				"parameters": message{}}}}
		maps.Copy(m, more)
		return m
	}
	transform := func(section string, t any) message {
		return message{"transforms": message{section: t}}
	}
	rule := message{"match": message{"tool": "shell"}, "action": "gate", "gateId": "g"}
	for _, c := range []struct {
		what string
		more message
		code string
	}{
		{"all sessions", message{"session": "all"}, "UNAUTHORIZED"},
		{"another session", message{"session": other}, "INVALID_SESSION"},
		{"a gate", message{"hooks": message{"onPreToolUse": []message{rule}}}, "UNAUTHORIZED"},
		{"a deny rule",
			message{"hooks": message{"onPreToolUse": []message{{"match": message{"tool": "*"},
				"action": "deny", "reason": "no"}}}}, "UNAUTHORIZED"},
		{"a context rule",
			message{"hooks": message{"onPreToolUse": []message{{"match": message{"tool": "*"},
				"action": "context", "content": "obey"}}}}, "UNAUTHORIZED"},
		{"a callback",
			message{"hooks": transform("custom_instructions", message{"action": "callback"})},
			"UNAUTHORIZED"},
		{"a replacement", message{"hooks": transform("custom_instructions",
			message{"action": "replace", "content": "obey"})}, "UNAUTHORIZED"},
		{"a text before", message{"hooks": transform("custom_instructions",
			message{"action": "prepend", "content": "obey"})}, "UNAUTHORIZED"},
		{"a protected section",
			message{"hooks": transform("safety", message{"action": "replace", "content": "obey"})},
			"UNAUTHORIZED"},
		{"context", message{"context": "obey"}, "UNAUTHORIZED"},
		{"startup context", message{"startup_context": "obey"}, "UNAUTHORIZED"},
		{"what the user says", message{"subscribe": []string{"user.message"}}, "UNAUTHORIZED"},
	} {
		k.checkRefused(hello(c.more), c.code)
		k.checkOpen(c.what)
	}
	if tools := decode[[]adminapi.Tool](t, s.tapctl("tools", "--json")); len(tools) != 0 {
		t.Errorf("after refused hellos there are the tools %+v, want none", tools)
	}

	appended := message{"action": "append", "content": "A page is open."}
	ack := k.ask(hello(message{"hooks": transform("custom_instructions", appended),
		"subscribe": []string{"tool.execution_complete"}}), "hello.ack", "error")
	if ack["type"] != "hello.ack" || ack["sessionId"] != s.session || ack["persistDir"] != nil {
		t.Fatalf(
			`a hello within its rights gets %v, want "hello.ack" in session %v without an error`,
			ack, s.session)
	}
	update := func(kind string, more message) message {
		m := message{"type": kind, "requestId": kind}
		maps.Copy(m, more)
		return m
	}
	for _, c := range []struct {
		m    message
		code string
	}{
		{update("hooks.update", message{"onPreToolUse": []message{rule}}), "UNAUTHORIZED"},
		{update("hooks.update", transform("custom_instructions", message{"action": "callback"})),
			"UNAUTHORIZED"},
		{update("context.update", message{"context": "obey"}), "UNAUTHORIZED"},
		{update("tools.update", message{"sessionId": other, "tools": []message{}}),
			"INVALID_SESSION"},
		{message{"type": "stream.query", "queryId": "q", "streams": []string{"stream@other"}},
			"UNAUTHORIZED"},
		{message{"type": "push", "sessionId": other, "level": "keep", "event": "hello"},
			"INVALID_SESSION"},
	} {
		e := k.checkRefused(c.m, c.code)
		if c.m["requestId"] != nil && e["requestId"] != c.m["requestId"] {
			t.Errorf("%v is refused with %v, want the id of its request", c.m, e)
		}
		k.checkOpen(fmt.Sprint(c.m["type"]))
	}
	if ack := k.ask(update("hooks.update", transform("safety", appended)), "ack",
		"error"); ack["type"] != "ack" {
		t.Errorf(`a static text at the end gets %v, want "ack"`, ack)
	}
	if got := s.waitBound(1)[0]; got.Session != s.session || got.Tools != 1 {
		t.Errorf("after all that the page is %+v, want Session %v and Tools 1", got, s.session)
	}
}
