package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/weburl"
)

// apiServer answers the requests of the tests' tools.
func apiServer(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/echo/", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.URL.RequestURI(), body,
			r.Header.Get("X-Key"))
	})
	mux.HandleFunc("/json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"a/b": [{"n": 12345678901234567890}], "x~": "text", "": null}`)
	})
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code := 0
		_, _ = fmt.Sscan(r.PathValue("code"), &code)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, "so\n  it is")
	})
	mux.HandleFunc(
		"/near", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/echo/near", http.StatusFound)
		},
	)
	mux.HandleFunc("/far", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	})
	mux.HandleFunc(
		"/round", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/round", http.StatusFound)
		},
	)
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, maxAnswer+1))
	})
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte{0xff, 0xfe})
	})
	mux.HandleFunc("/never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// toolOf is the one tool of a file whose head is written.
func toolOf(t *testing.T, text string) *httpTool {
	t.Helper()
	p, faults := configs.ParseProvider("f.toml",
		[]byte("kind = \"http\"\n[tools.t]\ndescription = \"d\"\n"+text))
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", faults)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &httpTool{p.HTTP[0],
		&http.Client{Transport: transport, CheckRedirect: weburl.StayOnHost("it")}}
}

func TestHTTPCalls(t *testing.T) {
	t.Setenv("THE_KEY", "secret-key")
	api := apiServer(t)
	const args = "args.a = {}\nargs.n = { type = \"integer\", required = false }\n"
	for _, tt := range []struct {
		name, file, args string
		want             string // the answer's JSON
		fails            string // or a part of the error
	}{
		{"arguments", `url = "URL/echo/{a}/x?n={n}&m=1"` + "\n" + args, `{"a":"ä b/?#%&","n":3}`,
			`"GET /echo/%C3%A4%20b%2F%3F%23%25&/x?n=3&m=1  "`, ""},
		{"one left out", `url = "URL/echo/{a}/x?n={n}&m=1"` + "\n" + args, `{"a":"b","n":null}`,
			`"GET /echo/b/x?m=1  "`, ""},
		{"all of the query left out", `url = "URL/echo/{a}?n={n}"` + "\n" + args, `{"a":"b"}`,
			`"GET /echo/b  "`, ""},
		{"in a value", `url = "URL/echo/?q={a}+is:{n}"` + "\n" + args, `{"a":"b&c=d","n":1}`,
			`"GET /echo/?q=b%26c%3Dd+is:1  "`, ""},
		{"up and out", `url = "URL/echo/{a}/x"` + "\nargs.a = {}", `{"a":".."}`, "",
			`".." can't be a part of the URL's path`},
		{"two dots of two", `url = "URL/echo/{a}{b}/x"` + "\nargs.a = {}\nargs.b = {}",
			`{"a":".","b":"."}`, "",
			`can't be a part`},
		{"empty in the path", `url = "URL/echo/{a}"` + "\nargs.a = {}", `{"a":""}`, "",
			"a must not be empty"},
		{"body",
			`url = "URL/echo/"` +
				"\nbody = '{\"q\": \"{a} {{x}}\", \"n\": \"{n}\", \"l\": [\"{n}\", 1.50]}'\n" +
				args, `{"a":"\"b\"","n":12345678901234567890}`,
			`"POST /echo/ {\"l\":[12345678901234567890,1.50],\"n\":12345678901234567890,\"q\":\"\\\"b\\\" {x}\"} "`, ""},
		{"body without one",
			`url = "URL/echo/"` +
				"\nmethod = \"PUT\"\nbody = '{\"q\": \"{a}\", \"n\": \"{n}\"}'\n" + args,
			`{"a":"b"}`, `"PUT /echo/ {\"q\":\"b\"} "`, ""},
		{"header", `url = "URL/echo/"` + "\nheaders = { X-Key = \"k ${THE_KEY}\" }", `{}`,
			`"GET /echo/  k secret-key"`,
			""},
		{"variable that is missing",
			`url = "URL/echo/"` + "\nheaders = { X-Key = \"${NO_SUCH_KEY}\" }", `{}`, "",
			"the header X-Key needs the variable NO_SUCH_KEY"},
		{"JSON", `url = "URL/json"` + "\nresult = \"json\"", `{}`,
			`{"":null,"a/b":[{"n":12345678901234567890}],"x~":"text"}`, ""},
		{"pointer", `url = "URL/json"` + "\nresult = \"/a~1b/0/n\"", `{}`, `12345678901234567890`,
			""},
		{"pointer with a tilde", `url = "URL/json"` + "\nresult = \"/x~0\"", `{}`, `"text"`, ""},
		{"pointer to nothing", `url = "URL/json"` + "\nresult = \"/a~1b/01\"", `{}`, "",
			"the answer has nothing at /a~1b/01"},
		{"text as JSON", `url = "URL/echo/"` + "\nresult = \"json\"", `{}`, "",
			"the answer is not JSON"},
		{"no text", `url = "URL/binary"`, `{}`, "", "the answer is no text"},
		{"refused", `url = "URL/status/404"`, `{}`, "", "answered 404 Not Found: so it is"},
		{"failed", `url = "URL/status/500"`, `{}`, "",
			"answered 500 Internal Server Error: so it is"},
		{"empty JSON", `url = "URL/status/204"` + "\nresult = \"json\"", `{}`, "null", ""},
		{"redirect on the host", `url = "URL/near"`, `{}`, `"GET /echo/near  "`, ""},
		{"redirect to another host", `url = "URL/far"`, `{}`, "",
			"it redirects to http://169.254.169.254, which the provider's file does not name"},
		{"redirect for ever", `url = "URL/round"`, `{}`, "", "it redirects more than 5 times"},
		{"too large", `url = "URL/large"`, `{}`, "", "answered with more than 1048576 bytes"},
		{"no answer", `url = "URL/never"` + "\ntimeout = \"50ms\"", `{}`, "", "TIMEOUT"},
		{"nobody there", `url = "http://127.0.0.1:1/?key={a}"` + "\nargs.a = {}", `{"a":"hidden"}`,
			"", "GET 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := toolOf(t, strings.ReplaceAll(tt.file, "URL", api.URL))
			got, err := h.call(context.Background(), json.RawMessage(tt.args))
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) ||
					strings.Contains(err.Error(), "hidden") {
					t.Errorf("got %v, %v; want the error %q", got, err, tt.fails)
				}
				return
			}
			data, _ := json.Marshal(got)
			var b strings.Builder
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			_ = enc.Encode(got)
			if err != nil || strings.TrimSpace(b.String()) != tt.want {
				t.Errorf("got %s, %v; want %s", data, err, tt.want)
			}
		})
	}
}

// The provider without a program, from its file to the session's calls.
func TestHTTPProvider(t *testing.T) {
	api := apiServer(t)
	var links atomic.Int32
	r := newRig(t, func(o *Options) {
		dial := o.Dial
		o.Dial = func() (*link.Conn, error) { links.Add(1); return dial() }
	})
	s, h := r.session("one")
	file := func(name string) string {
		return fmt.Sprintf(
			"kind = \"http\"\n[tools.%s]\ndescription = \"d\"\nurl = \"%s/echo/{a}?n={n}\"\n[tools.%s.args]\na = { enum = [\"x\", \"y\"] }\nn = { type = \"integer\", required = false }\n",
			name,
			api.URL,
			name,
		)
	}
	r.put("web", file("ask"))
	r.has(h, "ask")
	for args, want := range map[string]string{
		`{"a":"x","n":1}`:   "GET /echo/x?n=1  ",
		`{"a":"z"}`:         "INVALID_ARGUMENTS",
		`{"a":"x","n":"1"}`: "INVALID_ARGUMENTS",
		`{"n":1}`:           "INVALID_ARGUMENTS",
		`{"a":"x","b":1}`:   "INVALID_ARGUMENTS",
	} {
		o := s.CallTool(context.Background(), gateway.Call{Name: "ask", Args: protocol.Raw(args)})
		if !strings.Contains(string(o.ErrorCode)+o.Text(), want) {
			t.Errorf("%s: %s %s, want %q in it", args, o.ErrorCode, o.Text(), want)
		}
	}
	r.put("web", file("ask2"))
	r.has(h, "ask2")
	o := s.CallTool(context.Background(),
		gateway.Call{Name: "ask2", Args: protocol.Raw(`{"a":"y"}`)})
	if o.Text() != "GET /echo/y  " {
		t.Errorf(`after the change: %s, want "GET /echo/y  "`, o.Text())
	}
	if n := links.Load(); n != 2 {
		t.Errorf("the two versions connected %d times without a socket, want 2", n)
	}
	two, h2 := r.session("two")
	r.has(h2, "ask2")
	if err := two.Stop(context.Background(), "test"); err != nil {
		t.Fatal(err)
	}
}
