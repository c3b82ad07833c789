//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// serveFiles starts a gateway whose provider files are those that put writes.
func (h *home) serveFiles() *gateway {
	h.t.Helper()
	if err := os.Mkdir(h.path("providers"), 0o700); err != nil {
		h.t.Fatal(err)
	}
	h.put("tapgw.toml", "")
	return h.serve("--config", h.path("tapgw.toml"))
}

// put writes a file of the home, as editors do: beside it, and then over it.
func (h *home) put(file, text string) {
	h.t.Helper()
	part := h.path("tmp", filepath.Base(file))
	if err := os.WriteFile(part, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(part, h.path(filepath.FromSlash(file))); err != nil {
		h.t.Fatal(err)
	}
}

func (h *home) removeFile(file string) {
	h.t.Helper()
	if err := os.Remove(h.path(filepath.FromSlash(file))); err != nil {
		h.t.Fatal(err)
	}
}

// toolsAre waits until a session's tools are these, each with a text that its
// schema or description holds.
func (h *home) toolsAre(session string, want map[string]string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		list := decode[[]adminapi.Tool](h.t, h.tapctl("tools", "--session", session, "--json"))
		if len(list) != len(want) {
			return fmt.Errorf("the session has %d tools, want %d: %+v", len(list), len(want), list)
		}
		for _, t := range list {
			text, ok := want[t.Name]
			if !ok || !strings.Contains(t.Description+string(t.Parameters), text) {
				return fmt.Errorf("the session has the tool %s %s %s, want %q", t.Name,
					t.Description, t.Parameters, want)
			}
		}
		return nil
	})
}

// offered are the tools of a request to the model that are in its session by files,
// with what their schemas and descriptions say.
func offered(r *scriptmodel.Request, among ...string) string {
	var all []string
	for _, t := range r.Tools {
		if slices.Contains(among, t.Name) {
			all = append(all, t.Name+" "+t.Description+" "+string(t.Parameters))
		}
	}
	return strings.Join(all, "\n")
}

const lookUp = `kind = "http"
[tools.look_up]
description = "Looks something up"
url = "%s/look?%s={%[2]s}"
args.%[2]s = {}
`

// TestProviderFiles drops, changes and deletes files of each kind that the gateway
// runs itself: the model's next request shows it, between turns and in one.
func TestProviderFiles(t *testing.T) {
	t.Parallel()
	waits, goOn := make(chan struct{}), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			close(waits)
			<-goOn
		}
		_, _ = fmt.Fprint(w, r.URL.RawQuery)
	}))
	t.Cleanup(api.Close)
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	h.serveFiles()
	session := h.copilot(m)
	ours := []string{"look_up", "get_weather", "my_get_weather", "add", "subtract", "wait"}
	last := func() *scriptmodel.Request { all := m.Requests(); return all[len(all)-1] }
	shows := func(want ...string) {
		t.Helper()
		h.ask(session, "hello")
		got := offered(last(), ours...)
		for _, text := range want {
			if !strings.Contains(got, text) {
				t.Errorf("the model is offered\n%s\nwant %q in it", got, text)
			}
		}
		if n := strings.Count(got, "\n") + 1; len(want) == 0 && got != "" || len(want) > 0 &&
			n != len(want) {
			t.Errorf("the model is offered %d tools, want %d:\n%s", n, len(want), got)
		}
	}
	shows()

	// Dropped.
	h.put("providers/web.toml", fmt.Sprintf(lookUp, api.URL, "first"))
	h.toolsAre(session, map[string]string{"look_up": `"first"`})
	shows(`"first"`)
	if got := h.ask(session, `call:look_up {"first":"a b"}`); got != "first=a+b" {
		t.Errorf("the tool answers %q, want %q", got, "first=a+b")
	}
	h.put("providers/run.toml", fmt.Sprintf(
		"kind = \"command\"\nname = \"weather\"\ncommand = [%q, \"__demo-provider\"]\n", tapgw))
	if err := os.Mkdir(h.path("dropins"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("providers/drop.toml", fmt.Sprintf("kind = \"tools\"\ndir = %q\n", h.path("dropins")))
	h.put("dropins/add.tool.json",
		`{"description":"Adds","kind":"read","command":["echo","three"]}`)
	h.toolsAre(session, map[string]string{"look_up": "", "get_weather": "", "add": "Adds"})
	shows(`"first"`, "get_weather", "Adds")

	// Changed: a schema, a name, a description.
	h.put("providers/web.toml", fmt.Sprintf(lookUp, api.URL, "second"))
	h.put("providers/run.toml", fmt.Sprintf(
		"kind = \"command\"\nname = \"weather\"\ncommand = [%q, \"__demo-provider\"]\nprefix = \"my_\"\n", tapgw))
	h.put("dropins/add.tool.json",
		`{"description":"Sums up","kind":"read","command":["echo","three"]}`)
	h.toolsAre(session, map[string]string{"look_up": `"second"`, "my_get_weather": "",
		"add": "Sums up"})
	shows(`"second"`, "my_get_weather", "Sums up")
	if got := h.ask(session, `call:add {}`); got != "three" {
		t.Errorf("the drop-in answers %q, want %q", got, "three")
	}

	// A file that can't be used changes nothing.
	h.put("providers/web.toml", "kind = \"http\"\n[tools.look_up]\nurl = 1\n")
	eventually(t, patience, func() error {
		if out := h.tapctl("status"); !strings.Contains(out,
			"web.toml:3:1: tools.look_up.url: must be a string") {
			return fmt.Errorf("status says %s", out)
		}
		return nil
	})
	shows(`"second"`, "my_get_weather", "Sums up")

	// Deleted.
	h.removeFile("providers/run.toml")
	h.removeFile("dropins/add.tool.json")
	h.toolsAre(session, map[string]string{"look_up": `"second"`})
	shows(`"second"`)

	// In a turn, while a tool of a file runs.
	h.put(
		"providers/slow.toml",
		"kind = \"http\"\ntools.wait = { description = \"Waits\", url = \""+api.URL+"/wait\" }\n",
	)
	h.toolsAre(session, map[string]string{"look_up": "", "wait": ""})
	turn := h.asking(session, "call:wait {}")
	<-waits
	before := len(m.Requests())
	h.put("dropins/subtract.tool.json",
		`{"description":"Takes away","kind":"read","command":["echo","one"]}`)
	h.removeFile("providers/web.toml")
	h.toolsAre(session, map[string]string{"wait": "", "subtract": "Takes away"})
	close(goOn)
	turn.wait(patience)
	got := offered(request(t, m, before+1), ours...)
	if !strings.Contains(got, "subtract") || strings.Contains(got, "look_up") ||
		!strings.Contains(got, "wait") {
		t.Errorf("in mid-turn the model is offered\n%s\nwant subtract and wait, and no look_up",
			got)
	}
	h.removeFile("providers/slow.toml")
	h.removeFile("providers/drop.toml")
	h.toolsAre(session, nil)
	shows()
}

// TestHTTPProviderFile calls an API from a session: its answers, its refusals, its
// redirects and its silence all come to the model, as what they are.
func TestHTTPProviderFile(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		t.Error("the request followed a redirect off its host, want it to stay")
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(elsewhere.Close)
	silence := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		// The runtime blots keys out of results.
		_, _ = fmt.Fprintf(w, `{"item":{"id":%q,"mayI":%t}}`, r.PathValue("id"),
			r.Header.Get("Authorization") == "Bearer open-sesame")
	})
	mux.HandleFunc("GET /refused", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no such\nitem", http.StatusNotFound)
	})
	mux.HandleFunc("GET /broken", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "out of order", http.StatusInternalServerError)
	})
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/here",
			http.StatusFound)
	})
	mux.HandleFunc("GET /here", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "it is here")
	})
	mux.HandleFunc("GET /round", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/round",
			http.StatusFound)
	})
	mux.HandleFunc("GET /away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL,
			http.StatusFound)
	})
	mux.HandleFunc("GET /silent", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silence:
		case <-r.Context().Done():
		}
	})
	api := httptest.NewServer(mux)
	t.Cleanup(api.Close)
	t.Cleanup(func() { close(silence) })

	h := newHome(t)
	h.env = append(h.env, "ITEM_KEY=open-sesame")
	m := model(t, scriptmodel.Calls)
	h.serveFiles()
	session := h.copilot(m)
	file := "kind = \"http\"\n"
	want := map[string]string{"item": "", "dead": ""}
	for _, name := range []string{"refused", "broken", "moved", "round", "away", "silent"} {
		file += fmt.Sprintf(
			"[tools.%s]\ndescription = \"d\"\nurl = \"%s/%[1]s\"\ntimeout = \"1s\"\n", name,
			api.URL)
		want[name] = ""
	}
	file += "[tools.dead]\ndescription = \"d\"\nurl = \"http://127.0.0.1:1/\"\n"
	file += "[tools.item]\ndescription = \"d\"\nurl = \"" + api.URL +
		"/items/{id}\"\nmethod = \"POST\"\nargs.id = {}\n" +
		"headers = { Authorization = \"Bearer ${ITEM_KEY}\" }\nresult = \"/item\"\n"
	h.put("providers/api.toml", file)
	h.toolsAre(session, want)

	for _, tt := range []struct{ prompt, want string }{
		{`call:item {"id":"a/b ?"}`, `{"id":"a/b ?","mayI":true}`},
		{`call:refused {}`, "answered 404 Not Found: no such item"},
		{`call:broken {}`, "answered 500 Internal Server Error: out of order"},
		{`call:moved {}`, "it is here"},
		{`call:round {}`, "it redirects more than 5 times"},
		{`call:away {}`,
			"it redirects to " + elsewhere.URL + ", which the provider's file does not name"},
		{`call:silent {}`, "did not answer within 1s"},
		{`call:dead {}`, "connection refused"},
		{`call:item {}`, "id"}, // what it lacks is named
	} {
		h.ask(session, tt.prompt)
		all := m.Requests()
		if got := all[len(all)-1].LastResult(); !strings.Contains(got, tt.want) {
			t.Errorf("%s: the model is told %q, want %q", tt.prompt, got, tt.want)
		}
	}
}
