//go:build e2e && linux

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/dashboard"
)

// parts serves the page without a gateway, and the sources of its modules, to try these in a
// browser.
func parts(t *testing.T) *view {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", dashboard.Handler())
	mux.Handle("/sources/", http.StripPrefix("/sources/", http.FileServer(http.Dir(pageSources()))))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	v := newHome(t).browser().profile(t).openView(s.URL + "/")
	v.waitText("main", "tapgw")
	return v
}

func pageSources() string { return filepath.Join(repo, "internal", "dashboard", "page") }

// pageDuration is an expression for the function that writes durations on the page, whose scripts
// give it to nobody. It is for formats.
func pageDuration(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(pageSources(), "format.js"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("export ", "", "%", "%%").Replace(string(source))
	return "(() => {\n" + text + "\nreturn duration;\n})()"
}

// TestPageParts tries the modules of the page: Markdown, lists, filters and the timeline.
func TestPageParts(t *testing.T) {
	t.Parallel()
	v := parts(t)
	t.Run("Markdown", func(t *testing.T) { markdownRenders(t, v) })
	t.Run("Links", func(t *testing.T) { linksStayOutside(t, v) })
	t.Run("Limits", func(t *testing.T) { longTextsRender(t, v) })
	t.Run("Lists", func(t *testing.T) { listsReconcile(t, v) })
	t.Run("Filter", func(t *testing.T) { filterPreviews(t, v) })
	t.Run("Timeline", func(t *testing.T) { timelineMerges(t, v) })
	t.Run("Traces", func(t *testing.T) { tracesNest(t, v) })
	t.Run("Pauses", func(t *testing.T) { pausesFold(t, v) })
	if faults := v.faultsSoFar(); len(faults) > 0 {
		t.Errorf("the page had faults: %q, want none", faults)
	}
}

func markdownRenders(t *testing.T, v *view) {
	for source, want := range map[string]string{
		"a **b** _c_ *d* ***e*** ~~f~~ `g`":              `<p>a <strong>b</strong> <em>c</em> <em>d</em> <em><strong>e</strong></em> <del>f</del> <code>g</code></p>`,
		"snake_case_name, 2 * 3 * 4, **open":             `<p>snake_case_name, 2 * 3 * 4, **open</p>`,
		"# One\n\n### Three ##\n## C#\n# #\ntext":        `<h3>One</h3><h5>Three</h5><h4>C#</h4><h3></h3><p>text</p>`,
		"- a\n- b\n  - c\n- d\n\nafter":                  `<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul><p>after</p>`,
		"3. a\n4. b":                                     `<ol start="3"><li>a</li><li>b</li></ol>`,
		"- [x] done\n- [ ] not":                          `<ul><li class="task"><span role="img" aria-label="done">☑</span> done</li><li class="task"><span role="img" aria-label="not done">☐</span> not</li></ul>`,
		"> a\n> b\n\nc":                                  `<blockquote><p>a b</p></blockquote><p>c</p>`,
		"```go\nx := `a`\n<b>\n```\nafter":               `<div class="code"><div class="head"><span>go</span><button type="button" class="ghost wrap" title="Whether long lines of code are wrapped">Wrap</button><button type="button" class="copy">Copy</button></div><pre tabindex="0" role="group" aria-label="Code, go"><code>x := <span class="t-text">` + "`a`" + `</span>` + "\n" + `&lt;b&gt;</code></pre></div><p>after</p>`,
		"| a | b |\n|---|--:|\n| 1 | x\\|y |\n| 2 |":     `<div class="wide" tabindex="0" role="group" aria-label="Table"><table><thead><tr><th>a</th><th class="right">b</th></tr></thead><tbody><tr><td>1</td><td class="right">x|y</td></tr><tr><td>2</td><td class="right"></td></tr></tbody></table></div>`,
		"a  \nb\nc\\\nd":                                 `<p>a<br>b c<br>d</p>`,
		"---\ntext":                                      `<hr><p>text</p>`,
		"[a](https://e.com/x_(y)) <https://e.com>":       `<p><a href="https://e.com/x_(y)" target="_blank" rel="noopener noreferrer">a</a> <a href="https://e.com" target="_blank" rel="noopener noreferrer">https://e.com</a></p>`,
		"see https://e.com/a.":                           `<p>see <a href="https://e.com/a" target="_blank" rel="noopener noreferrer">https://e.com/a</a>.</p>`,
		"[a](javascript:alert(1)) [b](data:text/html,x)": `<p><span class="dead" title="javascript:alert(1)">a</span> <span class="dead" title="data:text/html,x">b</span></p>`,
		"![p](https://e.com/p.png)":                      `<p><a href="https://e.com/p.png" target="_blank" rel="noopener noreferrer">p</a></p>`,
		"<script>alert(1)</script> &lt;b&gt; &nope;":     `<p>&lt;script&gt;alert(1)&lt;/script&gt; &lt;b&gt; &amp;nope;</p>`,
		"": ``,
	} {
		const render = `import("/sources/markdown.js").then(({ render }) => { const el = document.createElement("div"); %s; return el.innerHTML; })`
		if got := eval[string](v.tab, strings.Replace(render, "%s", `render(el, %s)`, 1),
			source); got != want {
			t.Errorf("%q reads\n %s, want\n %s", source, got, want)
		}
		// As it streams, it comes to the same.
		if got := eval[string](v.tab, strings.Replace(render, "%s",
			`const s = %s; for (let i = 1; i <= s.length; i++) render(el, s.slice(0, i))`, 1),
			source); got != want {
			t.Errorf("%q reads, when it was streamed,\n %s, want\n %s", source, got, want)
		}
	}
}

func linksStayOutside(t *testing.T, v *view) {
	// No link leads to the gateway itself, however it is spelled; others of this
	// machine stay.
	own := eval[string](v.tab, `location.port`)
	for href, link := range map[string]bool{
		"http://127.0.0.1:" + own + "/api/stop":  false,
		"http://localhost:" + own + "/api/stop":  false,
		"http://[::1]:" + own + "/":              false,
		"HTTP://LOCALHOST:" + own + "/api/stop":  false,
		"http://localhost.:" + own + "/":         false,
		"http://a.localhost:" + own + "/":        false,
		"http://127.1:" + own + "/":              false,
		"http://2130706433:" + own + "/":         false,
		"http://0x7f.1:" + own + "/":             false,
		"http://0:" + own + "/":                  false,
		"http://127.8.8.8:" + own + "/":          false,
		"http://[::ffff:127.0.0.1]:" + own + "/": false,
		"http://[::]:" + own + "/":               false,
		"http://[0:0:0:0:0:0:0:1]:" + own + "/":  false,
		"https://127.0.0.1:" + own + "/":         false,
		"http://me:x@127.0.0.1:" + own + "/":     false,
		"http://１２７.0.0.1:" + own + "/":          false,
		"http:\\\\127.0.0.1:" + own + "/":        false,
		"http:/127.0.0.1:" + own + "/":           false,
		"//127.0.0.1:" + own + "/api/stop":       false,
		"\\\\127.0.0.1:" + own + "/":             false,
		"/api/stop":                              false,
		"api/stop":                               false,
		"?x":                                     false,
		"#/sessions":                             false,
		"http:api/stop":                          false,
		"http:///127.0.0.1:" + own + "/":         false,
		"http://127.0.0.1:1/":                    true,
		"http://localhost/":                      true,
		"https://e.com:" + own + "/":             true,
		"https://localhost.e.com:" + own + "/":   true,
	} {
		const count = `import("/sources/markdown.js").then(({ render }) => { const el = document.createElement("div"); render(el, %s); return el.querySelectorAll("a").length; })`
		for _, source := range []string{"[a](" + href + ")", "![a](" + href + ")", "<" + href + ">",
			href} {
			n := eval[int](v.tab, count, source)
			if n > 0 && !link || n == 0 && link {
				t.Errorf("%s makes %d links, want one: %v", source, n, link)
			}
		}
	}
}

func longTextsRender(_ *testing.T, v *view) {
	// Nothing that a model may write takes forever, or overflows.
	eval[any](v.tab, `import("/sources/markdown.js").then(({ render }) => {
			for (const s of ["*a ", "**", "_", "~~", "[", "[a](", "`+"`"+`", "`+"``a"+`", ">", "- ", "  - ", "|", "|-|\\n", "<https://", "\\\\", "![", "http://", "&amp;", "# ", "1. \\n"]) render(document.createElement("div"), s.repeat(5000));
		for (const [start, middle, end] of [["# a", " ", "b"], ["# a", " #", "b"], ["http://a", ".", "x"], ["http://a", ")", "x"], ["~~~", "~", "`+"`"+`"], ["`+"```"+`", "a", "`+"`"+`"], ["`+"```"+`", " ", "x`+"`"+`"], ["", "[a](" + " ".repeat(4000), ""]])
				render(document.createElement("div"), start + middle.repeat(400_000 / middle.length) + end);
		})`)
}

func listsReconcile(t *testing.T, v *view) {
	// Things of one key are all there, and nothing stays that is no more.
	got := eval[[]string](v.tab, `import("/sources/dom.js").then(({ h, reconcile }) => {
			const list = h("ul"), shown = [];
			document.body.append(list);
			for (const items of [["a", "b"], ["b", "", "a", ""], ["", "", "c"], ["", ""], ["c", "b"], []]) {
				reconcile(list, items, (it) => it, () => h("li"), (el, it) => { el.textContent = it || "-"; });
				shown.push(list.textContent);
			}
			list.remove();
			return shown;
		})`)
	if want := []string{"ab", "b-a-", "--c", "--", "cb", ""}; !slices.Equal(got, want) {
		t.Errorf("lists read %q, want %q", got, want)
	}
}

func filterPreviews(t *testing.T, v *view) {
	type rule struct {
		Match   string `json:"match"`
		Outcome string `json:"outcome"`
	}
	texts := []string{"GET /healthz 200", "POST /orders 500 failed", "build failed", "",
		strings.Repeat("a", 65<<10)}
	for _, test := range []struct {
		rules []rule
		want  []int
	}{
		{[]rule{{"healthz", "drop"}, {"failed$", "inject"}}, []int{0, 1, 1, -1, -1}},
		{[]rule{{"^(?!GET)", "keep"}}, []int{-1, 0, 0, 0, -1}},
		{[]rule{{"FAILED", "drop"}}, []int{-1, -1, -1, -1, -1}},
		{[]rule{{".", "keep"}, {"failed", "inject"}}, []int{0, 0, 0, -1, -1}},
	} {
		// On a busy machine the worker may run into its limit of time: null says that it decided
		// nothing.
		if got := eval[[]int](v.tab, `import("/sources/filter.js").then(async (f) => {
			let decisions = null;
			for (let i = 0; i < 20 && !decisions; i++) decisions = await f.preview(%s, %s);
			return decisions;
		})`, test.rules, texts); !slices.Equal(got, test.want) {
			t.Errorf("%v decides %v, want %v", test.rules, got, test.want)
		}
	}
	if slow := eval[bool](v.tab,
		`import("/sources/filter.js").then((f) => f.preview([{ match: "^(a+)+$", outcome: "drop" }], ["a".repeat(40) + "b"])).then((d) => d === null)`); !slow {
		t.Error("a pattern that explodes is not stopped, want its end")
	}
	faults := eval[[]string](v.tab, `import("/sources/filter.js").then((f) => f.check(%s))`,
		[]rule{{"ok", "drop"}, {"", "drop"}, {"(", "drop"}, {strings.Repeat("é", 513), "drop"}})
	if faults[0] != "" || faults[1] == "" || !strings.Contains(faults[2], "Unterminated") ||
		!strings.Contains(faults[3], "1024") {
		t.Errorf(
			"the faults are %q, want none for the good filter and what is wrong with each other one", faults)
	}
}

func timelineMerges(t *testing.T, v *view) {
	// The first list is that of all events in a row. One follows for each place between two events:
	// there the timeline joins that of the events before.
	const texts = `import("/sources/timeline.js").then(({ Timeline }) => ((events) => events.map((_, i) => {
			const t = new Timeline(), older = new Timeline();
			for (const [name, data] of events.slice(i)) t.apply(name, data);
			for (const [name, data] of events.slice(0, i)) older.apply(name, data);
			if (i) t.join(older);
			return t.entries.map((e) => [e.kind, e.done === false ? "open" : "", e.who ?? e.level ?? e.name ?? "", e.text || e.result?.content || e.error?.message || ""].filter(Boolean).join(" "));
		}))(%s))`
	type entry = [2]any
	type o = map[string]any
	line := func(source, level, text string) entry {
		return entry{"timeline", o{"source": source, "level": level, "message": text}}
	}
	live := func(callback string, members ...any) entry {
		m := o{"callback": callback}
		for i := 0; i < len(members); i += 2 {
			m[members[i].(string)] = members[i+1]
		}
		return entry{"live", m}
	}
	pushed := func(level, stream, text string) entry {
		return entry{"stream", o{"level": level, "stream": stream, "provider": "ci", "event": text}}
	}
	for name, test := range map[string]struct {
		entry []entry
		want  []string
	}{
		"a message is one, entry in whichever order": {
			[]entry{live("onStartMessage", "messageId", "1"),
				live("onMessage", "messageId", "1", "delta", "He"),
				line("assistant", "info", "Hello"),
				live("onEndMessage", "messageId", "1", "completeContent",
					"Hello"),
				line("assistant", "info", "Bye"),
				live("onEndMessage", "messageId", "2", "completeContent", "Bye"),
				live("onEndMessage", "messageId", "3", "completeContent", "Bye"),
				line("assistant", "info", "Bye")},
			[]string{"message Hello", "message Bye", "message Bye"},
		},
		"deltas of something that began before": {
			[]entry{live("onReasoning", "reasoningId", "1", "delta", "a"),
				live("onReasoning", "reasoningId", "1", "delta", "b")},
			[]string{"reasoning open ab"},
		},
		"two calls at once": {
			[]entry{live("onStartToolExecution", "toolCallId", "1", "toolName", "x"),
				live("onStartToolExecution", "toolCallId", "2", "toolName", "y"),
				live("onToolExecution", "toolCallId", "1", "delta", "…"),
				live("onEndToolExecution", "toolCallId", "2", "error", o{"message": "no"}),
				live("onEndToolExecution", "toolCallId", "1", "result", o{"content": "yes"})},
			[]string{"tool x …", "tool y no"},
		},
		"a push is one, entry in whichever order": {
			[]entry{pushed("surface", "builds", "red"), line("builds@ci", "info", "red"),
				line("ci", "info", "green"), pushed("inject", "ci", "green"),
				pushed("keep", "ci", "\x1b[31mblue"), line("ci", "info", "tool: progress")},
			[]string{"push surface red", "push inject green", "push keep \x1b[31mblue",
				"note info tool: progress"},
		},
		"equal pushes are as many as came": {
			[]entry{pushed("surface", "builds", "red"), pushed("surface", "builds", "red"),
				line("builds@ci", "info", "red"), line("user", "info", "why?"),
				line("builds@ci", "info", "red"), line("ci", "info", "a"), line("ci", "info", "b"),
				pushed("inject", "ci", "a"), pushed("inject", "ci", "b")},
			[]string{"push surface red", "push surface red", "prompt user why?", "push inject a",
				"push inject b"},
		},
		"an error is one, each time": {
			[]entry{line("session", "error", "broke"), {"live", o{"sessionError": "broke"}},
				{"live", o{"sessionError": "again"}}, line("session", "error", "again")},
			[]string{"error broke", "error again"},
		},
		"prompts, notes, gaps and the end": {
			[]entry{line("user", "info", "do it"), live("onGeneratedUserPrompt", "prompt", "red!"),
				line("gateway", "warning", "w"), {"gap", o{"live": 3}},
				live("onStartReasoning", "reasoningId", "9"), {"ended", o{}}},
			[]string{"prompt user do it", "prompt provider red!", "note warning w",
				"mark Missing here, because the gateway keeps no more: 3 messages and calls.",
				"reasoning", "mark The session has ended."},
		},
	} {
		for i, got := range eval[[][]string](v.tab, texts, test.entry) {
			want := slices.Clone(test.want)
			if i > 0 { // what came on both sides of the join may stand at either
				slices.Sort(got)
				slices.Sort(want)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, joined after %d events:\n got %q\nwant %q", name, i, got, want)
			}
		}
	}
}

// tracesNest makes a tree of records: by their spans, else by time.
func tracesNest(t *testing.T, v *view) {
	// A record is its name, span, parent, end in seconds and duration in milliseconds.
	const spans = `import("/sources/trace.js").then(({ spansOf }) => spansOf(%s.map(([id, span, parent, end, durationMs]) =>
		({ id, span, parent, durationMs, ts: end === null ? "never" : new Date(end * 1000).toISOString() })))
		.map((s) => s.depth + s.record.id))`
	type o = []any
	for name, test := range map[string]struct {
		records []o
		want    []string
	}{
		"none": {nil, []string{}},
		"by span": {[]o{{"b", "2", "1", 9, 1000}, {"c", "3", "2", 30, 5}, {"a", "1", "", 5, 1000}},
			[]string{"0a", "1b", "2c"}},
		"by time": {[]o{{"a", "", "", 10, 9000}, {"c", "", "", 5, 10}, {"b", "", "", 6, 2000},
			{"d", "", "", 20, 1}},
			[]string{"0a", "1b", "2c", "0d"}},
		"a parent that is not there": {[]o{{"a", "", "", 10, 9000}, {"b", "2", "9", 5, 1}},
			[]string{"0a", "0b"}},
		"two records of a span": {[]o{{"a", "1", "", 5, 0}, {"b", "1", "", 9, 0}},
			[]string{"0a", "0b"}},
		"its own parent": {[]o{{"a", "1", "1", 5, 0}}, []string{"0a"}},
		"a circle":       {[]o{{"a", "1", "2", 5, 0}, {"b", "2", "1", 6, 0}}, []string{"0a", "1b"}},
		"no time":        {[]o{{"a", "1", "", nil, 0}, {"b", "2", "1", 6, -4}}, []string{"0b"}},
	} {
		if test.records == nil {
			test.records = []o{}
		}
		if got := eval[[]string](v.tab, spans, test.records); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

// pausesFold places times on an axis.
func pausesFold(t *testing.T, v *view) {
	const places = `import("/sources/waterfall.js").then(({ timeScale }) => {
			const { place, pauses } = timeScale(%s.map(([from, to]) => ({ from, to })), 100);
			return [pauses.length, ...%s.map((t) => Math.round(place(t) * 1000))];
		})`
	manyRanges := [][2]int{{0, 10}, {200, 210}, {400, 410}, {600, 610}, {800, 810}, {1000, 1010},
		{1200, 1210}}
	type o = []int
	for name, test := range map[string]struct {
		ranges any
		times  any
		want   o
	}{
		"one":         {[][2]int{{0, 1000}}, o{0, 500, 1000, 2000}, o{0, 0, 500, 1000, 1000}},
		"a short gap": {[][2]int{{0, 500}, {600, 1000}}, o{550}, o{0, 550}},
		"a pause": {[][2]int{{9000, 9500}, {0, 500}}, o{500, 4750, 9000, 9500},
			o{1, 475, 500, 525, 1000}},
		"many pauses":      {manyRanges, o{1210}, o{6, 1000}},
		"nothing has time": {[][2]int{{0, 0}, {1000, 1000}}, o{0, 1000}, o{1, 0, 1000}},
		"one moment":       {[][2]int{{5, 5}}, o{5}, o{0, 0}},
	} {
		if got := eval[[]int](v.tab, places, test.ranges, test.times); !slices.Equal(got,
			[]int(test.want)) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
