package server

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/gateway"
)

// TestFiles finds files below a session's directory, and says plainly where there is none on this
// machine.
func TestFiles(t *testing.T) {
	f := newOpenAPIFixture(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "read me.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{
		dir:                        `{"files":["read me.md"],"more":false}`,
		filepath.Join(dir, "none"): "the session has no directory on this machine",
		"elsewhere":                "the session has no directory on this machine",
		"":                         "the session has no directory on this machine",
	} {
		info, host := gateway.HostInfo{Kind: "editor"}, restHost{&restCopilot{}}
		s, err := f.gateway.Register(gateway.SessionSpec{CWD: cwd}, info, host)
		if err != nil {
			t.Fatal(err)
		}
		status, body := f.ask("GET", "/api/v1/sessions/"+s.ID()+"/files?query=README", "")
		if !strings.Contains(string(body), want) ||
			(status == http.StatusOK) != strings.HasPrefix(want, "{") {
			t.Errorf("%q: %d %s, want %q", cwd, status, body, want)
		}
	}
}

// TestQueryBrings: a prompt brings as many bytes as the document says, and the body of one that
// brings more is not read to its end.
func TestQueryBrings(t *testing.T) {
	f := newOpenAPIFixture(t)
	s, err := f.gateway.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: "/"})
	if err != nil {
		t.Fatal(err)
	}
	file := func(size int) string {
		return `{"name":"a.bin","data":"` + base64.StdEncoding.EncodeToString(make([]byte, size)) +
			`"}`
	}
	query := func(files ...string) string {
		return `{"prompt":"look","detach":true,"attachments":[` + strings.Join(files, ",") + `]}`
	}
	for name, tc := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"as much as may be": {query(file(5<<20), file(5<<20)), 400,
			"attachments[0].data: prompts of sessions of host local"},
		"more together": {query(file(5<<20), file(5<<20), file(1)), 413,
			"attachments: have more than"},
		"a longer body":     {query(file(16 << 20)), 413, "body: more than"},
		"what is no base64": {query(`{"name":"a","data":"%"}`), 400, "data"},
		"other bodies as before": {`{"label":"` + strings.Repeat("x", 3<<20) + `"}`, 413,
			"body: more than 2097152 bytes"},
		"and prompts without any": {query(), 202, "{}"},
	} {
		path := "/query"
		if name == "other bodies as before" {
			path = "/rename"
		}
		status, body := f.ask("POST", "/api/v1/sessions/"+s.ID()+path, tc.body)
		if status != tc.status || !bytes.Contains(body, []byte(tc.want)) {
			t.Errorf("%s: %d %.200s, want %d and %q", name, status, body, tc.status, tc.want)
		}
	}
}
