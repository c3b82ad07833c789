package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/providers"
)

// waitFile waits for the token of a provider that starts itself: the log says
// nothing of it, so the gateway's list of files is asked until it is there.
func waitFile(t *testing.T, r *rig, file string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if data, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(data), "ptk-") {
			return string(data)
		}
		r.s.Reload()
	}
	t.Fatal("there is no token file, want one")
	return ""
}

// connect runs a provider that starts itself; the channel is closed at its end.
func connect(t *testing.T, r *rig, token string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	p := providers.New(
		"ed",
		&providers.Options{
			URL: r.s.url, Token: token, Session: providers.AllSessions,
			Logger:  slog.New(slog.DiscardHandler),
			OnError: func(error) { cancel() },
		},
	)
	providers.AddTool(p, "t", "a tool", func(context.Context, struct{}) (string, error) {
		return "done", nil
	})
	go func() {
		defer close(done)
		defer cancel()
		_ = p.Run(ctx)
	}()
	return done
}

// The waits between starts grow, and end where a minute has seen five failures;
// one that runs a minute begins anew.
func TestRestartPolicy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lives  time.Duration // how long each run lasts
		starts int
		waits  []time.Duration // the longest that each wait may be, as far as it goes
	}{
		{"ends at once", 0, maxFailures, []time.Duration{200, 400, 800, 1600}},
		{"after ten seconds", 10 * time.Second, maxFailures, nil},
		{
			"after fifteen seconds", 15 * time.Second, 20,
			[]time.Duration{200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000},
		},
		{"after a minute", time.Minute, 20, []time.Duration{200, 200, 200, 200}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gateway.New(gateway.Options{})
				var began []time.Time
				enough := make(chan struct{})
				s := &Supervisor{
					o: Options{Gateway: g},
					launch: map[string]Launcher{"x": func(ctx context.Context, r *Run) error {
						if began = append(began, time.Now()); len(began) == 20 {
							close(enough)
							<-ctx.Done()
							return nil
						}
						select {
						case <-time.After(tt.lives):
							return errors.New("broken")
						case <-ctx.Done():
							return nil
						}
					}},
					wake:    make(chan struct{}, 1),
					outputs: map[string]*output{},
				}
				s.o.Log = slog.New(slog.DiscardHandler)
				s.ctx, s.cancel = context.WithCancel(t.Context())
				s.unitCtx = s.ctx
				u := s.start(&configs.Provider{Name: "p", Kind: "x"}, placementKey{}, nil)
				select {
				case <-enough:
				case <-time.After(time.Hour):
				}
				if len(began) != tt.starts {
					t.Fatalf("%d starts, want %d", len(began), tt.starts)
				}
				if gaveUp := u.failure() != nil; gaveUp != (tt.starts == maxFailures) {
					t.Errorf("gave up: %v, want a failure: %v", u.failure(),
						tt.starts == maxFailures)
				}
				for i, most := range tt.waits {
					most *= time.Millisecond
					wait := began[i+1].Sub(began[i]) - tt.lives
					if wait > most || wait < max(firstWait, most*3/4) {
						t.Errorf("wait %d is %s, want at most %s and a quarter less", i, wait, most)
					}
				}
				u.stop()
				s.cancel()
				s.units.Wait()
			})
		})
	}
}

// A directory of a thousand files, of which nothing runs, loads as one goes.
func BenchmarkReload(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "providers"), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		text := fmt.Sprintf(
			"kind = \"command\"\ncommand = [\"true\"]\nenv = { N = \"%d\" }\nsessions = \"each\"\nallow = [\"get_*\"]\n",
			i,
		)
		file := filepath.Join(dir, "providers", fmt.Sprintf("p%d.toml", i))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tapgw.toml"), nil, 0o600); err != nil {
		b.Fatal(err)
	}
	files, err := configs.Find(dir, "tapgw.toml")
	if err != nil {
		b.Fatal(err)
	}
	s := New(Options{Gateway: gateway.New(gateway.Options{}), Files: files})
	s.Open("ws://127.0.0.1:1")
	defer s.Close()
	for b.Loop() {
		s.Reload()
	}
}

// A program is who its file says: by the file's name, or by the one in it.
func TestFileSaysTheName(t *testing.T) {
	r := newRig(t)
	_, h := r.session("one")
	r.put("editor", "kind = \"connect\"\nsessions = \"all\"\n")
	file := filepath.Join(r.s.o.TokenDir, "editor.token")
	select {
	case <-connect(t, r, waitFile(t, r, file)): // it calls itself ed
	case <-time.After(patience):
		t.Fatal("a program of another name than its file's is let in, want a refusal")
	}
	if faults := r.s.Faults(); len(faults) != 1 ||
		!strings.Contains(faults[0].Message,
			`"ed" is not the name that this token is for, which is "editor"`) {
		t.Errorf(`faults: %v, want one that "ed" is not the token's name, which is "editor"`,
			faults)
	}
	r.has(h)
	r.put("editor", "kind = \"connect\"\nname = \"ed\"\nsessions = \"all\"\n")
	r.s.Reload()
	connect(t, r, waitFile(t, r, file))
	r.has(h, "t")
}

// A file keeps its name for its provider where that does not run yet, or no more: not
// for a hand that stopped it.
func TestFileKeepsItsNameWhileItsProviderIsAway(t *testing.T) {
	r := newRig(t)
	r.put(
		"editor",
		"kind = \"command\"\nname = \"Ed\"\ncommand = [\"/nowhere/editor\"]\n[sessions]\ncwd = \"/w/one*\"\n",
	)
	r.s.Reload()
	hello := func(session string) (bound bool, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p := providers.New(
			"ed",
			&providers.Options{
				URL: r.s.url, Token: r.g.InstanceToken(), Session: session,
				Logger:  slog.New(slog.DiscardHandler),
				OnBound: func(context.Context, providers.Binding) { bound = true; cancel() },
			},
		)
		err = p.Run(ctx)
		return bound, err
	}
	if _, err := r.s.Stop("editor"); err != nil {
		t.Fatal(err)
	}
	r.session("one")
	if bound, err := hello("one"); !bound {
		t.Errorf("with the provider stopped: %v, want it bound", err)
	}
	if _, err := r.s.Start("editor"); err != nil {
		t.Fatal(err)
	}
	r.s.Quiesce() // as if nothing could start it for the next event
	for name, free := range map[string]bool{"one-more": false, "two": true} {
		r.session(name)
		if bound, err := hello(name); bound != free ||
			!free && !strings.Contains(fmt.Sprint(err), `"ed" is the name of a provider file`) ||
			!free && !strings.HasSuffix(fmt.Sprint(err), "(tapctl providers stop)") {
			t.Errorf(
				`in session %s: %v %v, want bound: %v, or that "ed" is a provider file's name and what stops it`,
				name, bound, err, free,
			)
		}
	}
}

// A provider whose file no longer grants something loses the right at once: it is unbound before
// its new version is bound. One whose file grants more, or the same, stays until the new version is
// bound.
func TestLostGrantEndsAtOnce(t *testing.T) {
	r := newRig(t)
	_, h := r.session("one")
	r.put("a", r.file("plain", `grants = ["questions"]`))
	r.s.Reload()
	r.has(h, "t")
	first := r.child()
	r.put("a", r.file("late", `grants = ["questions", "gates"]`))
	r.s.Reload()
	second := r.child()
	r.has(h, "t")
	r.s.do(func() {
		if pl := r.s.placements[placementKey{name: "a", session: "one"}]; pl == nil ||
			pl.next == nil {
			t.Error(
				"more grants: the old version has ended already, want it to wait for the new one")
		}
	})
	r.put("a", r.file("late", `grants = ["gates"]`))
	r.s.Reload()
	r.has(h) // though the new version is not bound
	r.ended(first)
	r.ended(second)
	third := r.child()
	fmt.Fprintln(third.conn, "go on")
	r.has(h, "t")
}
