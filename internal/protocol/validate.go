package protocol

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
)

// Validation of the messages of providers.

var (
	toolName     = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	providerName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)
)

// ValidName reports whether a provider or a stream may have this name: whether [NormalName] makes 1
// to 64 characters of it that begin with a letter or digit. See docs/protocol.md, "Names".
func ValidName(s string) bool { return providerName.MatchString(NormalName(s)) }

// NormalName returns the one spelling under which the gateway knows the name of a provider or a
// stream: in lower case, with a '-' for each run of characters outside [a-z0-9._-], and no '-' at
// the ends. "My Provider" becomes my-provider.
func NormalName(s string) string {
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !strings.HasPrefix(s, "-") && !strings.HasSuffix(s, "-") &&
		strings.IndexFunc(s, func(r rune) bool {
			return r >= utf8.RuneSelf || !plain(byte(r))
		}) < 0 {
		return s
	}
	normal := make([]byte, 0, len(s))
	replaced := false
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		switch {
		case plain(c):
			normal = append(normal, c)
		case !replaced:
			normal = append(normal, '-')
		}
		replaced = !plain(c)
	}
	return strings.Trim(string(normal), "-")
}

// SplitStream splits stream@provider at its last '@', without changing or checking the spelling.
// owned is false, and provider "", for a stream without a provider; an '@' at the beginning belongs
// to the stream's name.
func SplitStream(s string) (stream, provider string, owned bool) {
	if i := strings.LastIndexByte(s, '@'); i > 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// ValidToolName reports whether a tool may have this name: 1 to 64 ASCII letters, digits, '_' or
// '-'. [NormalName] does not apply: tool names keep their case (docs/protocol.md, "Tool").
func ValidToolName(s string) bool { return toolName.MatchString(s) }

// checker keeps the first wrong field of a message and the first limit that the message exceeds. A
// limit counts only if no field is wrong.
type checker struct {
	name      string // of the message
	fault     *Error
	overLimit *Error
}

func (c *checker) fail(code Code, field, format string, args ...any) {
	if c.fault == nil {
		c.fault = c.error(code, field, format, args...)
	}
}

func (c *checker) error(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Message: c.name + "." + field + ": " + fmt.Sprintf(format, args...),
		ReplyTo: Type(c.name)}
}

func (c *checker) reject(field, format string, args ...any) {
	c.fail(CodeInvalidJSON, field, format, args...)
}

func (c *checker) require(field, value string) {
	if value == "" {
		c.reject(field, "is required")
	}
}

func (c *checker) validName(field, value string) {
	if !ValidName(value) {
		c.reject(field,
			"must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
}

// stream checks stream or stream@provider.
func (c *checker) stream(field, value string) {
	stream, provider, owned := SplitStream(value)
	c.validName(field, stream)
	if owned {
		c.validName(field, provider)
	}
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	if value == "" {
		c.reject(field, "is required: one of %s", strings.Join(allowed, ", "))
	} else if !slices.Contains(allowed, value) {
		c.reject(field, "must be one of %s", strings.Join(allowed, ", "))
	}
}

func (c *checker) object(field string, value Raw) {
	if value != nil && value.Kind() != '{' && value.Kind() != 'n' {
		c.reject(field, "must be an object")
	}
}

func (c *checker) limit(field string, n, limit int, what string) {
	if n > limit && c.overLimit == nil {
		c.overLimit = c.error(CodePayloadTooLarge, field, "%d %s are over the limit of %d", n, what,
			limit)
	}
}

func (c *checker) auth(m *Auth) {
	switch {
	case m.Mode == ModePair:
	case m.Mode != "":
		c.reject("mode", `must be "pair", or be left out`)
	case m.Token == "" && m.ReconnectToken == "":
		c.reject("token", `is required (or "mode": "pair")`)
	}
}

// Validate checks the fields of a message from a provider. The error names the first field that is
// missing or wrong (INVALID_JSON, or UNSUPPORTED_VERSION), else the first count or size over its
// limit (PAYLOAD_TOO_LARGE). It does not check the provider's permissions.
func Validate(m Message) *Error {
	c := &checker{name: string(m.MessageType())}
	switch m := m.(type) {
	case *Auth:
		c.auth(m)
	case *AuthConfirm:
		c.require("code", m.Code)
	case *Hello:
		c.hello(m)
	case *SessionReady:
		c.require("sessionId", m.SessionID)
	case *ToolResult:
		c.result(m)
	case *ToolProgress:
		c.require("id", m.ID)
		c.require("message", m.Message)
	case *GateResult:
		c.require("callId", m.CallID)
		c.oneOf("decision", m.Decision, DecisionAllow, DecisionDeny, DecisionContext)
	case *TransformResult:
		c.require("callId", m.CallID)
		if m.Content == nil {
			c.reject("content", "is required")
		}
	case *Push:
		c.push(m)
	case *ToolsUpdate:
		if m.Tools == nil && m.Remove == nil {
			c.reject("tools", "is required")
		}
		c.tools(m.Tools)
		c.names("remove", m.Remove)
	case *HooksUpdate:
		c.rules("", m.OnPreToolUse)
		c.transforms("", m.Transforms)
	case *ContextUpdate:
		if m.Context == nil {
			c.reject("context", "is required (an empty text clears it)")
			break
		}
		c.limit("context", len(*m.Context), MaxContext, "bytes")
	case *FilterSet:
		c.filter(m)
	case *QuestionAnswer:
		c.answer(m)
	case *StreamQuery:
		c.require("queryId", m.QueryID)
		for i, s := range m.Streams {
			c.stream(fmt.Sprintf("streams[%d]", i), s)
		}
		if m.Last != nil && *m.Last < 1 {
			c.reject("last", "must be at least 1")
		}
	}
	if c.fault == nil {
		return c.overLimit
	}
	return c.fault
}

func (c *checker) hello(m *Hello) {
	if m.ProtocolVersion == nil {
		c.reject("protocolVersion", "is required")
	} else if *m.ProtocolVersion != Version {
		// Another version may have other fields, so this check comes first.
		c.fail(CodeUnsupportedVersion, "protocolVersion",
			"%d is not supported, this gateway speaks %d", *m.ProtocolVersion, Version)
	}
	if m.Name == "" {
		c.reject("name", "is required")
	} else {
		c.validName("name", m.Name)
	}
	if len(m.Instance) > 256 {
		c.reject("instance", "must be at most 256 bytes")
	}
	c.object("metadata", m.Metadata)
	c.tools(m.Tools)
	for i, s := range m.Subscribe {
		if !slices.Contains(Events, s) {
			c.reject(fmt.Sprintf("subscribe[%d]", i), "%q is not an event; there are %s", s,
				strings.Join(Events, ", "))
		}
	}
	if limit := m.Concurrency; limit != nil {
		if limit.Max != nil && *limit.Max < 1 {
			c.reject("concurrency.max", "must be at least 1")
		}
		if limit.Scope != "" {
			c.oneOf("concurrency.scope", limit.Scope, "instance", "provider", "tool")
		}
	}
	if h := m.Hooks; h != nil {
		c.rules("hooks.", h.OnPreToolUse)
		c.transforms("hooks.", h.Transforms)
	}
	if m.Context != nil {
		c.limit("context", len(*m.Context), MaxContext, "bytes")
	}
	c.limit("startup_context", len(m.StartupContext), MaxContext, "bytes")
}

func (c *checker) tools(tools []Tool) {
	seen := make(map[string]bool, len(tools))
	for i, t := range tools {
		at := fmt.Sprintf("tools[%d]", i)
		switch {
		case t.Name == "":
			c.reject(at+".name", "is required")
		case !ValidToolName(t.Name):
			c.reject(at+".name", "%q must be 1 to 64 letters, digits, '_' or '-'", t.Name)
		case seen[t.Name]:
			c.reject(at+".name", "%q stands twice in the list", t.Name)
		}
		seen[t.Name] = true
		c.require(at+".description", t.Description)
		if t.Timeout != nil && (*t.Timeout < MinToolTimeout.Milliseconds() ||
			*t.Timeout > MaxToolTimeout.Milliseconds()) {
			c.reject(at+".timeout", "must be from %d to %d (milliseconds)",
				MinToolTimeout.Milliseconds(), MaxToolTimeout.Milliseconds())
		}
		if t.Parameters == nil || t.Parameters.Kind() == 'n' {
			c.reject(at+".parameters", "is required ({} for a tool without any)")
		}
		c.schema(at+".parameters", t.Name, t.Parameters)
		c.schema(at+".outputSchema", t.Name, t.OutputSchema)
		if c.fault != nil {
			return
		}
	}
	c.limit("tools", len(tools), MaxTools, "tools")
}

// schema checks a schema of a tool, if the tool has it.
func (c *checker) schema(field, tool string, schema Raw) {
	switch {
	case schema == nil || schema.Kind() == 'n':
	case schema.Kind() != '{':
		c.reject(field, "must be an object")
	case c.fault == nil:
		if _, err := CompileSchema(schema); err != nil {
			c.reject(field, "tool %q: %v", tool, err)
		}
	}
}

func (c *checker) result(m *ToolResult) {
	c.require("id", m.ID)
	if m.File != nil {
		c.require("file.path", m.File.Path)
		if m.File.Size < 0 {
			c.reject("file.size", "must not be negative")
		}
		if m.File.TTL < 0 {
			c.reject("file.ttl", "must not be negative")
		}
	}
	for i, p := range m.Content {
		c.part(fmt.Sprintf("content[%d]", i), &p)
	}
	if m.Data == nil && m.Content == nil && m.File == nil && !m.Failed() {
		c.reject("data", "is required (or content, error, or file)")
	}
	c.limit("content", len(m.Content), MaxParts, "parts")
}

func (c *checker) part(at string, p *Part) {
	c.oneOf(at+".type", p.Type, PartText, PartImage, PartAudio, PartResource)
	hasBytes := p.Data != nil || p.File != nil
	switch p.Type {
	case PartImage, PartAudio:
		if !strings.HasPrefix(p.MimeType, p.Type+"/") {
			c.reject(at+".mimeType", "must begin with %s/", p.Type)
		}
		if !hasBytes {
			c.reject(at+".data", "is required (or file)")
		}
	case PartResource:
		c.require(at+".uri", p.URI)
	}
	if p.File != nil {
		c.require(at+".file.path", p.File.Path)
	}
}

func (c *checker) push(m *Push) {
	c.oneOf("level", string(m.Level), string(LevelKeep), string(LevelSurface), string(LevelInject))
	if m.Event == "" && m.Prompt == "" {
		c.reject("event", "is required and must not be empty (or prompt)")
	}
	if m.Stream != "" {
		c.validName("stream", m.Stream)
	}
	c.object("metadata", m.Metadata)
}

// answer checks the parts that do not depend on the question.
func (c *checker) answer(m *QuestionAnswer) {
	c.require("question", m.Question)
	c.object("content", m.Content)
	c.limit("text", len(m.Text), MaxAnswer, "bytes")
	c.limit("content", len(m.Content), MaxAnswer, "bytes")
	c.limit("person", len(m.Person), MaxPerson, "bytes")
}

func (c *checker) rules(prefix string, rules []Rule) {
	for i, r := range rules {
		at := fmt.Sprintf("%sonPreToolUse[%d]", prefix, i)
		c.oneOf(at+".action", r.Action, ActionDeny, ActionContext, ActionGate)
		if r.Action == ActionGate {
			c.require(at+".gateId", r.GateID)
		}
		if r.Action == ActionContext {
			c.require(at+".content", r.Content)
		}
		if len(r.Match.Args) > MaxPattern {
			c.reject(at+".match.args", "must be at most %d bytes", MaxPattern)
		}
		if c.fault != nil {
			return
		}
	}
	c.limit(prefix+"onPreToolUse", len(rules), MaxHookRules, "hook rules")
}

func (c *checker) transforms(prefix string, transforms map[string]*Transform) {
	changed := 0
	for _, section := range slices.Sorted(maps.Keys(transforms)) {
		t := transforms[section]
		if t == nil { // it is to be removed
			continue
		}
		changed++
		at := prefix + "transforms." + section
		c.oneOf(at+".action", t.Action, TransformAppend, TransformPrepend, TransformReplace,
			TransformCallback)
		if t.Content == nil && t.Action != TransformCallback {
			c.reject(at+".content", "is required")
		}
	}
	c.limit(prefix+"transforms", changed, MaxTransforms, "sections")
}

// names refuses a list with an empty name or null.
func (c *checker) names(field string, names []string) {
	if i := slices.Index(names, ""); i >= 0 {
		c.reject(fmt.Sprintf("%s[%d]", field, i), "must be a name")
	}
}

func (c *checker) filter(m *FilterSet) {
	c.require("stream", m.Stream)
	if m.Stream != "" {
		c.stream("stream", m.Stream)
	}
	if m.Rules == nil {
		c.reject("rules", "is required ([] removes the filter)")
	}
	for i, r := range m.Rules {
		at := fmt.Sprintf("rules[%d]", i)
		c.require(at+".match", r.Match)
		if len(r.Match) > MaxPattern {
			c.reject(at+".match", "must be at most %d bytes", MaxPattern)
		}
		c.oneOf(at+".outcome", string(r.Outcome), string(OutcomeDrop), string(LevelKeep),
			string(LevelSurface), string(LevelInject))
	}
	c.limit("rules", len(m.Rules), MaxFilterRules, "rules")
}
