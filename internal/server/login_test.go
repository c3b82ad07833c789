package server

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// loginSupervisor waits in a login until that ends, or may succeed.
type loginSupervisor struct {
	openAPISupervisor
	returned chan struct{} // the browser
	ended    chan error
}

const loginLink = `https://as.example/authorize?state="x"&y`

func (s loginSupervisor) Login(ctx context.Context, _ string, show func(link string) error) error {
	err := show(loginLink)
	if err == nil {
		select {
		case <-s.returned:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	s.ended <- err
	return err
}

// A login lasts as long as its request: it keeps the gateway in use, its file goes with it, and it
// ends when the client leaves or the gateway ends.
func TestLoginRequest(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(s loginSupervisor, leave func(), server *Server)
		isError bool
	}{
		"the browser returns": {func(s loginSupervisor, _ func(), _ *Server) {
			s.returned <- struct{}{}
		}, false},
		"the client leaves": {func(_ loginSupervisor, leave func(), _ *Server) { leave() }, true},
		"the gateway ends": {func(_ loginSupervisor, _ func(), server *Server) {
			if err := server.Shutdown(t.Context()); err != nil {
				t.Errorf("shutting down: %v, want no error", err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := loginSupervisor{returned: make(chan struct{}, 1), ended: make(chan error, 1)}
			dir, f := t.TempDir(), makeRESTFixture(t)
			f.server = New(Options{Gateway: gateway.New(gateway.Options{}), Supervisor: s,
				SigninDir: dir, Status: func() adminapi.Status { return adminapi.Status{} }})
			if err := f.server.Listen("127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			f.serve()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			target := "http" + strings.TrimPrefix(f.server.URL(),
				"ws") + "/api/v1/providers/filed/login"
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, target,
				strings.NewReader(`{"file":true}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+f.server.gateway.AdminToken())
			req.Header.Set("Content-Type", "application/json")
			resp, err := f.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewScanner(resp.Body)
			next := func() (step adminapi.LoginStep) {
				if lines.Scan() {
					if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
						t.Errorf("the line %s: %v, want JSON", lines.Bytes(), err)
					}
				}
				return step
			}
			first := next()
			info, err := os.Stat(first.File)
			if err != nil || info.Mode().Perm() != 0o600 || first.URL != loginLink {
				t.Fatalf(
					"the first line is %+v, its file %v, %v, want the link, and a file of mode 600",
					first, info, err)
			}
			page, err := os.ReadFile(first.File)
			const want = `url=https://as.example/authorize?state=&#34;x&#34;&amp;y"`
			if err != nil || !strings.Contains(string(page), want) {
				t.Errorf("the page is %s, %v, want the link in it, escaped", page, err)
			}
			if idle := time.Since(f.server.LastActivity()); idle > time.Minute ||
				f.server.heldRequests.Load() != 1 {
				t.Errorf("the gateway counts as idle for %s in a login, want it in use", idle)
			}
			c.end(s, leave, f.server)
			if err := <-s.ended; (err != nil) != c.isError {
				t.Errorf("the login ends with %v, want an error: %v", err, c.isError)
			}
			if last := next(); !c.isError && (!last.Done || last.Error != nil) {
				t.Errorf("the last line is %+v, want that it is done", last)
			}
			if err := f.server.Shutdown(t.Context()); err != nil {
				t.Errorf("shutting down: %v, want no error", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("the directory has %v, %v, want no file", entries, err)
			}
		})
	}
}
