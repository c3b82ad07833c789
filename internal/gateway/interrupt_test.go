package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// stoppingHost takes some time to stop a turn.
type stoppingHost struct {
	quietHost
	takes time.Duration
}

func (h stoppingHost) Interrupt(context.Context, string) ([]string, error) {
	sleep(h.takes)
	return []string{"and then\nthe tests " + strings.Repeat("x", 100)}, nil
}

// The calls of a turn end after it is stopped, since its model would go on with their
// outcomes. If the host does not stop it in time they end anyway.
func TestInterruptStopsTheTurnFirst(t *testing.T) {
	for takes, ends := range map[time.Duration]time.Duration{time.Second: time.Second,
		time.Hour: stopTimeout} {
		synctest.Test(t, func(t *testing.T) {
			g := New(Options{})
			s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"},
				HostInfo{Kind: "test", Send: true, Interrupt: true, StopsFirst: true},
				stoppingHost{takes: takes})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Drain(context.Background())
			connectProvider(t, g,
				`"name":"p","tools":[{"name":"t","description":"d","parameters":{}}]`)
			begun := time.Now()
			ended := make(chan time.Duration, 1)
			s.BeginCall(Call{Name: "t"}, func(o Outcome) {
				if o.ErrorCode != protocol.CodeCancelled {
					t.Errorf("the call: %s, want %v", o.Text(), protocol.CodeCancelled)
				}
				ended <- time.Since(begun)
			})
			dropped, err := s.Interrupt(context.Background(), "enough")
			if err != nil || len(dropped) != 1 ||
				!strings.HasPrefix(dropped[0], "and then the tests x") || len(dropped[0]) > 62 {
				t.Errorf("dropped %q, %v, want the one that waited, shortened", dropped, err)
			}
			if got := <-ended; got != ends {
				t.Errorf("where the host takes %s the call ends after %s, want %s", takes, got,
					ends)
			}
			lines, _ := s.Timeline(0)
			if !slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
				return l.Level == adminapi.LogWarning &&
					strings.HasPrefix(l.Message,
						`1 prompt that waited is dropped: "and then the tests x`)
			}) {
				t.Errorf("the timeline: %v, want a warning that 1 prompt is dropped", lines)
			}
		})
	}
}

// Prompts that wait in a local session begin after an interrupt, each with a turn of its own.
func TestInterruptKeepsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s, err := LocalStarter{}.Start(t.Context(), g, StartRequest{CWD: "/c"})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Drain(context.Background())
		p := &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}
		c := g.Connect(p, ConnOptions{})
		defer c.Closed()
		c.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
		version := protocol.Version
		c.Receive(protocol.Append(nil, &protocol.Hello{Name: "p", ProtocolVersion: &version,
			Session: s.ID(),
			Tools: []protocol.Tool{{Name: "hang", Description: "d",
				Parameters: protocol.Raw(`{}`)}}}))
		running, err := s.Turn(t.Context(), Prompt{Text: "call:hang"})
		if err != nil {
			t.Fatal(err)
		}
		behind, err := s.Turn(t.Context(), Prompt{Text: "call:nothing"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if dropped, err := s.Interrupt(t.Context(), "enough"); err != nil || len(dropped) > 0 {
			t.Errorf("dropped %q, %v, want none", dropped, err)
		}
		for turn, want := range map[*Turn]string{running: "CANCELLED", behind: "NOT_FOUND"} {
			said, err := read(t.Context(), turn)
			if all := strings.Join(said, " "); !errors.Is(err, ErrTurnEnded) ||
				!strings.Contains(all, want) || strings.Count(all, OnAgentStart) != 1 {
				t.Errorf("the turn said %q, %v, want its own alone with %s, and %v", said, err,
					want, ErrTurnEnded)
			}
		}
	})
}
