//go:build e2e && linux

package e2e_test

import (
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// servePage starts a gateway whose sessions run on a scripted model.
func (h *home) servePage(m *scriptmodel.Server, more string) *gateway {
	h.t.Helper()
	config := "[copilot]\nprovider_url = \"" + m.URL + "\"\nmodels = [\"" + scriptmodel.ModelID +
		"\", \"another\"]\n" + more
	if err := os.WriteFile(h.path("tapgw.toml"), []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return h.serve("--config", h.path("tapgw.toml"))
}

// TestPage does what a person does on the page, with a session of the real
// runtime: signs in by a link, starts it, follows a turn with a tool call, sees
// pushes, a pairing and a question, changes the model, stops it and resumes it.
func TestPage(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	rest := make(chan struct{})
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		switch prompt := r.LastUser(); {
		case strings.Contains(prompt, "greet Ada") && r.LastResult() == "":
			return scriptmodel.Reply{Reasoning: "A greeting is wanted.",
				ToolCalls: []scriptmodel.ToolCall{{Name: "greet", Args: `{"name":"Ada"}`}}}
		case strings.Contains(prompt, "greet Ada"):
			return scriptmodel.Reply{
				Text:  "**Done.** She was greeted:\n\n- by `greet`\n- with <b>tags</b> and ![a picture](https://example.com/track.png)\n\n| Who | How |\n|---|---|\n| Ada | politely |",
				Pause: rest,
			}
		}
		return scriptmodel.Calls(r)
	})
	g := h.servePage(m, "[copilot.permissions]\nshell = \"ask\"\n")
	p := h.browser().profile(t)

	// Somebody who is not signed in is told how to.
	v := p.openView(g.origin() + "/")
	v.waitText("main", "tapctl open")
	v.keepPicture("signin")

	v.visit(h.link())
	v.waitText(".side", "No session runs")
	v.waitText(".connection", "Live")
	if location := eval[string](v.tab, `location.href`); strings.Contains(location, "code") {
		t.Errorf(`the link's code is still in the address %s, want no "code" in it`, location)
	}

	// A session.
	session := pageStarts(h, v)
	h.bindProvider(session, "greeter", "greet")
	v.waitText(".note", "provider greeter joined")

	pageShowsTurn(t, v, rest)
	pageUnfoldsCall(v)
	pageShowsPushes(t, h, v, session)
	pagePairs(t, g, v, session)
	pageAsks(t, h, v, session)
	pageChangesModel(v)
	pageOtherViews(v)
	pageStops(h, v, session)
	pageResumes(h, g, v)
	v.button("Sign out")
	v.waitText("main", "tapctl open")
}

// pageStarts starts a session from the empty page: an error stands at the field that it names, and
// what was written is there again after the dialog was closed, but for secrets.
func pageStarts(h *home, v *view) string {
	h.t.Helper()
	v.waitText(".first .code", "tapgw install copilot")
	v.checkWidths("first")
	v.button("Start a session")
	v.fill("#start-model", scriptmodel.ModelID)
	v.fill("#start-cwd", h.path("nowhere"))
	v.fill("#start-label", "review")
	v.fill("#start-prompt", "who is there?")
	v.button("Start")
	v.waitText("#start-cwd + .fault", "does not exist")
	v.until(
		`document.activeElement.id === "start-cwd" && document.activeElement.ariaInvalid === "true"`)
	v.fill("#start-cwd", h.path("work"))
	v.click("dialog summary")
	v.fill("#start-profile", "nobody")
	v.fill("#start-providerKey", "of no endpoint")
	v.click("dialog summary")
	v.button("Start")
	v.waitText("#start-providerKey + .fault", "requires providerUrl")
	v.checkWidths("start")
	v.press("\x1b") // leaves the field
	v.press("\x1b")
	v.waitNoDialog()
	v.button("New…")
	v.until(`document.querySelector("#start-providerKey").value === ""`)
	v.button("Start")
	v.waitText("#start-profile + .fault", "there is no profile")
	v.fill("#start-profile", "\b")
	v.button("Start")
	v.waitText(".session h2", "review")
	v.waitText(".entry.prompt", "who is there?")
	v.waitText(".entry.message", "You said: who is there?")
	v.waitText(".chip", "idle")
	v.waitNoDialog()
	return eval[string](v.tab, `decodeURIComponent(location.hash.split("/")[2])`)
}

// pageShowsTurn starts a turn and follows it as it streams.
func pageShowsTurn(t *testing.T, v *view, rest chan struct{}) {
	t.Helper()
	v.press("/")
	v.press("please greet Ada")
	v.press("\r", chromedp.KeyModifiers(chromedp.ModifierCtrl))
	v.waitText(".entry.prompt", "please greet Ada")
	v.waitText(".entry.tool .name", "greet")
	v.waitText(".entry.message.streaming", "Done.")
	v.waitText(".chip", "busy")
	if strings.Contains(v.text(".entry.message"), "politely") {
		t.Error("the page shows what the model did not say yet, want it to wait")
	}
	v.button("Interrupt") // and again below, by the end of the turn
	v.waitText(".chip", "idle")
	close(rest)
	v.fill("#prompt", "please greet Ada again")
	v.button("Send")
	v.waitText(".entry.message td", "politely")
	v.waitText(".chip", "idle")
	v.until(
		`document.querySelector(".entry.message strong")?.textContent === "Done." && !document.querySelector(".entry.message :is(b, img), .entry.message.streaming")`,
	)
	v.until(`document.querySelector("#prompt").value === ""`)
}

// pageUnfoldsCall opens the details of a call.
func pageUnfoldsCall(v *view) {
	v.until(
		`[...document.querySelectorAll(".entry.tool .state.ok")].length >= 1 && !document.querySelector(".entry.tool .part")`,
	)
	v.click(".entry.tool summary")
	v.waitText(".entry.tool .part", `"name": "Ada"`)
	v.waitText(".entry.tool .part", "Hello, Ada!")
	v.until(
		`[...document.querySelectorAll(".entry.reasoning summary")].some((e) => e.textContent.startsWith("Reasoned"))`,
	)
}

// pageShowsPushes pushes events of each level and looks for them once each.
func pageShowsPushes(t *testing.T, h *home, v *view, session string) {
	t.Helper()
	h.tapctl("push", "--session", session, "--stream", "builds", "run 811 ok in 4m12s")
	h.tapctl("push", "--session", session, "--stream", "builds", "--level", "keep",
		"GET /healthz 200")
	h.tapctl("push", "--session", session, "--stream", "builds", "--level", "inject", "--wait",
		"the build is red")
	for level, text := range map[string]string{"surface": "run 811 ok", "keep": "GET /healthz",
		"inject": "the build is red"} {
		v.until(
			`[...document.querySelectorAll(".entry.push")].filter((e) => e.textContent.includes(%s) && e.querySelector(".level." + %s)).length === 1`,
			text,
			level,
		)
	}
	v.waitText(".entry.prompt.from-provider", "the build is red")
	v.waitText(".entry.message", "the build is red")
	if notes := v.text(".entry.note"); strings.Contains(notes, "run 811 ok") {
		t.Errorf("a push is shown twice: %s, want it once", notes)
	}
}

// pagePairs pairs a page with the code that the view shows.
func pagePairs(t *testing.T, g *gateway, v *view, session string) {
	t.Helper()
	c := g.connectFrom("https://example.com")
	c.send(message{"type": "auth", "mode": "pair", "name": "browser", "session": session})
	c.next("auth.pairing")
	v.waitText(".card.pairing", "browser wants into review")
	c.send(message{"type": "auth.confirm", "code": v.text(".code-digits")})
	if token, _ := c.next("sessions")["token"].(string); token == "" {
		t.Error("the code that the page shows was not taken, want a token for it")
	}
	v.until(`!document.querySelector(".card.pairing")`)
}

// pageAsks answers a question about a permission.
func pageAsks(t *testing.T, h *home, v *view, session string) {
	t.Helper()
	asking := h.asking(session,
		`call:bash {"command":"echo it-was-allowed","description":"says so"}`)
	v.waitText(".card.question", "echo it-was-allowed")
	v.keepPicture("question")
	v.button("Allow once")
	v.until(`!document.querySelector(".card.question")`)
	if code := asking.wait(patience); code != 0 || asking.find("it-was-allowed") == "" {
		t.Errorf("the command that was allowed: exit code %d, want 0 and its output\n%s", code,
			asking.output())
	}
	v.keepPicture("session")
}

// pageChangesModel chooses another model.
func pageChangesModel(v *view) {
	v.button("Model…")
	v.until(
		`(() => { const s = document.querySelector("#model"); if (s) s.value = "another"; return s?.value === "another"; })()`,
	)
	v.keepPicture("model")
	v.button("Change")
	v.waitNoDialog()
	v.waitText(".session .meta", "another")
}

// pageOtherViews looks at providers, calls and streams.
func pageOtherViews(v *view) {
	v.press("2")
	v.waitText("tbody th", "greeter")
	v.until(
		`Number(document.querySelector("tr .calls")?.textContent) >= 1 && /ms|s/.test(document.querySelector("tr .p50").textContent)`,
	)
	v.click("tbody th a")
	v.waitText(".toollist", "greet")
	v.checkWidths("providers")
	v.press("4")
	v.waitText(".waterfall", "greet")
	v.until(`document.querySelector(".waterfall .ran").getBoundingClientRect().width >= 3`)
	v.checkWidths("activity")
	v.press("3")
	v.fill(".rules input", "^GET /healthz|red$")
	v.waitText(".tester", "2 of 3 events match: 2 drop")
	v.until(`document.querySelectorAll(".events .dropped").length === 2`)
	v.fill(".rules input", "(unclosed")
	v.waitText(".rules .fault", "Unterminated group")
	v.checkWidths("streams")
}

// pageStops stops the session.
func pageStops(h *home, v *view, session string) {
	v.press("\x1b")
	v.press("1")
	v.click(`.items [aria-label="Rename review"]`)
	v.fill("dialog input", "renamed")
	v.button("Rename")
	v.waitText(".items .label", "renamed")
	v.waitText(".session h2", "renamed")
	v.waitNoDialog()
	v.button("Stop…")
	v.button("Stop session")
	v.waitNoDialog()
	v.waitText(".side", "No session runs")
	v.waitText(".chip", "ended")
	v.waitText(".entry.mark", "The session has ended.")
	h.noSession(session)
}

// pageResumes finds the session among those that ended, and resumes it.
func pageResumes(h *home, g *gateway, v *view) {
	v.click(".side > .group .fold")
	v.waitText(".choices", "renamed")
	v.fill("[type=search]", "renamed work")
	v.waitText(".choices", "renamed")
	v.fill("[type=search]", "nothing like it")
	v.until(`!document.querySelector(".choices li")`)
	v.fill("[type=search]", "\b")
	v.waitText(".choices", "renamed")
	v.keepPicture("resume")
	v.checkWidths("ended")
	// Its directory has moved: the page asks for another one, from the list and in the session.
	if err := os.Rename(h.path("work"), h.path("moved")); err != nil {
		h.t.Fatal(err)
	}
	v.click(".choices button")
	v.waitText("#start-cwd + .fault", "is no more")
	v.press("\x1b") // leaves the field
	v.press("\x1b")
	v.waitNoDialog()
	v.click(".session .buttons .now:not([hidden])")
	v.waitText("#start-cwd + .fault", "is no more")
	v.fill("#start-cwd", h.path("moved"))
	v.button("Resume")
	v.waitNoDialog()
	v.waitText(".chip", "idle")
	v.waitText(".items", "renamed")
	v.waitText(".entry.prompt", "who is there?")
	v.until(`!document.querySelector(".choices li")`)
	v.fill("#prompt", "are you back?")
	v.button("Send")
	v.waitText(".entry.message", "You said: are you back?")
	v.checkFaults(g.origin())
}

// noSession checks that the gateway knows a session no more.
func (h *home) noSession(session string) {
	h.t.Helper()
	for _, s := range decode[[]adminapi.Session](h.t, h.tapctl("sessions", "--json")) {
		if s.ID == session {
			h.t.Errorf("session %s is still there, want its end", session)
		}
	}
}

// TestPageSignIn signs in by what somebody may paste, and looks into what the
// browser is sent.
func TestPageSignIn(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	b := h.browser()
	link := h.link()
	for name, paste := range map[string]string{"link": link,
		"code":  h.link()[strings.Index(link, "code=")+len("code="):],
		"token": h.read(".admin-token")} {
		v := b.profile(t).openView(g.origin() + "/")
		v.fill("#credential", "adm-wrong")
		v.press("\r")
		v.waitText(".fault", "not this gateway's admin token")
		v.fill("#credential", paste)
		v.press("\r")
		v.waitText(".connection", "Live")
		v.checkFaults(g.origin())
		if got := eval[string](v.tab,
			`document.cookie + JSON.stringify(localStorage)`); got != "{}" {
			t.Errorf(`after the %s scripts of the page can read %s, want "{}"`, name, got)
		}
		v.shut()
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http"+strings.TrimPrefix(g.url, "ws")+"/page/main.js", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = strings.TrimPrefix(g.origin(), "http://")
	if r, err := http.DefaultClient.Do(request); err != nil ||
		r.Header.Get("Cache-Control") != "no-cache" ||
		!strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf(
			`a part of the page is sent as %v %v, want no error, "no-cache" and a policy with "default-src 'none'"`,
			r, err,
		)
	} else {
		_ = r.Body.Close()
	}

	// A link that was used leads to the page, where another may be put in.
	used := b.profile(t).openView(link)
	used.waitText("main.signin", "was used before")
	used.keepPicture("used-link")
	used.click("main a")
	used.until(`document.querySelector("#credential")`)
	used.checkFaults(g.origin())
	used.shut()
}

// TestPageByFile signs in as tapctl open does on a terminal: by a file that
// only its user can read, since the link in a browser's arguments is everybody's.
func TestPageByFile(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	c := g.api()
	file := func() string {
		t.Helper()
		link, err := c.SigninLink(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(link.File); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("the file %s is %v, %v, want no error and 0o600", link.File, info, err)
		}
		return link.File
	}
	first := file()
	v := h.browser().profile(t).openView("file://" + first)
	v.waitText(".connection", "Live")
	if location := eval[string](v.tab, `location.href`); location != g.origin()+"/" {
		t.Errorf("the page is at %s, want %s/", location, g.origin())
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a link that was followed is still there: %v, want no file", err)
	}
	v.shut()

	// One that nobody follows goes with the gateway, or before the next one.
	unused := file()
	g.stop()
	if _, err := os.Stat(unused); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a gateway that has ended is still there: %v, want no file", err)
	}
	stale := h.state("signin-1.html")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.serve()
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a gateway that was killed is still there: %v, want no file", err)
	}
}
