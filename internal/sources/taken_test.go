package sources

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// The newest requests are remembered, over a restart too. A file that is damaged or too large is an
// error until a person removes it.
func TestTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sources", "hook@.json")
	full := &taken{}
	for i := range maxTaken + 3 {
		if err := full.add(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	full.file = file
	if err := full.add("last"); err != nil {
		t.Fatal(err)
	}
	again := &taken{file: file}
	if err := again.load(); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]bool{"last": true, "4": true, "3": false, "": false} {
		if got := again.has(key); got != want {
			t.Errorf("has(%q) after a restart: got %v, want %v", key, got, want)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 || info.Size() > maxTakenIn {
		t.Errorf("the file: got %v %v, want mode 0600 and at most %d bytes", info, err, maxTakenIn)
	}
	for name, data := range map[string]string{"damaged": `{"taken":`,
		"large": string(make([]byte, maxTakenIn+1))} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		bad := &taken{file: file}
		if err := bad.load(); err == nil || len(bad.keys) > 0 {
			t.Errorf("%s: got %v and %d requests, want an error and none", name, err, len(bad.keys))
		}
		if err := bad.load(); err == nil {
			t.Errorf("%s, looked at again: no error, want one", name)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := bad.load(); err != nil {
			t.Errorf("%s, and removed: %v, want no error", name, err)
		}
	}
}

// No headers open a webhook without its secret, and no body of a right request does harm.
func FuzzWebhook(f *testing.F) {
	f.Add("sha256=00", "v1,AA==", "id", "1", "Bearer x", "application/json", []byte(`{"a":[1]}`))
	f.Add("", "v1, v1,", "a.b", "-1", "", "application/x-www-form-urlencoded",
		[]byte("payload=%7B%7D"))
	f.Fuzz(func(t *testing.T, hub, signature, id, stamp, token, mediaType string, body []byte) {
		h := http.Header{"Content-Type": {mediaType}}
		for name, value := range map[string]string{"X-Hub-Signature-256": hub,
			"Webhook-Signature": signature,
			"Webhook-Id":        id, "Webhook-Timestamp": stamp, "Authorization": token} {
			if value != "" {
				h.Set(name, value)
			}
		}
		if _, ok := prove(h, body, strangersSecret(), time.Now()); ok {
			t.Errorf("%v opens a webhook, want nothing to", h)
		}
		e, err := hookEvent(h, body)
		if err == nil {
			_ = e.value("a.0") + e.value("event") + e.value("body")
		}
	})
}
