package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// rule is an onPreToolUse rule, compiled. It is immutable. See docs/protocol.md, "Rules
// and gates".
type rule struct {
	protocol.Rule
	provider *Provider       // of a user hook's rule: only a name, for people
	tool     match.ToolGlob  // nil: any
	args     *match.Pattern  // nil: any
	file     *match.FileGlob // nil: any
	hook     *Hook           // a user hook to ask instead of the provider, or nil
	index    int             // among the rules of its message
}

// view describes the rule for the admin API.
func (r *rule) view() adminapi.Rule {
	return adminapi.Rule{Index: r.index, Action: r.Action, Match: adminapi.RuleMatch(r.Match),
		GateID: r.GateID, FailOpen: r.FailOpen}
}

// Rules lists the rules that are in force, in the order in which they decide.
func (s *Session) Rules() []adminapi.SessionRule {
	rules := s.routes.Load().rules
	views := make([]adminapi.SessionRule, len(rules))
	for i, r := range rules {
		views[i] = adminapi.SessionRule{Session: s.id, Provider: r.provider.name,
			Hook: r.hook != nil, Rule: r.view()}
	}
	return views
}

// compileRules compiles the rules of a message. at is their path in the message, for
// the error, which is INVALID_JSON and names the field.
func (p *Provider) compileRules(at string, defs []protocol.Rule) ([]*rule, *protocol.Error) {
	rules := make([]*rule, len(defs))
	for i, d := range defs {
		r := &rule{Rule: d, provider: p, index: i}
		if normal := protocol.NormalName(d.Match.Provider); normal != "" {
			r.Match.Provider = normal
		}
		fieldError := func(field string, err error) *protocol.Error {
			return errorf(protocol.CodeInvalidJSON, "%sonPreToolUse[%d].match.%s: %v", at, i, field,
				err)
		}
		if d.Match.Tool != "" {
			r.tool = match.NewToolGlob(d.Match.Tool)
		}
		if d.Match.Args != "" {
			var err error
			if r.args, err = match.Compile(d.Match.Args); err != nil {
				return nil, fieldError("args", err)
			}
		}
		if d.Match.File != "" {
			var err error
			if r.file, err = match.CompileFileGlob(d.Match.File); err != nil {
				return nil, fieldError("file", err)
			}
		}
		rules[i] = r
	}
	return rules, nil
}

// mayDeny reports whether the rule may deny a call. If so, an undecided match counts.
func (r *rule) mayDeny() bool { return r.Action != protocol.ActionContext }

// toolCall is a call that rules are matched against. It reads text and files from the
// arguments when the first rule needs them.
type toolCall struct {
	tool     string
	aliases  []string // the protocol's names for the tool: shell, edit, read
	provider string   // that owns the tool, "" for the session's own
	args     protocol.Raw

	text      *match.Text
	files     []match.File
	isUnclear bool // it may name more files: its patch can't be read
	filesRead bool
}

func (s *Session) newToolCall(r *routes, tool string, args protocol.Raw) *toolCall {
	c := &toolCall{tool: tool, args: args}
	if to := r.find(tool); to != nil {
		c.provider = to.owner()
	}
	for alias, names := range s.info.Aliases {
		if slices.Contains(names, tool) {
			c.aliases = append(c.aliases, alias)
		}
	}
	return c
}

func (c *toolCall) argsText() *match.Text {
	if c.text == nil {
		c.text = match.NewIndexedText(match.ArgsText(c.args))
	}
	return c.text
}

// searchTools are tools of agents that search. If no file has a path with spaces, they search its
// words instead, so a rule about files is compared with the words too.
var searchTools = []string{"grep", "rg", "glob"}

// paths returns the files that the call names; see [CallFiles].
func (c *toolCall) paths() []match.File {
	if !c.filesRead {
		c.filesRead = true
		var names []string
		names, c.isUnclear = CallFiles(c.tool, c.args)
		for _, name := range names {
			c.files = append(c.files, match.NewFile(name))
			if words := strings.Fields(name); len(words) > 1 &&
				slices.Contains(searchTools, c.tool) {
				for _, word := range words {
					c.files = append(c.files, match.NewFile(word))
				}
			}
		}
	}
	return c.files
}

// match reports whether the rule matches the call. It tries the cheap parts first. When
// a pattern is undecided, rules that may deny match and others do not.
func (r *rule) match(c *toolCall, g *Gateway) bool {
	if r.Match.Provider != "" && r.Match.Provider != c.provider {
		return false
	}
	if r.tool != nil && !r.tool.Match(c.tool) && !slices.ContainsFunc(c.aliases, r.tool.Match) {
		return false
	}
	result := match.Yes
	if r.file != nil {
		if r.file.MatchesNoneIn(c.argsText()) {
			return false
		}
		result = match.No
		for _, file := range c.paths() {
			result = max(result, r.file.Match(file))
		}
		if c.isUnclear && r.mayDeny() {
			result = match.Yes
		}
	}
	if r.args != nil && result != match.No {
		result = min(result, r.args.Match(c.argsText()))
	}
	if result == match.Undecided {
		g.reportUndecided("hook rule", r.provider.name)
		return r.mayDeny()
	}
	return result == match.Yes
}

// reportUndecided counts and logs a match that was [match.Undecided].
func (g *Gateway) reportUndecided(what, provider string) {
	g.stats.UndecidedMatches.Add(1)
	g.o.Log.Warn("a pattern took too long, or its text is too long", "of", what, "provider",
		provider)
}

// matchingRules returns the rules of r that match a call, in registration order.
func (s *Session) matchingRules(r *routes, tool string, args protocol.Raw) []*rule {
	if len(r.rules) == 0 {
		return nil
	}
	c := s.newToolCall(r, tool, args)
	var matched []*rule
	for _, rule := range r.rules {
		if rule.match(c, s.g) {
			matched = append(matched, rule)
		}
	}
	return matched
}

// staticDenial returns the denial by the first matching rule with action deny, and whether there is
// one.
func (s *Session) staticDenial(
	rules []*rule, tool string, args protocol.Raw, span spans.Span,
) (Decision, bool) {
	for _, r := range rules {
		if r.Action == protocol.ActionDeny {
			reason := stripEscapes(cmp.Or(r.Reason,
				fmt.Sprintf("Denied by a rule of provider '%s'.", r.provider.name)))
			s.noteGate(r, gateCall{tool, args, time.Now(), span}, protocol.DecisionDeny, reason)
			return Decision{Deny: true, Reason: reason, By: r.owner()}, true
		}
	}
	return Decision{}, false
}

// staticContext joins the contexts of rules that ask no gate.
func staticContext(rules []*rule) string {
	var texts []string
	for _, r := range rules {
		if r.Action == protocol.ActionContext {
			texts = append(texts, r.Content)
		}
	}
	return joinTexts(texts)
}

// joinTexts joins the texts that are not empty, with an empty line between.
func joinTexts(texts []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(texts), func(s string) bool {
		return s == ""
	}), "\n\n")
}

// warnUnmatchedRules adds a warning to the session's timeline for each rule that can
// match no tool, since a gate that never fires is an open gate. It can't know that if
// the host asks about its own tools and did not list them.
func (s *Session) warnUnmatchedRules(p *Provider, rules []*rule) {
	if s.info.Hooks && s.info.Tools == nil {
		return
	}
	matchesOne := func(tool match.ToolGlob) bool {
		if slices.ContainsFunc(s.routes.Load().list,
			func(to *route) bool { return tool.Match(to.name) }) {
			return true
		}
		if !s.info.Hooks {
			return false
		}
		for alias, tools := range s.info.Aliases {
			if len(tools) > 0 && tool.Match(alias) {
				return true
			}
		}
		return slices.ContainsFunc(s.info.Tools, tool.Match)
	}
	for i, rule := range rules {
		if rule.tool != nil && !matchesOne(rule.tool) {
			s.note(adminapi.LogWarning, sourceGateway, fmt.Sprintf(
				"rule %d of provider %s matches no tool of this session: there is no %q", i, p.name,
				rule.Match.Tool))
		}
	}
}
