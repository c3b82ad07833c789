package providers

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestEndpoints(t *testing.T) {
	const file = `{"url":"ws://127.0.0.1:7","pid":1}`
	tests := map[string]struct {
		opts               Options
		envURL, envToken   string
		info, providerFile string
		want               string // url token, one endpoint a line
	}{
		"nothing":             {want: "gateway.json yet; start one, or set TAP_GATEWAY_URL"},
		"no token":            {info: file, want: "no token"},
		"the file's token":    {providerFile: "ptk-f\n", want: "gateway.json yet"},
		"both files":          {info: file, providerFile: "ptk-f", want: "ws://127.0.0.1:7 ptk-f"},
		"half a gateway.json": {info: file[:8], providerFile: "ptk-f", want: "gateway.json yet"},
		"a wrong gateway.json": {info: `{"url":"nowhere"}`, providerFile: "ptk-f",
			want: "gateway.json yet"},
		"environment's URL": {envURL: "ws://[::1]:8", info: file, providerFile: "ptk-f",
			want: "ws://[::1]:8 ptk-f"},
		"environment's token": {envToken: "ptk-e", info: file, providerFile: "ptk-f",
			want: "ws://127.0.0.1:7 ptk-e\nws://127.0.0.1:7 ptk-f"},
		"the same token": {envToken: "ptk-f", info: file, providerFile: "ptk-f",
			want: "ws://127.0.0.1:7 ptk-f"},
		"only environment": {envToken: "ptk-e", want: "gateway.json yet"},
		"a gateway's child": {envURL: "ws://[::1]:8", envToken: "ptk-e", info: file,
			providerFile: "ptk-f",
			want:         "ws://[::1]:8 ptk-e named"},
		"options": {opts: Options{URL: "wss://h:1", Token: "ptk-o"}, envURL: "ws://[::1]:8",
			envToken: "ptk-e", info: file, providerFile: "ptk-f",
			want: "wss://h:1 ptk-o given named"},
		"option's URL": {opts: Options{URL: "http://h:1"}, envURL: "bad", providerFile: "ptk-f",
			want: "http://h:1 ptk-f"},
		"a file of its own": {opts: Options{TokenFile: "gateway.json"}, envToken: "ptk-e",
			info:         file,
			providerFile: "ptk-f", want: "ws://127.0.0.1:7 " + file},
		"a missing file": {opts: Options{TokenFile: "missing"}, info: file, envToken: "ptk-e",
			providerFile: "ptk-f", want: "no token: no gateway has written"},
		"a wrong URL": {envURL: "bad", providerFile: "ptk-f", want: "TAP_GATEWAY_URL"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("COPILOT_HOME", home)
			t.Setenv(envURL, tt.envURL)
			t.Setenv(envToken, tt.envToken)
			for file, text := range map[string]string{"gateway.json": tt.info,
				".provider-token": tt.providerFile} {
				dir := filepath.Join(home, "extensions", "tap")
				if err := os.MkdirAll(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.opts.TokenFile != "" {
				tt.opts.TokenFile = filepath.Join(home, "extensions", "tap", tt.opts.TokenFile)
			}
			found, err := endpoints(tt.opts)
			if err != nil {
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				return
			}
			var got []string
			for _, e := range found {
				line := e.url + " " + e.token
				if e.fixedToken {
					line += " given"
				}
				if e.fromUser {
					line += " named"
				}
				got = append(got, line)
			}
			if want := strings.Split(tt.want, "\n"); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// Without COPILOT_HOME the files are in the user's home.
func TestStateDir(t *testing.T) {
	t.Setenv("COPILOT_HOME", "")
	t.Setenv(envURL, "")
	t.Setenv(envToken, "")
	t.Setenv("HOME", "/home/ann")
	got, err := stateDir()
	if want := "/home/ann/.copilot/extensions/tap"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	t.Setenv("HOME", "")
	if _, err := stateDir(); err == nil || !strings.Contains(err.Error(), "COPILOT_HOME") {
		t.Errorf("without any home: %v, want an error that names COPILOT_HOME", err)
	}
	if _, err := endpoints(Options{}); err == nil ||
		!strings.Contains(err.Error(), "COPILOT_HOME") {
		t.Errorf("no home and no token: %v, want an error that names COPILOT_HOME", err)
	}
	if found, err := endpoints(Options{URL: "ws://h", Token: "ptk-o"}); err != nil ||
		len(found) != 1 {
		t.Errorf("no home but a URL and a token: %v, %v, want one endpoint", found, err)
	}
}

func TestBackoff(t *testing.T) {
	longest := firstWait
	for attempt := range 40 {
		for range 100 {
			if d := backoff(attempt, maxWait); d < longest/2 || d > longest {
				t.Fatalf("attempt %d waits %v, want from %v to %v", attempt, d, longest/2, longest)
			}
		}
		longest = min(longest*3/2, 900*time.Millisecond)
	}
}
