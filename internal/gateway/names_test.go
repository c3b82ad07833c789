package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// helloAs says hello by a name and returns the code of its refusal, "" for none.
func (h *holder) helloAs(name, session string, more ...func(*protocol.Hello)) protocol.Code {
	version, before := protocol.Version, len(h.errs)
	m := &protocol.Hello{Name: name, ProtocolVersion: &version, Session: session,
		Tools: []protocol.Tool{}}
	for _, f := range more {
		f(m)
	}
	h.conn.Receive(protocol.Append(nil, m))
	if len(h.errs) > before {
		return h.errs[len(h.errs)-1].Code
	}
	return ""
}

// A hello that is refused makes no directory for its name; the one that binds, and a rebind, find
// theirs.
func TestRefusedHelloMakesNoDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made []string
		g := New(Options{PersistDir: func(name string) (string, error) {
			made = append(made, name)
			return "/p/" + name + "/", nil
		}})
		live(t, g, "s1")
		defer g.Drain(context.Background())
		tool := func(m *protocol.Hello) {
			m.Tools = []protocol.Tool{{Name: "same", Description: "d",
				Parameters: protocol.Raw(`{}`)}}
		}
		first := connectWith(g, g.InstanceToken())
		if code := first.helloAs("first", "s1", tool); code != "" {
			t.Fatalf("a first hello is refused with %s", code)
		}
		h := connectWith(g, g.InstanceToken())
		if code := h.helloAs("lost", "s9"); code != protocol.CodeInvalidSession {
			t.Errorf("no such session: %q, want %s", code, protocol.CodeInvalidSession)
		}
		if code := h.helloAs("second", "s1", tool); code != protocol.CodeToolConflict {
			t.Errorf("a tool that another has: %q, want %s", code, protocol.CodeToolConflict)
		}
		for range 2 {
			if code := h.helloAs("third", "s1"); code != "" {
				t.Errorf("a good hello is refused with %s", code)
			}
		}
		if want := []string{"first", "third", "third"}; !slices.Equal(made, want) {
			t.Errorf("directories are made for %q, want %q", made, want)
		}
	})
}

// A provider file's name is its provider's alone in the sessions that are open to
// it, there or not yet; every version of it has what the ones before it had.
func TestFileKeepsItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		live(t, g, "s1")
		live(t, g, "s2")
		defer g.Drain(context.Background())
		isFirst := func(v adminapi.Session) bool { return v.ID == "s1" }
		g.ReserveNames([]ReservedName{{Name: "Vault", Owner: "/home/me/providers", Match: isFirst}})
		for who, token := range map[string]string{
			"instance": g.InstanceToken(), "admin": g.AdminToken(),
			"spawn": g.IssueSpawnToken("s1"),
		} {
			if code := connectWith(g, token).helloAs("vault",
				"s1"); code != protocol.CodeUnauthorized {
				t.Errorf("%s: %q, want %v", who, code, protocol.CodeUnauthorized)
			}
		}
		if code := connectWith(g, g.InstanceToken()).helloAs("vault", "s2"); code != "" {
			t.Errorf(`in a session that is not the file's: %s, want ""`, code)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		defer g.Drain(context.Background())
		spec := PassSpec{Trust: TrustProject, Session: "s1", Name: "Vault",
			Owner: "/home/me/providers"}
		first := g.Issue(spec)
		h := connectWith(g, first.Token())
		if code := h.helloAs("wallet", "s1"); code != protocol.CodeUnauthorized ||
			!strings.Contains(h.errs[0].Message, "set by name in the provider's file") {
			t.Errorf(
				`another name than the file's: %v, want %v and "set by name in the provider's file" in it`,
				h.errs, protocol.CodeUnauthorized,
			)
		}
		if code := h.helloAs("VAULT", "s1"); code != "" {
			t.Fatalf("hello as VAULT: %v, want no error", h.errs[len(h.errs)-1])
		}
		h.conn.Receive(protocol.Append(nil, &protocol.Push{Level: protocol.LevelKeep,
			Event: "a secret"}))
		spec.Replaces = []*Pass{first}
		second := g.Issue(spec)
		if code := connectWith(g, second.Token()).helloAs("vault", "s1"); code != "" {
			t.Errorf(`the next version: %s, want ""`, code)
		}
		first.Revoke()
		second.Revoke()
		spec.Replaces = nil
		if code := connectWith(g, g.Issue(spec).Token()).helloAs("vault", "s1"); code != "" {
			t.Errorf(`started again: %s, want ""`, code)
		}
		// Its streams are not those of a file that somebody else wrote.
		otherSpec := PassSpec{Trust: TrustProject, Session: "s1", Name: "vault",
			Owner: "/project/.tapgw/providers"}
		other := g.Issue(otherSpec)
		if code := connectWith(g, other.Token()).helloAs("vault",
			"s1"); code != protocol.CodeUnauthorized {
			t.Errorf("a project's file of that name: %q, want %v", code, protocol.CodeUnauthorized)
		}
		if rows := s.History([]string{"vault@vault"}, 0, s.createdAt); len(rows) != 1 {
			t.Errorf("%d rows, want 1", len(rows))
		}
	})
}

// A provider of all sessions that may not have its name in one of them is not bound
// in any, and joins none where it is another's.
func TestNameInAllSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		live(t, g, "s1")
		defer g.Drain(context.Background())
		all := connectWith(g, g.AdminToken())
		if code := all.helloAs("ops", protocol.AllSessions); code != "" {
			t.Fatalf("hello as ops to all sessions: %v, want no error", code)
		}
		live(t, g, "s2")
		if code := connectWith(g, g.InstanceToken()).helloAs("ops", "s2"); code != "" {
			t.Fatalf("hello as ops to s2: %v, want no error", code)
		}
		all.conn.Receive(protocol.Append(nil, &protocol.SessionReady{SessionID: "s2"}))
		if len(all.errs) != 1 || all.errs[0].Code != protocol.CodeUnauthorized ||
			all.errs[0].ReplyTo != protocol.TypeSessionReady {
			t.Errorf(
				"joins where its name is another's: %v, want one %v for session.ready",
				all.errs, protocol.CodeUnauthorized,
			)
		}
		if code := all.helloAs("ops", protocol.AllSessions); code != protocol.CodeUnauthorized {
			t.Errorf("binds anew: %q, want %v", code, protocol.CodeUnauthorized)
		}
	})
}

// What a provider says of its concurrency is for those of its own identity: another
// one of the name, in another session, changes nothing.
func TestConcurrencyIsTheOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		live(t, g, "s2")
		defer g.Drain(context.Background())
		limit := func(n int) func(*protocol.Hello) {
			return func(m *protocol.Hello) {
				m.Concurrency = &protocol.Concurrency{Max: &n, Scope: scopeProvider}
				m.Tools = []protocol.Tool{{Name: "t", Description: "d",
					Parameters: protocol.Raw(`{}`)}}
			}
		}
		h := connectWith(g, g.InstanceToken())
		if code := h.helloAs("vault", "s1", limit(3)); code != "" {
			t.Fatalf("hello as vault to s1: %v, want no error", code)
		}
		if code := connectWith(g, g.IssueSpawnToken("s2")).helloAs("vault", "s2",
			limit(1)); code != "" {
			t.Fatalf("hello as vault to s2: %v, want no error", code)
		}
		for i := range 3 {
			s.BeginCall(Call{Name: "t", Args: protocol.Raw(fmt.Sprintf(`{"n":%d}`, i))},
				func(Outcome) {})
		}
		synctest.Wait()
		if len(h.calls) != 3 {
			t.Errorf("%d calls at once, want 3", len(h.calls))
		}
	})
}

// A token of a session binds that one, and is void after its end.
func TestProviderToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		live(t, g, "s2")
		defer g.Drain(context.Background())
		token, err := s.ProviderToken()
		if err != nil {
			t.Fatal(err)
		}
		if code := connectWith(g, token).helloAs("vault",
			"s2"); code != protocol.CodeInvalidSession {
			t.Errorf("hello to another session: %q, want %v", code, protocol.CodeInvalidSession)
		}
		if code := connectWith(g, token).helloAs("vault", "s1"); code != "" {
			t.Errorf("hello to its session: %v, want no error", code)
		}
		_ = s.Stop(t.Context(), "over")
		synctest.Wait()
		if g.identify(token) != nil {
			t.Error("the token outlives its session")
		}
		if token, err := s.ProviderToken(); err == nil {
			t.Errorf("a session that has ended gave the token %q", token)
		}
	})
}

// A gateway's events come under a thousand names at most. Those of its providers that were here
// without an event leave room for others.
func TestKeptNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		defer g.Drain(context.Background())
		deliver := func(name string) *protocol.Error {
			push := &protocol.Push{Event: "e", Level: protocol.LevelKeep}
			e := NewKeptEvent(name, push, nil)
			e.ID, e.Gateway, e.Trust = name, "lab", TrustExternal
			_, err := s.Deliver(&e)
			return err
		}
		pass := g.Issue(PassSpec{Trust: TrustExternal, Owner: OwnerGateway("lab"), Gateway: "lab"})
		for i := range maxKeptNames {
			h := connectWith(g, pass.Token())
			if code := h.helloAs(fmt.Sprintf("guest%d", i), "s1"); code != "" {
				t.Fatalf("guest %d: %s, want it bound", i, code)
			}
			h.conn.Closed()
		}
		for i := range maxKeptNames {
			if err := deliver(fmt.Sprintf("name%d", i)); err != nil {
				t.Fatalf("event %d after %d guests that left: %v, want it in its stream", i,
					maxKeptNames, err)
			}
		}
		if err := deliver("more"); err == nil || err.Code != protocol.CodePayloadTooLarge {
			t.Errorf("an event of one more name: %v, want %s", err, protocol.CodePayloadTooLarge)
		}
		if err := deliver("name0"); err != nil {
			t.Errorf("an event of a name that has some: %v, want it in its stream", err)
		}
	})
}

// A tool's identity is that of its provider: a new process of it has the same, another provider has
// another, also one that has the same name or the same token.
func TestToolProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		s := live(t, g, "s1")
		defer g.Drain(context.Background())
		tool := func(m *protocol.Hello) {
			m.Tools = []protocol.Tool{{Name: "deploy", Description: "d",
				Parameters: protocol.Raw(`{}`)}}
		}
		instance := func(m *protocol.Hello) { tool(m); m.Instance = "i" }
		file := func(name string) string {
			return g.Issue(PassSpec{Trust: TrustProject, Name: name, Owner: "user"}).Token()
		}
		from := map[string]string{} // steps by identity
		for _, step := range []struct {
			what, token, name string
			hello             func(*protocol.Hello)
			same              string // the step with the same identity
		}{
			{what: "a file's", token: file("alpha"), name: "alpha", hello: tool},
			{what: "its next process", token: file("alpha"), name: "alpha", hello: tool,
				same: "a file's"},
			{what: "its instance", token: file("alpha"), name: "alpha", hello: instance,
				same: "a file's"},
			{what: "another file's", token: file("beta"), name: "beta", hello: tool},
			{what: "a program's with the file's name", token: g.InstanceToken(), name: "alpha",
				hello: tool},
			{what: "another program's with its token", token: g.InstanceToken(), name: "gamma",
				hello: tool},
		} {
			h := connectWith(g, step.token)
			if code := h.helloAs(step.name, "s1", step.hello); code != "" {
				t.Fatalf("%s: hello is refused with %s", step.what, code)
			}
			name, identity := s.ToolProvider("deploy")
			if name != step.name || identity == "" {
				t.Errorf("%s: the tool is of %q %q, want %q", step.what, name, identity, step.name)
			}
			if before := from[identity]; before != step.same {
				t.Errorf("%s: has the identity of %q, want %q", step.what, before, step.same)
			} else if before == "" {
				from[identity] = step.what
			}
			if _, meta := s.ToolProvider("list_" + step.name + "_instances"); meta != "" &&
				meta != identity {
				t.Errorf("%s: its list of instances has identity %q, want %q", step.what, meta,
					identity)
			}
			h.conn.Closed()
			synctest.Wait()
			if name, identity := s.ToolProvider("deploy"); name != "" || identity != "" {
				t.Errorf("%s left: the tool is of %q %q, want none", step.what, name, identity)
			}
		}
	})
}
