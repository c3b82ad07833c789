package gateway

import (
	"fmt"
	"maps"
	"slices"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// capability is a right that a trust level or a grant gives. See docs/protocol.md,
// "Trust".
type capability int

const (
	mayGate         capability = iota // deny, context and gate rules
	mayCallback                       // transform callbacks
	mayTransform                      // static transforms other than append
	mayContext                        // context, startup_context
	mayReadOthers                     // streams of other providers
	mayHearMessages                   // session events other than those of tools
	mayBindAll                        // all sessions
	mayAnswer                         // hear of questions and answer them
)

// matrix lists the capabilities of each trust level. No level gives mayAnswer: only a
// provider file does. Everything else is open to every provider: tools, pushes, static
// append, its own streams, tool events.
var matrix = map[Trust][]capability{
	TrustInternal: {mayGate, mayCallback, mayTransform, mayContext, mayReadOthers, mayHearMessages,
		mayBindAll},
	TrustProject:  {mayGate, mayCallback, mayTransform, mayContext, mayHearMessages},
	TrustExternal: {},
}

// grantable lists the capabilities that each word of a provider file's grants gives.
var grantable = map[string][]capability{
	"transforms": {mayCallback, mayTransform},
	"gates":      {mayGate},
	"context":    {mayContext},
	"questions":  {mayAnswer},
	grantAll:     {mayBindAll},
}

// grantAll is the grant of sessions = "all" in a provider file.
const grantAll = "all"

// may reports whether the identity has a capability, by its trust or its grants.
func (id *identity) may(c capability) bool {
	if slices.Contains(matrix[id.Trust], c) {
		return true
	}
	return slices.ContainsFunc(id.Grants, func(word string) bool {
		return slices.Contains(grantable[word], c)
	})
}

// unauthorized is the UNAUTHORIZED error for a field of a message.
func (id *identity) unauthorized(field, action string) *protocol.Error {
	return errorf(protocol.CodeUnauthorized, "%s: a provider of trust %s may not %s", field,
		id.Trust, action)
}

// needsQuestions is the UNAUTHORIZED error of a provider without the grant for questions,
// which no trust level gives.
func (id *identity) needsQuestions(field, action string) *protocol.Error {
	return errorf(protocol.CodeUnauthorized,
		"%s: a provider may %s only with the grant questions: "+
			"its user writes grants = [\"questions\"] in its provider file", field, action)
}

// checkHooks checks the authority for rules and transforms. at is their path in the
// message, for the error.
func (id *identity) checkHooks(
	at string, rules []protocol.Rule, transforms map[string]*protocol.Transform,
) *protocol.Error {
	if len(rules) > 0 && !id.may(mayGate) {
		return id.unauthorized(at+"onPreToolUse", "register hook rules")
	}
	for _, section := range slices.Sorted(maps.Keys(transforms)) {
		t, field := transforms[section], at+"transforms."+section
		switch {
		case t == nil || t.Action == protocol.TransformAppend:
		case Protected(section):
			return errorf(protocol.CodeUnauthorized,
				"%s: section %s takes only append, from anyone", field, section)
		case t.Action == protocol.TransformCallback && !id.may(mayCallback):
			return id.unauthorized(field, "register transform callbacks")
		case !id.may(mayTransform):
			return id.unauthorized(field, "prepend to or replace a section")
		}
	}
	return nil
}

// check checks the authority for the fields of a message; the error is UNAUTHORIZED and
// names the field. Call with Gateway.mu held for a hello.
func (id *identity) check(m protocol.Message) *protocol.Error {
	switch m := m.(type) {
	case *protocol.Hello:
		return id.checkHello(m)
	case *protocol.HooksUpdate:
		return id.checkHooks("hooks.update.", m.OnPreToolUse, m.Transforms)
	case *protocol.ContextUpdate:
		if *m.Context != "" && !id.may(mayContext) {
			return id.unauthorized("context.update.context", "set context")
		}
	case *protocol.QuestionAnswer:
		if !id.may(mayAnswer) {
			return id.needsQuestions("question.answer", "answer questions")
		}
	}
	return nil
}

// checkHello checks the authority for all fields of a hello except session. Call with
// Gateway.mu held.
func (id *identity) checkHello(m *protocol.Hello) *protocol.Error {
	if err := id.checkName(protocol.NormalName(m.Name)); err != nil {
		return err
	}
	if m.Context != nil && *m.Context != "" && !id.may(mayContext) {
		return id.unauthorized("hello.context", "set context")
	}
	if m.StartupContext != "" && !id.may(mayContext) {
		return id.unauthorized("hello.startup_context", "set context")
	}
	for i, e := range m.Subscribe {
		switch field := fmt.Sprintf("hello.subscribe[%d]", i); e {
		case protocol.EventToolComplete:
		case protocol.EventQuestionAsked, protocol.EventQuestionEnded:
			if !id.may(mayAnswer) {
				return id.needsQuestions(field, "hear of questions")
			}
		case protocol.EventPushed:
			if !id.may(mayReadOthers) && !id.may(mayAnswer) {
				return id.unauthorized(field,
					"hear of the events of other providers without the grant questions")
			}
		default:
			if !id.may(mayHearMessages) {
				return id.unauthorized(field, "subscribe to other than tool events")
			}
		}
	}
	if m.Hooks != nil {
		return id.checkHooks("hello.hooks.", m.Hooks.OnPreToolUse, m.Hooks.Transforms)
	}
	return nil
}

// hasFiles reports whether the provider may keep files in a directory of its own, and name them in
// results.
func (id *identity) hasFiles() bool { return id.Trust != TrustExternal && id.Gateway == "" }

// Reach is the part of a provider's rights in sessions of other gateways that this gateway decides.
type Reach struct {
	Trust Trust
	Name  string     // the only name that it may use; "" for any
	All   bool       // it may bind to all sessions
	Tools ToolPolicy // of its provider file
	// Session is the only session that it may bind, and At the gateway that has it; "" for any.
	Session, At string
	// Match reports by the id and the label whether it may bind a session; nil: any.
	Match func(adminapi.Session) bool
}

// Reach returns the provider's rights in sessions of other gateways. It is false for one that may
// bind only sessions that a token or a file of this gateway names, and before the provider has
// authenticated.
func (c *Conn) Reach() (Reach, bool) {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	id := c.identity
	if id == nil || id.Session != "" && id.At == "" || id.Match != nil && !id.MatchLabels ||
		id.Own || id.Gateway != "" {
		return Reach{}, false
	}
	return Reach{Trust: id.Trust, Name: id.Name, All: id.may(mayBindAll), Tools: id.Tools,
		Session: id.Session, At: id.At, Match: id.Match}, true
}

// BoundElsewhere notes that the provider is bound at another gateway.
func (c *Conn) BoundElsewhere() {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	if c.identity != nil {
		c.identity.notifyBound()
	}
}

// RefusedElsewhere notes that another gateway has refused a hello of the provider.
func (c *Conn) RefusedElsewhere(err error) {
	c.g.mu.Lock()
	id := c.identity
	c.g.mu.Unlock()
	if id != nil && id.Refused != nil {
		id.Refused(err)
	}
}
