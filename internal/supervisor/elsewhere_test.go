package supervisor

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// names returns the providers to run for sessions of other gateways, and counts them as running.
func (s *Supervisor) names() (list []string) {
	want := map[placementKey]*configs.Provider{}
	s.addElsewhere(want)
	s.placements = map[placementKey]*placement{}
	for key := range want {
		list = append(list, key.name+"@"+key.at+"/"+key.session)
		s.placements[key] = &placement{}
	}
	slices.Sort(list)
	return list
}

func elsewhere(most int, sessions *[]adminapi.Session, providers ...configs.Provider) *Supervisor {
	s := New(Options{Gateway: gateway.New(gateway.Options{}), MaxElsewhere: most,
		Elsewhere: func(string) []adminapi.Session { return *sessions }})
	s.startTimer = time.NewTimer(time.Hour)
	for _, p := range providers {
		p.Enabled, p.File = true, "/"+p.Name+".toml"
		f := configs.ProviderFile{Name: p.Name, File: p.File, Provider: &p}
		s.files = append(s.files, f)
		s.usable[fileKeyOf(f)] = &p
	}
	return s
}

func TestElsewhereByFile(t *testing.T) {
	each := func(f configs.Sessions) configs.Sessions {
		f.Mode = configs.SessionsEach
		return f
	}
	http := func(f configs.Sessions) configs.Provider {
		return configs.Provider{Kind: configs.KindHTTP, Sessions: each(f)}
	}
	of := func(kind string) configs.Provider {
		return configs.Provider{Kind: kind, Sessions: each(configs.Sessions{})}
	}
	all := configs.Sessions{Mode: configs.SessionsAll}
	ofProject := configs.Provider{Kind: configs.KindHTTP, Project: "/p", Sessions: each(all)}
	sessions := []adminapi.Session{{ID: "1", Gateway: "b", Label: "review", Host: "copilot"},
		{ID: "1", Gateway: "c"}}
	both := []string{"p@b/1", "p@c/1"}
	for name, tc := range map[string]struct {
		p    configs.Provider
		most int
		want []string
	}{
		"each":         {of(configs.KindHTTP), 9, both},
		"a program":    {of(configs.KindCommand), 9, both},
		"not opted in": {of(configs.KindHTTP), 0, nil},
		"all": {configs.Provider{Kind: configs.KindHTTP, Sessions: all}, 9,
			nil},
		"in the session's files":   {of(configs.KindTools), 9, nil},
		"that starts itself":       {of(configs.KindConnect), 9, nil},
		"of a project":             {ofProject, 9, nil},
		"a label":                  {http(configs.Sessions{Label: "review"}), 9, both[:1]},
		"a kind of host":           {http(configs.Sessions{Host: "copilot"}), 9, both[:1]},
		"a directory, of anything": {http(configs.Sessions{CWD: "**"}), 9, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.p.Name = "p"
			s := elsewhere(tc.most, &sessions, tc.p)
			s.launch[tc.p.Kind] = runHTTP
			if got := s.names(); !slices.Equal(got, tc.want) {
				t.Errorf("%v run, want %v", got, tc.want)
			}
		})
	}
}

// Beyond the most, sessions wait for one that ends, and sessions that come and go start few
// providers.
func TestElsewhereIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sessions []adminapi.Session
		have := func(from, to int) {
			sessions = nil
			for i := from; i < to; i++ {
				sessions = append(sessions, adminapi.Session{ID: fmt.Sprint(i), Gateway: "b"})
			}
		}
		s := elsewhere(3, &sessions, configs.Provider{Name: "p", Kind: configs.KindHTTP,
			Sessions: configs.Sessions{Mode: configs.SessionsEach}})
		defer s.startTimer.Stop()
		var log strings.Builder
		s.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		expect := func(when string, want ...string) {
			t.Helper()
			if got := s.names(); !slices.Equal(got, want) {
				t.Errorf("%s: %v run, want %v", when, got, want)
			}
		}
		have(0, 5)
		expect("five sessions, at most three", "p@b/0", "p@b/1", "p@b/2")
		s.names()
		if n := strings.Count(log.String(), "max_each=3 wanted=5"); n != 1 {
			t.Errorf("the log: %s, want one line with the limit", log.String())
		}
		have(2, 5)
		expect("two have ended, at once", "p@b/2")
		time.Sleep(time.Second)
		expect("a second later", "p@b/2", "p@b/3")
		for i := range 100 { // a gateway that makes sessions up
			have(10*i, 10*i+3)
			s.names()
		}
		expect("after sessions that came and went")
		time.Sleep(3 * time.Second)
		expect("after a quiet while", "p@b/990", "p@b/991", "p@b/992")
	})
}
