//go:build e2e && linux

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
)

func init() { programs["squatter"] = squat }

// squat is a program of another user's: it takes the port of a gateway that has ended, on both
// loopbacks, and serves a page that puts a service worker between the browser and whoever has the
// port next. It prints what it and the worker get to see. A line on stdin makes it leave the port;
// what the worker sees then still reaches it.
func squat(args []string) error {
	reports, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(args[0])
	if err != nil {
		return err
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Printf("asked for http://%s%s with cookie [%s]\n", r.Host, r.RequestURI,
			r.Header.Get("Cookie"))
		w.Header().Set("Service-Worker-Allowed", "/")
		switch {
		case r.URL.Path == "/worker.js":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = fmt.Fprintf(w, squatterWorker, reports.Addr())
		case strings.Contains(r.Header.Get("Accept"), "text/html"):
			w.Header().Set("Content-Type", "text/html")
			_, _ = fmt.Fprint(w, squatterPage)
		default:
			// a page that believes it loads itself again
			http.Error(w, "{}", http.StatusUnauthorized)
		}
	})
	var taken []net.Listener
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return err
		}
		taken = append(taken, l)
		go func() { _ = http.Serve(l, page) }()
	}
	go func() {
		_ = http.Serve(reports, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			fmt.Printf("the worker saw %s\n", r.URL.Query().Get("saw"))
		}))
	}()
	fmt.Printf("has port %s as user %d\n", port, os.Getuid())
	stdin := bufio.NewScanner(os.Stdin)
	stdin.Scan()
	for _, l := range taken {
		_ = l.Close()
	}
	fmt.Println("has left the port")
	stdin.Scan() // until the test ends
	return nil
}

const (
	squatterPage = `<!doctype html><title>squatter</title><script>
navigator.serviceWorker.register("/worker.js", {scope: "/"}).then(() => navigator.serviceWorker.ready)
	.then(() => { document.title = "squatted"; });
</script>`
	squatterWorker = `
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (e) => e.waitUntil(clients.claim()));
self.addEventListener("fetch", (e) => {
	fetch("http://%s/?saw=" + encodeURIComponent(e.request.url), {mode: "no-cors"});
	e.respondWith(fetch(e.request));
});
`
)

// squatter starts the program as the user nobody, at the address of a gateway.
func (h *home) squatter(address string) *process {
	h.t.Helper()
	cmd := h.program("squatter", address)
	if os.Getuid() == 0 {
		cmd.Path = "/proc/self/exe" // in a directory of ours
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534,
			Gid: 65534}}
	}
	p := start(h.t, "squatter", cmd)
	p.expect("has port")
	return p
}

// TestPageOrigin is about another user of the machine who takes the gateway's port once it was
// killed, and whose service workers stay in the browser at all addresses that the browser comes to
// meanwhile, by itself too. The next gateway's page, sign-in link and cookie reach none of them,
// and the cookie that the old page shows is void.
func TestPageOrigin(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	address := strings.TrimPrefix(g.url, "ws://")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	profile := h.browser().profile(t)
	old := profile.openView(h.link())
	old.waitText(".connection", "Live")
	oldPage := eval[string](old.tab, `location.origin`)
	g.kill()
	thief := h.squatter(address)

	// The page that is open asks whoever has the port, but for nothing that counts, and does not
	// give itself away.
	stolen := thief.expect("with cookie [tapgw-" + port + "=")
	_, stolen, _ = strings.Cut(stolen, "[")
	stolen, _, _ = strings.Cut(stolen, "]")
	old.waitText("main", "tapctl open")
	if title := eval[string](old.tab, `document.title`); strings.Contains(title, "squat") {
		t.Errorf("the page has loaded itself from a stranger: its title is %s, want it to stay",
			title)
	}
	squatted := map[string]*tab{}
	for _, origin := range []string{oldPage, "http://127.0.0.1:" + port,
		"http://localhost:" + port} {
		tab := profile.open(origin + "/")
		eventually(t, patience, func() error {
			if title := eval[string](tab, `document.title`); title != "squatted" {
				return errors.New("the page at " + origin + " has no service worker: " + title)
			}
			return nil
		})
		squatted[origin] = tab
	}
	thief.writeLine("leave")
	thief.expect("has left the port")

	g = h.serveAt(address)
	link, err := g.api().SigninLink(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	v := profile.openView("file://" + link.File)
	v.waitText(".connection", "Live")
	v.visit(strings.TrimSuffix(eval[string](v.tab, `location.origin`), "/") + "/?again")
	v.waitText(".connection", "Live")
	if own := eval[bool](v.tab, `navigator.serviceWorker.controller !== null`); own {
		t.Error("a service worker stands between the browser and the page, want none")
	}
	origin, code := mustParse(t, link.URL)
	for _, secret := range []string{code, strings.TrimPrefix(origin, "http://")} {
		if told := thief.find(secret); told != "" {
			t.Errorf("the other user has seen %q, want nothing of the new link", told)
		}
	}
	if text := thief.output(); strings.Contains(text, ".admin-token") {
		t.Errorf("the other user has seen %s", text)
	}

	// Neither the old cookie nor the pages with a service worker get anything.
	for _, host := range []string{strings.TrimPrefix(origin, "http://"),
		strings.TrimPrefix(oldPage, "http://"),
		"127.0.0.1:" + port, "localhost:" + port} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+address+"/api/v1/sessions", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Cookie", stolen)
		if code := statusOf(t, r); code < 400 {
			t.Errorf("the old cookie at %s: got %d, want it refused", host, code)
		}
	}
	for at, tab := range squatted {
		if code := eval[int](tab, `fetch("/api/v1/sessions").then((r) => r.status)`); code < 400 {
			t.Errorf("a page at %s gets the sessions (%d), want them refused", at, code)
		}
	}
	// it was there all the time
	thief.expect("the worker saw " + "http://127.0.0.1:" + port + "/api/v1/sessions")
}

// mustParse returns the origin of a link and its code.
func mustParse(t *testing.T, link string) (origin, code string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || u.Query().Get("code") == "" {
		t.Fatalf("the link %s: %v, want one with a code", link, err)
	}
	return u.Scheme + "://" + u.Host, u.Query().Get("code")
}

// statusOf returns the status of the answer to a request.
func statusOf(t *testing.T, r *http.Request) int {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

// TestPageKept restarts a gateway below an open page, as tapgw ensure started it and as a service.
// The page stays at its origin, signed in, and at no moment can somebody else have the port. After
// a crash the page is somewhere else.
func TestPageKept(t *testing.T) {
	t.Parallel()
	ensure := []string{tapgw, "ensure", "--listen", "127.0.0.1:0"}
	for name, tc := range map[string]struct{ begin, again []string }{
		"ensure": {ensure, ensure},
		"unit": {[]string{tapgw, "service", "install", "--listen", "127.0.0.1:0"},
			[]string{"systemctl", "--user", "start", "tapgw.service"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			t.Cleanup(h.killGateway)
			h.env[0] = "PATH=" + h.serviceManager() + ":" + os.Getenv("PATH")
			begin := func(command []string) {
				if done := h.run("env", command...); done.code != 0 { // which looks in that PATH
					t.Fatalf("%q: exit code %d, %s; want 0", command, done.code, done.stderr)
				}
			}
			begin(tc.begin)
			before := h.gatewayInfo()
			address := strings.TrimPrefix(before.URL, "ws://")
			profile := h.browser().profile(t)
			v := profile.openView(h.link())
			v.waitText(".connection", "Live")
			origin := eval[string](v.tab, `location.origin`)

			stop, tried := make(chan struct{}), make(chan int)
			go func() {
				n := 0
				defer func() { tried <- n }()
				for ; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					if l, err := net.Listen("tcp", address); err == nil {
						_ = l.Close()
						t.Error("somebody else got the port during the restart, want it held")
						return
					}
				}
			}()
			if done := h.run(tapgw, "restart"); done.code != 0 ||
				strings.TrimSpace(done.stdout) != before.URL {
				t.Fatalf("tapgw restart: exit code %d, %q, %s; want 0 and %s", done.code,
					done.stdout, done.stderr, before.URL)
			}
			close(stop)
			if n := <-tried; n == 0 {
				t.Error("nobody tried to get the port, want many attempts")
			}
			after := h.gatewayInfo()
			if after.PID == before.PID || after.URL != before.URL {
				t.Errorf("the gateway after the restart is %+v, want another process at %s", after,
					before.URL)
			}
			v.until(`fetch("/api/v1/status").then((r) => r.json()).then((s) => s.pid === %v)`,
				after.PID)
			v.waitText(".connection", "Live")
			v.until(`fetch("/api/v1/reload", {method: "POST"}).then((r) => r.status === 200)`)
			v.visit(origin + "/?again")
			v.waitText(".connection", "Live")
			if at, _ := mustParse(t, h.link()); at != origin {
				t.Errorf("a link leads to %s, want the origin to stay: %s", at, origin)
			}

			if err := syscall.Kill(after.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			h.waitEnded(after.PID)
			begin(tc.again)
			if at, _ := mustParse(t, h.link()); at == origin {
				t.Errorf("after a crash the page is at %s, want another origin", at)
			}
		})
	}
}

// serviceManager makes a stand-in for systemctl, which starts what the unit says, and returns its
// directory.
func (h *home) serviceManager() string {
	h.t.Helper()
	dir := h.path("fake")
	script := `#!/bin/sh
unit=$HOME/.config/systemd/user/tapgw.service
pid() { cat "$HOME/fake/pid" 2>/dev/null; }
start() {
	words=$(sed -n 's/^ExecStart=//p' "$unit" | tr -d '"')
	setsid $words >>"$HOME/fake/log" 2>&1 </dev/null &
	echo $! >"$HOME/fake/pid"
	for i in $(seq 300); do
		grep -q "\"pid\":$(pid)," "$COPILOT_HOME/extensions/tap/gateway.json" 2>/dev/null && exit 0
		sleep 0.1
	done
	exit 1
}
case "$2 $3" in
'show '*)
	[ -e "$unit" ] && echo LoadState=loaded || echo LoadState=not-found
	kill -0 "$(pid)" 2>/dev/null && printf "ActiveState=active\nMainPID=$(pid)\n" || echo ActiveState=inactive
	echo UnitFileState=enabled
	;;
'enable --now' | 'start tapgw.service') start ;;
esac
`
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(h.path("fake", "systemctl"), []byte(script), 0o700); err != nil {
		h.t.Fatal(err)
	}
	return dir
}
