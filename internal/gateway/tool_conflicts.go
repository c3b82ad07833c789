package gateway

import (
	"bytes"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// checkTools checks whether a provider may have tools in the session: their names must not
// clash with those of other providers, except the leaving ones, or of the gateway. The
// error is TOOL_CONFLICT. Call with Gateway.mu held.
func (s *Session) checkTools(p *Provider, tools []*tool, leaving ...*Provider) *protocol.Error {
	if len(tools) == 0 && p.instance == "" {
		return nil
	}
	others := s.bindings
	isOut := func(b *binding) bool {
		return b.provider == p || slices.Contains(leaving, b.provider)
	}
	if slices.ContainsFunc(others, isOut) {
		others = slices.DeleteFunc(slices.Clone(others), isOut)
	}
	if err := s.checkMetaTool(p, others); err != nil {
		return err
	}
	for _, t := range tools {
		switch {
		case !protocol.ValidToolName(t.Name):
			return s.toolConflict(
				"tool %q: with the prefix of its provider's file it has more than 64 characters",
				t.Name)
		case p.instance == "":
		case hasProperty(t.Parameters, targetParam):
			return s.toolConflict(
				"tool %q: a parameter named target is the gateway's where a provider has "+
					"instances; rename it", t.Name)
		case t.Name == metaTool(p.name):
			return s.toolConflict(
				"tool %q is the gateway's own where a provider has instances; rename it", t.Name)
		}
		for _, b := range others {
			if err := s.checkTool(p, t, b); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Session) toolConflict(format string, args ...any) *protocol.Error {
	err := errorf(protocol.CodeToolConflict, format, args...)
	err.SessionID = s.id
	return err
}

// checkTool checks a tool of p against the binding of another provider. Instances of one
// provider may share a tool.
func (s *Session) checkTool(p *Provider, t *tool, b *binding) *protocol.Error {
	other := b.provider
	if other.name != p.name && isReserved(t.Name, other.name) {
		return s.toolConflict(
			"tool %q: list_%s and names that begin with list_%[2]s_ are reserved for provider "+
				"%[2]q; rename it", t.Name,
			other.name)
	}
	i := slices.IndexFunc(b.offer.tools, func(u *tool) bool { return u.Name == t.Name })
	switch {
	case i < 0 && other.instance != "" && t.Name == metaTool(other.name):
		return s.toolConflict("tool %q is the gateway's own, for provider %q; rename it", t.Name,
			other.name)
	case i < 0:
		return nil
	case other.name != p.name || other.instance == "" || p.instance == "":
		return s.toolConflict("tool %q is registered by provider %q already; rename it", t.Name,
			other.name)
	case !hasSameSchema(b.offer.tools[i].Parameters, t.Parameters):
		return s.toolConflict(
			"tool %q: its parameters differ from those of instance %q of the same provider",
			t.Name, other.instance)
	}
	return nil
}

// checkMetaTool checks that no other provider has the name of the meta-tool of p.
func (s *Session) checkMetaTool(p *Provider, others []*binding) *protocol.Error {
	if p.instance == "" {
		return nil
	}
	name := metaTool(p.name)
	for _, b := range others {
		other := b.provider
		hasTool := slices.ContainsFunc(b.offer.tools, func(t *tool) bool { return t.Name == name })
		if hasTool || (other.instance != "" && other.name != p.name &&
			metaTool(other.name) == name) {
			return s.toolConflict(
				"tool %q, which the gateway makes for instances of %q, exists already, "+
					"by provider %q", name, p.name,
				other.name)
		}
	}
	return nil
}

// hasSameSchema reports whether two schemas are equal, in any order of their keys.
func hasSameSchema(a, b protocol.Raw) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := a.Clone(), b.Clone()
	anyText := jsontext.AllowInvalidUTF8(true)
	return x.Canonicalize(anyText) == nil && y.Canonicalize(anyText) == nil && bytes.Equal(x, y)
}

// isReserved reports whether a tool name is reserved for the tools that the gateway makes
// for a provider.
func isReserved(tool, provider string) bool {
	rest, ok := strings.CutPrefix(tool, "list_"+provider)
	return ok && (rest == "" || rest[0] == '_')
}
