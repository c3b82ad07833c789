//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// answerWithTable is what the model says in the pictures of the page.
const answerWithTable = "The build is **red** since `a1b2c3d`.\n\n" +
	"| Job | State | Took |\n|---|---|---|\n| lint | ok | 41 s |\n| test | failed | 4 min |\n\n" +
	"The test of the parser misses its file:\n\n```go\nfunc TestParse(t *testing.T) {\n" +
	"\tdata, err := os.ReadFile(\"testdata/a.txt\") // not in the repository\n```\n\n" +
	"1. Add `testdata/a.txt`\n2. Run `go test ./parse` again"

// TestPageViews looks at each view with something in it at the widths of a telephone, a tablet and
// a desk, light, dark and in the system's own colours. With -pictures it draws what docs/page.md
// shows.
func TestPageViews(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := os.Mkdir(h.path("providers"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("work/events", "nightly build 811 ok\nnightly build 812 failed: parse\n")
	h.put("providers/nightly.toml",
		fmt.Sprintf("kind = \"source\"\nrun = [\"cat\", \"events\"]\ncwd = %q\n"+
			"cron = \"30 2 * * *\"\nlevel = \"surface\"\n", h.path("work")))
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if !strings.Contains(r.LastUser(), "build") || r.LastResult() != "" {
			return scriptmodel.Reply{Text: answerWithTable}
		}
		return scriptmodel.Reply{Reasoning: "The person wants to know who is there.",
			ToolCalls: []scriptmodel.ToolCall{{Name: "greet", Args: `{"name":"Ada"}`}}}
	})
	g := h.servePage(m, "")
	session := h.tapctl("sessions", "start", "--label", "fix the parser", "--model",
		scriptmodel.ModelID, "--cwd", h.path("work"))
	h.bindProvider(session, "ci", "greet")
	notes := h.local("--label", "release notes")
	h.tapctl("push", "--session", session, "--stream", "builds", "--level", "surface",
		"run 811 ok in 4 min 12 s")
	h.tapctl("push", "--session", session, "--stream", "builds", "--level", "keep",
		"GET /healthz 200")
	h.ask(session, "why is the build red?")
	h.tapctl("sources", "run", "nightly")
	h.waitSource("nightly", func(s adminapi.Source) bool { return s.Runs == 1 })
	goal, err := g.api().StartGoal(t.Context(), adminapi.GoalRequest{
		Session: notes, Text: "the tests of the parser pass",
		Checks: []json.RawMessage{[]byte(`{"call":"go test ./parse"}`),
			[]byte(`{"file":"testdata/a.txt"}`)},
		Turns: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	recording := recordSession(h)

	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	for _, it := range []struct{ name, hash, selector, text string }{
		{"session", "#/sessions/" + session, ".entry.message td", "failed"},
		{"providers", "#/providers/ci", ".toollist", "greet"},
		{"streams", "#/streams", "main", "run 811 ok"},
		{"activity", "#/activity", ".waterfall", "greet"},
		{"sources", "#/sources/nightly", "main", "nightly build 812"},
		{"goals", "#/goals/" + goal.ID, ".goals .turns", "Turn 2"},
		{"records", "#/records", ".record", "greet"},
		{"recordings", "#/recordings", ".recording", "Open a file"},
	} {
		eval[any](v.tab, `location.hash = %s, 0`, it.hash)
		v.waitText(it.selector, it.text)
		if it.name == "recordings" {
			v.openRecording(recording, false)
		}
		v.checkEverywhere(it.name)
		v.drawPicture("page-"+it.name, h.dir)
	}

	eval[any](v.tab, `location.hash = %s, 0`, "#/sessions/"+session)
	v.waitText(".entry.message td", "failed")
	v.do("making it narrow", chromedp.EmulateViewport(390, 844))
	v.setLook("prefers-color-scheme", "dark")
	v.drawPicture("page-phone", h.dir)
}

// setLook sets a feature of the browser's media, such as dark or forced colours, and takes the
// others back.
func (v *view) setLook(feature, value string) {
	v.t.Helper()
	v.do(feature+" "+value, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: feature, Value: value}},
	}))
	v.until(`matchMedia("(" + %s + ": " + %s + ")").matches`, feature, value)
}

// checkEverywhere checks what is shown at three widths and in three looks: nobody has to scroll
// sideways, and axe-core finds nothing.
func (v *view) checkEverywhere(name string) {
	v.t.Helper()
	v.loadAxe()
	for _, width := range []int{360, 768, 1280} {
		v.do("changing the width", chromedp.EmulateViewport(int64(width), 860))
		v.until(`innerWidth === Number(%s)`, fmt.Sprint(width))
		v.checkSideways(fmt.Sprintf("%s at %d pixels", name, width))
		for _, look := range [][2]string{{"forced-colors", "active"},
			{"prefers-color-scheme", "dark"},
			{"prefers-color-scheme", "light"}} {
			v.setLook(look[0], look[1])
			var rules []string
			if look[1] != "light" {
				rules = []string{"color-contrast"} // colours are all that differs
			}
			v.runAxe(fmt.Sprintf("%s at %d pixels, %s", name, width, look[1]), rules)
		}
	}
}

// drawPicture keeps a picture, and draws it as docs/images/NAME.webp if the flag asks for it. The
// directories of the test stand as ~ in it.
func (v *view) drawPicture(name, home string) {
	v.t.Helper()
	eval[any](v.tab, `(() => {
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(%s, "~");
		return 0;
	})()`, home)
	v.keepPicture(name)
	if !*pictures {
		return
	}
	quality := int64(80)
	shot := page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp,
		Quality: &quality}
	v.do("taking a picture", chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		result, err := chromedp.Call(ctx, page.CaptureScreenshot, shot)
		if err != nil {
			return err
		}
		file := filepath.Join(repo, "docs", "images", name+".webp")
		return os.WriteFile(file, result.Data, 0o644) //nolint:gosec // a document
	}))
}
