package server_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// A provider that stops reading is closed and its calls end. Other providers and their calls go on.
func TestFrozenProvider(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1", "live"}); err != nil {
			t.Fatal(err)
		}
		session, _ := s.gateway.Session("s1")
		frozen := s.dialRaw("/")
		go frozen.send(
			frame(true, opText, true,
				[]byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)),
			frame(
				true,
				opText,
				true,
				[]byte(
					`{"type":"hello","name":"frozen","protocolVersion":2,"session":"s1","tools":[{"name":"f","description":"d","parameters":{}}]}`,
				),
			),
		)
		for range 4 {
			if _, _, err := frozen.next(); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range joinSteps([]string{"a", "s1", "t"}) {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		s.collect()
		// It reads nothing from here on. Large calls fill what may wait for it.
		type ended struct {
			o     gateway.Outcome
			after time.Duration
		}
		ends := make(chan ended, 10)
		start := time.Now()
		big := protocol.Raw(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		for range 10 {
			go func() {
				o := session.CallTool(s.ctx, gateway.Call{Name: "f", Args: big})
				ends <- ended{o, time.Since(start)}
			}()
		}
		// those that began when it was closed already: what waits for it is 8 MiB at least
		late := 0
		for range 10 {
			e := <-ends
			if e.o.ErrorCode == protocol.CodeNotFound && late < 2 {
				late++
			} else if e.o.ErrorCode != protocol.CodeDisconnected || e.after > 10*time.Second {
				t.Errorf("got %s after %s, want DISCONNECTED within 10 s", e.o.ErrorCode, e.after)
			}
		}
		if n := s.gateway.Stats().SlowPeers.Load(); n != 1 {
			t.Errorf("got %d slow consumers, want 1", n)
		}
		for _, step := range []string{"call c1 s1 t",
			`a> {"type":"tool.result","id":"$id1","data":"fine"}`} {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if came := strings.Join(s.collect(), "\n"); strings.HasPrefix(step, "a>") &&
				!strings.Contains(came, `c1= "fine" after 0s`) {
				t.Errorf("the other provider's call: got %s, want its result at once", came)
			}
		}
		_ = frozen.conn.Close()
	})
}

// A session host that is busy while several large results come keeps its
// sessions; one that reads nothing for 10 s does not.
func TestBusyHost(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		host := s.dialRaw("/host")
		request := func(text string) {
			go host.send(frame(true, opText, true, []byte(text)))
			synctest.Wait()
		}
		answer := func() string {
			_, payload, err := host.next()
			if err != nil {
				t.Fatal(err)
			}
			return payload
		}
		request(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":"` +
				s.gateway.AdminToken() + `","host":{"name":"x"}}}`,
		)
		answer()
		request(
			`{"jsonrpc":"2.0","id":2,"method":"session/register","params":{"id":"e1","label":"l","cwd":"/c"}}`)
		answer()
		for _, step := range joinSteps([]string{"a", "e1", "t"}) {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		call := func(id int) {
			request(
				fmt.Sprintf(
					`{"jsonrpc":"2.0","id":%d,"method":"tool/call","params":{"sessionId":"e1","name":"t"}}`,
					id),
			)
		}
		for i := range 4 {
			call(10 + i)
		}
		s.collect() // names the ids
		for i := range 4 {
			if err := s.do(
				fmt.Sprintf(`a>pad 5242880 {"type":"tool.result","id":"$id%d","data":"$pad"}`,
					i+1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		advance(9 * time.Second)
		large := 0
		for large < 4 {
			if got := answer(); len(got) > 5<<20-200 {
				large++
			}
		}
		call(20)
		s.collect()
		if err := s.do(`a> {"type":"tool.result","id":"$id5","data":"unread"}`); err != nil {
			t.Fatal(err)
		}
		advance(10 * time.Second)
		if n := s.gateway.Stats().SlowPeers.Load(); n != 1 {
			t.Errorf("got %d slow consumers, want 1", n)
		}
		advance(41 * time.Second) // 30 s for the host to come back, 10 s for the provider
		if n := len(s.gateway.Sessions()); n != 0 {
			t.Errorf("got %d sessions, want 0", n)
		}
		_ = host.conn.Close()
	})
}
