package sources_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/sources"
)

const hookSecret = "0123456789abcdef-secret"

func mac(secret string, parts ...string) []byte {
	m := hmac.New(sha256.New, []byte(secret))
	for _, p := range parts {
		m.Write([]byte(p))
	}
	return m.Sum(nil)
}

// github are the headers of a request that GitHub signs.
func github(body string) http.Header {
	return http.Header{
		"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac(hookSecret, body))},
		"X-Github-Event":      {"push"}, "X-Github-Delivery": {"d-1"},
		"Content-Type": {"application/json"},
	}
}

// standard are the headers of a request that is signed with its id and time.
func standard(id string, at time.Time, body string) http.Header {
	stamp := strconv.FormatInt(at.Unix(), 10)
	sum := base64.StdEncoding.EncodeToString(mac(hookSecret, id, ".", stamp, ".", body))
	return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {stamp},
		"Webhook-Signature": {"v1," + sum}}
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// with is a request's headers with others over them; a header without values is taken away.
func with(h, over http.Header) http.Header {
	h = h.Clone()
	maps.Copy(h, over)
	maps.DeleteFunc(h, func(_ string, values []string) bool { return len(values) == 0 })
	return h
}

// hookFile is a provider file of a webhook.
func hookFile(t *testing.T, text string) configs.Provider {
	t.Helper()
	t.Setenv("HOOK_SECRET", hookSecret)
	p, faults := configs.ParseProvider("watch.toml", []byte("kind = \"source\"\n"+text))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return p
}

const plainHook = "webhook = true\nsecret_env = \"HOOK_SECRET\"\n"

// Only a request that knows the secret is told anything but 401. No session is there, so a right
// one is told to come again.
func TestWebhookSecrets(t *testing.T) {
	const body = `{"action":"opened"}`
	now := time.Now()
	sign := func(secret string, parts ...string) string {
		return base64.StdEncoding.EncodeToString(mac(secret, parts...))
	}
	hexSum := hex.EncodeToString(mac(hookSecret, body))
	stamp := strconv.FormatInt(now.Unix(), 10)
	for name, tt := range map[string]struct {
		header http.Header
		body   string
		want   int
	}{
		"GitHub": {github(body), body, 503},
		"GitHub, capital letters": {http.Header{"X-Hub-Signature-256": {"sha256=" +
			strings.ToUpper(hexSum)}},
			body, 503},
		"nothing":           {http.Header{}, body, 401},
		"another body":      {github(body), body + " ", 401},
		"no algorithm":      {http.Header{"X-Hub-Signature-256": {hexSum}}, body, 401},
		"another algorithm": {http.Header{"X-Hub-Signature-256": {"sha1=" + hexSum}}, body, 401},
		"the old header":    {http.Header{"X-Hub-Signature": {"sha1=" + hexSum[:40]}}, body, 401},
		"no hex": {http.Header{"X-Hub-Signature-256": {"sha256=" + hexSum[:63] + "g"}},
			body, 401},
		"half the hex": {http.Header{"X-Hub-Signature-256": {"sha256=" + hexSum[:32]}}, body, 401},
		"empty":        {http.Header{"X-Hub-Signature-256": {"sha256="}}, body, 401},
		"two headers": {http.Header{"X-Hub-Signature-256": {"sha256=" + hexSum, "sha256=" +
			hexSum}}, body, 401},
		"a wrong signature beside the token": {with(bearer(hookSecret), http.Header{
			"X-Hub-Signature-256": {"sha256=00"}}), body, 401},
		"standard": {standard("m1", now, body), body, 503},
		"no id": {with(standard("m1", now, body), http.Header{"Webhook-Id": nil}), body,
			401},
		"another id": {with(standard("m1", now, body), http.Header{"Webhook-Id": {"m2"}}), body,
			401},
		"another time": {with(standard("m1", now, body), http.Header{"Webhook-Timestamp": {"1"}}),
			body, 401},
		"an old time":    {standard("m1", now.Add(-6*time.Minute), body), body, 400},
		"a time to come": {standard("m1", now.Add(6*time.Minute), body), body, 400},
		"a huge time":    {standard("m1", time.Unix(1<<62, 0), body), body, 400},
		"no time": {http.Header{"Webhook-Id": {"m1"}, "Webhook-Timestamp": {"x"},
			"Webhook-Signature": {"v1," + sign(hookSecret, "m1.x.", body)}}, body, 401},
		"while a secret changes": {with(standard("m1", now, body),
			http.Header{"Webhook-Signature": {
				"v1," + sign("old", "m1.", stamp, ".", body) + " v1," +
					sign(hookSecret, "m1.", stamp, ".", body)}}),
			body, 503},
		"another version": {with(standard("m1", now, body), http.Header{"Webhook-Signature": {
			"v1a," + sign(hookSecret, "m1.", stamp, ".", body)}}), body, 401},
		// A message signed with the id m1 and the body "STAMP.x" is not valid with its parts moved.
		"parts that change places": {http.Header{"Webhook-Id": {"m1.1"},
			"Webhook-Timestamp": {stamp},
			"Webhook-Signature": {"v1," + sign(hookSecret, "m1.1.", stamp, ".x")}}, "x", 401},
		"token":               {bearer(hookSecret), body, 503},
		"a scheme in small":   {http.Header{"Authorization": {"bearer " + hookSecret}}, body, 503},
		"another scheme":      {http.Header{"Authorization": {"Basic " + hookSecret}}, body, 401},
		"another token":       {bearer(hookSecret + "x"), body, 401},
		"the variable's name": {bearer("HOOK_SECRET"), body, 401},
		"two tokens": {http.Header{"Authorization": {"Bearer " + hookSecret, "Bearer x"}},
			body, 401},
		"no scheme": {http.Header{"Authorization": {hookSecret}}, body, 401},
	} {
		p := hookFile(t, plainHook)
		got, message := sources.NewSet().Hook(t.Context(), []configs.Provider{p}, tt.header,
			[]byte(tt.body))
		if got != tt.want {
			t.Errorf("%s: got %d %s, want %d", name, got, message, tt.want)
		}
	}
}

// A guess of names tells nothing: an unknown name, a source of another kind and a wrong secret get
// one answer. A secret that is missing or short opens nothing.
func TestWebhookNamesAreNotTold(t *testing.T) {
	t.Setenv("HOOK_SHORT", "short")
	hook, other := hookFile(t, plainHook), hookFile(t, `run = "true"`)
	missing := hookFile(t, "webhook = true\nsecret_env = \"HOOK_MISSING\"\n")
	short := hookFile(t, "webhook = true\nsecret_env = \"HOOK_SHORT\"\n")
	answers := map[string]bool{}
	for name, tt := range map[string]struct {
		named  []configs.Provider
		header http.Header
	}{
		"wrong": {[]configs.Provider{hook}, bearer("wrong")}, "unknown": {nil, bearer(hookSecret)},
		"no webhook": {[]configs.Provider{other}, bearer(hookSecret)},
		"no secret":  {[]configs.Provider{missing}, bearer("")},
		"short":      {[]configs.Provider{short}, bearer("short")},
	} {
		status, message := sources.NewSet().Hook(t.Context(), tt.named, tt.header, nil)
		if status != 401 {
			t.Errorf("%s: got %d %s, want 401", name, status, message)
		}
		answers[message] = true
	}
	if len(answers) != 1 {
		t.Errorf("got the answers %v, want one", answers)
	}
}

// post sends a request to the source that run started.
func (w *world) post(p configs.Provider, h http.Header, body string) int {
	w.Helper()
	status, _ := w.set.Hook(w.Context(), []configs.Provider{p}, h, []byte(body))
	return status
}

// bound waits until a source has its session.
func (w *world) bound() {
	w.Helper()
	synctest.Wait()
	if v := w.only(); v.Reason != "" {
		w.Fatalf("the source waits: %s", v.Reason)
	}
}

// The text of an event has the fields of the body that the file names.
func TestWebhookTexts(t *testing.T) {
	pull :=
		`{"action":"opened","pull_request":{"id":9007199254740993,"title":"a\u001b[2J\u202eb","labels":["x"]}}`
	form := "payload=%7B%22action%22%3A%22closed%22%7D"
	text := func(s string) string { return plainHook + "text = '" + s + "'\n" }
	for name, tt := range map[string]struct {
		file, body string
		over       http.Header
		status     int
		want       string
	}{
		"paths": {text("{event} {action} {pull_request.id}: {pull_request.labels.0}, {no.such}"),
			pull, nil, 202, "push opened 9007199254740993: x,"},
		"controls":   {text("{pull_request.title}"), pull, nil, 202, "a\x1b[2J\u202eb"},
		"an object":  {text("{pull_request.labels}"), pull, nil, 202, `["x"]`},
		"as it came": {plainHook, pull, nil, 202, pull},
		"a form": {text("{action}"), form,
			http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 202, "closed"},
		"words": {text("{event}: {body}"), "all is well",
			http.Header{"Content-Type": {"text/plain"}}, 202,
			"push: all is well"},
		"no type":   {text("{action}"), pull, http.Header{"Content-Type": nil}, 202, "opened"},
		"no UTF-8":  {plainHook, "a\xffb", http.Header{"Content-Type": nil}, 202, "a\uFFFDb"},
		"no JSON":   {plainHook, "{", nil, 400, ""},
		"two":       {plainHook, "{} {}", nil, 400, ""},
		"deep":      {plainHook, strings.Repeat("[", 200_000), nil, 400, ""},
		"deep text": {plainHook, "[[[[", http.Header{"Content-Type": nil}, 202, "[[[["},
		"no text":   {text("{no.such}"), pull, nil, 202, ""},
		"ping":      {plainHook, pull, http.Header{"X-Github-Event": {"ping"}}, 200, ""},
		"long": {plainHook, strings.Repeat("x", 1<<20), http.Header{"Content-Type": nil}, 202,
			strings.Repeat("x", 100)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				s := w.session()
				p := hookFile(t, tt.file)
				stop := w.run(tt.file, protocol.AllSessions)
				w.bound()
				h := with(github(tt.body), tt.over)
				if got := w.post(p, h, tt.body); got != tt.status {
					t.Errorf("the answer: got %d, want %d", got, tt.status)
				}
				synctest.Wait()
				got := strings.Join(w.events(s, "watch@watch"), "\n---\n")
				if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) ||
					len(got) > 20<<10 {
					t.Errorf("the events: got %.300q, want %q", got, tt.want)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				w.end()
			})
		})
	}
}

// A request that comes again makes no second event: within a run, after a restart, and with headers
// that are not signed changed. A token alone can't show that a request came before.
func TestWebhookReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.session()
		p := hookFile(t, plainHook)
		now := time.Now()
		sum := hex.EncodeToString(mac(hookSecret, "one"))
		key := http.Header{"Idempotency-Key": {"k1"}, "Authorization": {"Bearer " + hookSecret}}
		plain := http.Header{"Content-Type": {"text/plain"}}
		var want []string
		for _, tt := range []struct {
			what   string
			header http.Header
			body   string
			want   int
		}{
			{"new", with(github("one"), plain), "one", 202},
			{"again", with(github("one"), plain), "one", 200},
			{"with another id",
				with(with(github("one"), plain), http.Header{"X-Github-Delivery": {"2"}}), "one",
				200},
			{"in capital letters",
				http.Header{"X-Hub-Signature-256": {"sha256=" + strings.ToUpper(sum)}}, "one", 200},
			{"signed with a time", standard("m1", now, "two"), "two", 202},
			{"the same id later", standard("m1", now.Add(time.Minute), "two"), "two", 200},
			{"another id", standard("m2", now, "two"), "two", 202},
			{"a token with a key", key, "three", 202},
			{"the same key", key, "three", 200},
			{"a token", bearer(hookSecret), "four", 202},
			{"a token again", bearer(hookSecret), "four", 202},
		} {
			stop := w.run(plainHook, protocol.AllSessions) // the gateway starts again before each
			w.bound()
			if got := w.post(p, tt.header, tt.body); got != tt.want {
				t.Errorf("%s: got %d, want %d", tt.what, got, tt.want)
			}
			if tt.want == 202 {
				want = append(want, tt.body)
			}
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.set = sources.NewSet()
		}
		w.want("events", w.events(s, "watch@watch"), want)
		w.end()
	})
}

// While the earlier requests are unknown, no request is taken that could come again. A bearer token
// does not show whether one comes again.
func TestWebhookForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.faults = make(chan string, 10)
		s := w.session()
		p := hookFile(t, plainHook)
		file := filepath.Join(w.state, "watch@.json")
		var stop func() error
		for _, tt := range []struct {
			what, file string // the file's content, "" for an empty one; "-" leaves it
			header     http.Header
			want       int
		}{
			{"new", "-", github("1"), 202},
			{"again with a damaged file", "{", github("1"), 503},
			{"a token", "-", bearer(hookSecret), 202},
			{"again, after a token", "-", github("1"), 503},
			{"the file is there again", `{"taken":[]}`, github("1"), 202},
			{"again", "-", github("1"), 200},
		} {
			if tt.file != "-" {
				if stop != nil {
					if err := stop(); err != nil {
						t.Error(err)
					}
					w.set = sources.NewSet() // the gateway starts again
				}
				if err := os.WriteFile(file, []byte(tt.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if stop == nil || tt.file != "-" {
				stop = w.run(plainHook, protocol.AllSessions)
				w.bound()
			}
			if got := w.post(p, tt.header, "1"); got != tt.want {
				t.Errorf("%s: got %d, want %d", tt.what, got, tt.want)
			}
			synctest.Wait() // the source says its faults after the answer, while it runs
		}
		w.want("events", w.events(s, "watch@watch"), []string{"1", "1", "1"})
		for _, want := range []string{"watch@.json is damaged", "", "watch@.json is damaged"} {
			got := "no fault"
			select {
			case got = <-w.faults:
			default:
			}
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("got the fault %q, want %q", got, want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// Nothing is lost while there is no session, or when events come too fast: the sender is told to
// come again, and then the request counts as new.
func TestWebhookComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := hookFile(t, plainHook)
		stop := w.run(plainHook+"filter = [ { match = \"keep\", outcome = \"keep\" } ]\n",
			protocol.AllSessions)
		synctest.Wait()
		if got := w.post(p, github("{}"), "{}"); got != 503 {
			t.Errorf("without a session: got %d, want 503", got)
		}
		s := w.session()
		w.bound()
		if got := w.post(p, github("{}"), "{}"); got != 202 {
			t.Errorf("the same with a session: got %d, want 202", got)
		}
		var codes []int
		for i := range 100 {
			body := fmt.Sprintf(`{"n":%d}`, i)
			for {
				status := w.post(p, github(body), body)
				codes = append(codes, status)
				if status == 202 {
					break
				}
				<-time.After(time.Minute)
			}
		}
		synctest.Wait()
		<-time.After(time.Minute)
		if got := len(w.events(s, "watch@watch")); got != 101 {
			t.Errorf("%d events, want 101", got)
		}
		if !slices.Contains(codes, 429) {
			t.Errorf("got the answers %v, want 429 among them", codes)
		}
		if err := s.Stop(t.Context(), "over"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		for _, tt := range []struct {
			body string
			want int
		}{{`"surface"`, 503}, {`"keep 1"`, 202}, {`"keep 1"`, 200}} {
			if got := w.post(p, github(tt.body), tt.body); got != tt.want {
				t.Errorf("%s after the session: got %d, want %d", tt.body, got, tt.want)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if got := w.post(p, github("[]"), "[]"); got != 503 {
			t.Errorf("when the source has ended: got %d, want 503", got)
		}
		w.end()
	})
}

// A secret that is missing, or short, is a fault that says how to set it.
func TestWebhookFaults(t *testing.T) {
	t.Setenv("HOOK_SHORT", "short")
	for variable, want := range map[string]string{
		"HOOK_MISSING": "has no variable HOOK_MISSING", "HOOK_SHORT": "fewer than 16 characters",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.session()
			p := hookFile(t, "webhook = true\nsecret_env = \""+variable+"\"\n")
			pass := w.gateway.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true,
				Name: p.Name})
			var faults []string
			done := make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				done <- w.set.Run(ctx, sources.Options{
					Provider: &p, Gateway: ofSources{w.gateway}, Token: pass.Token(),
					Session: protocol.AllSessions, State: filepath.Join(w.state, "x.json"),
					Line: func(string, string) {}, Faults: func(lines []string) {
						faults = append(faults, lines...)
					},
				})
			}()
			synctest.Wait()
			if len(faults) != 1 || !strings.Contains(faults[0], want) ||
				strings.Contains(faults[0], "short;") {
				t.Errorf("%s: got the faults %q, want %q", variable, faults, want)
			}
			if v := w.only(); !strings.Contains(v.Reason, want) {
				t.Errorf("%s: got the reason %q, want %q", variable, v.Reason, want)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			w.end()
		})
	}
}
