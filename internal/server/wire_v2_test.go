package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Patterns are stopped by a clock of their own, which begins where the first is
// tried. In a bubble, where time stands still while something computes, it would
// stop none, so it begins here and runs for good.
func init() {
	re := regexp2.MustCompile("x", regexp2.None)
	re.MatchTimeout = 24 * time.Hour
	_, _ = re.MatchString("x")
}

// More words of a session, and more to do:
//
//	session ID … [alias=NAME:TOOL,TOOL] [own=TOOL,TOOL]
//	event SESSION JSON            its host reports a gateway.Event
//	callgated ID SESSION TOOL [JSON]   somebody else than the session's host calls
//	tracedcall ID SESSION TOOL TRACEPARENT   a call that is part of a trace
//	grant NAME TRUST [GRANT…]     a token of a provider file that grants this: $NAME
//	ask SESSION KIND JSON         its host asks a question; its id is $q1, $q2 and so on
//	answer SESSION ID JSON        somebody answers it on the admin side
//	definitions SESSION           its tools as its host sees them
//	pairings                      the codes that wait to be typed
//	counts                        results that were ignored, matches that are unsure
//
// and $rules(N) stands for N deny rules, $filters(N) for N rules of a filter,
// $sections(N) for N transforms.
func (s *stage) doV2(word string, args []string, rest string) (known bool, err error) {
	switch word {
	case "event":
		return true, s.event(rest)
	case "callgated", "tracedcall":
		return true, s.callWith(word, rest)
	case "grant":
		pass := s.gateway.Issue(gateway.PassSpec{Trust: gateway.Trust(args[1]), Grants: args[2:],
			All: true})
		s.names.set(args[0], pass.Token())
		return true, nil
	case "ask":
		return true, s.ask(rest)
	case "answer":
		return true, s.answer(rest)
	case "definitions":
		return true, s.definitions(args[0])
	case "pairings":
		for _, p := range s.gateway.Pairings() {
			s.emit(
				"pairings",
				fmt.Sprintf("pairings: provider=%s session=%s until %s", p.Provider, p.Session,
					time.Until(p.ExpiresAt)),
			)
		}
		return true, nil
	case "counts":
		st := s.gateway.Stats()
		s.emit("counts", fmt.Sprintf("counts: ignored=%d unsure=%d", st.Ignored.Load(),
			st.UndecidedMatches.Load()))
		return true, nil
	}
	return false, nil
}

// sessionWord reads a word of a session's description.
func sessionWord(key, value string, info *gateway.HostInfo) bool {
	switch key {
	case "alias":
		name, tools, _ := strings.Cut(value, ":")
		if info.Aliases == nil {
			info.Aliases = map[string][]string{}
		}
		info.Aliases[name] = strings.Split(tools, ",")
	case "own":
		info.Tools = []string{}
		if value != "" {
			info.Tools = strings.Split(value, ",")
		}
	default:
		return false
	}
	return true
}

func (s *stage) event(rest string) error {
	id, text, _ := strings.Cut(rest, " ")
	session, ok := s.gateway.Session(id)
	if !ok {
		return fmt.Errorf("no session %s", id)
	}
	var e gateway.Event
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err
	}
	session.Event(e)
	return nil
}

func (s *stage) ask(rest string) error {
	parts := strings.SplitN(rest, " ", 3)
	session, ok := s.gateway.Session(parts[0])
	if !ok {
		return fmt.Errorf("no session %s", parts[0])
	}
	q := gateway.Question{Kind: parts[1]}
	if err := json.Unmarshal([]byte(s.names.reveal(parts[2])), &q); err != nil {
		return err
	}
	go func() {
		a, err := session.Ask(s.ctx, q)
		if err != nil {
			s.emit(parts[0], fmt.Sprintf("%s: asked %q: %v", parts[0], q.Message, err))
			return
		}
		s.emit(parts[0], fmt.Sprintf("%s: asked %q: %.200q", parts[0], q.Message,
			strings.TrimSpace(a.Decision+" "+a.Text+string(a.Content))))
	}()
	return nil
}

func (s *stage) answer(rest string) error {
	parts := strings.SplitN(rest, " ", 3)
	session, ok := s.gateway.Session(parts[0])
	if !ok {
		return fmt.Errorf("no session %s", parts[0])
	}
	var a gateway.Answer
	if err := json.Unmarshal([]byte(parts[2]), &a); err != nil {
		return err
	}
	if err := session.Answer(s.names.reveal(parts[1]), a); err != nil {
		s.emit(parts[0], fmt.Sprintf("%s: answer refused: %v", parts[0], err))
	}
	return nil
}

func (s *stage) callWith(word, rest string) error {
	parts := strings.SplitN(rest, " ", 4)
	session, ok := s.gateway.Session(parts[1])
	if !ok {
		return fmt.Errorf("no session %s", parts[1])
	}
	c := gateway.Call{Name: parts[2], AskGates: word == "callgated"}
	if len(parts) == 4 && c.AskGates {
		c.Args = protocol.Raw(parts[3])
	} else if len(parts) == 4 {
		c.Traceparent = parts[3]
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.calls[parts[0]] = cancel
	go func() {
		o := session.CallTool(ctx, c)
		s.emit(parts[0], fmt.Sprintf("%s= %s after %s", parts[0], outcomeText(o), o.Duration))
	}()
	return nil
}

func (s *stage) definitions(id string) error {
	session, ok := s.gateway.Session(id)
	if !ok {
		return fmt.Errorf("no session %s", id)
	}
	tools, _ := session.HostTools()
	for _, t := range tools {
		s.emit(id, fmt.Sprintf("%s: defines %s of %s %q %s", id, t.Name, t.Provider, t.Description,
			t.Parameters))
	}
	return nil
}

// filterRules are N rules of a filter that match nothing.
func filterRules(n int) string {
	return "[" + strings.Join(slices.Repeat([]string{`{"match":"none","outcome":"drop"}`}, n),
		",") + "]"
}

// sections are N transforms, of s1 to sN.
func sections(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"s%d":{"action":"append","content":"c"}`, i+1)
	}
	return "{" + strings.Join(list, ",") + "}"
}

// denyRules are N rules that match nothing.
func denyRules(n int) string {
	rules := slices.Repeat([]string{`{"match":{"tool":"none"},"action":"deny"}`}, n)
	return "[" + strings.Join(rules, ",") + "]"
}
