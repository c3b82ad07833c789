package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tapgw/internal/lazyregexp"
)

// HTTPTool is a table [tools.NAME] of a provider of kind http: a tool whose calls are HTTP
// requests. A call's arguments fill the places in URL and Body.
type HTTPTool struct {
	Name        string
	Description string   `toml:"description" is:"text" need:"a tool needs a description and a url"`
	URL         Template `toml:"url" need:"a tool needs a description and a url"`
	// Headers may have ${NAME} for variables of the environment.
	Headers map[string]string `toml:"headers" names:"header" is:"headerValue"`
	// JSON or ""
	Body string `toml:"body" is:"body"`
	// POST with a body
	Method  string        `toml:"method" of:"GET,HEAD,POST,PUT,PATCH,DELETE" default:"GET"`
	Args    []HTTPArg     `toml:"args" names:"httpArg"`
	Timeout time.Duration `toml:"timeout" default:"30s" range:"1ms,1h"` // of the whole request
	Result  string        `toml:"result" is:"result" default:"text"`    // or a JSON pointer
}

// HTTPArg is an argument of an [HTTPTool], and in JSON its part of the tool's schema. One that is
// not Required may be left out of a call.
type HTTPArg struct {
	Name        string   `json:"-"`
	Type        string   `json:"type" toml:"type" of:"string,integer,number,boolean" default:"string"`
	Description string   `json:"description,omitempty" toml:"description"`
	Required    bool     `json:"-" toml:"required" default:"true"`
	Enum        []string `json:"enum,omitempty" toml:"enum"` // of a string
}

// Values of result, beside a JSON pointer into the answer: its body as text, or as JSON.
const (
	ResultText = "text"
	ResultJSON = "json"
)

// Template is a text with places for arguments, such as the URL of an [HTTPTool]: its parts in
// their order. Nil is the empty text.
type Template []TemplatePart

// TemplatePart is a piece of a [Template]: fixed text, or the place of the argument that Arg names.
type TemplatePart struct {
	Text string
	Arg  string // "" for text
}

// placeholder is {name}; two braces stand for one.
var placeholder = lazyregexp.New(`\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]`)

// ParseTemplate reads a text with {name} for arguments; {{ and }} are braces. A single brace
// elsewhere is an error.
func ParseTemplate(s string) (Template, error) { return parseTemplate(s, placeholder) }

// parseTemplate reads a text with the places that an expression finds: its one group is a place's
// name.
func parseTemplate(s string, place *lazyregexp.Regexp) (Template, error) {
	var t Template
	text := func(s string) {
		switch n := len(t); {
		case s == "":
		case n > 0 && t[n-1].Arg == "":
			t[n-1].Text += s
		default:
			t = append(t, TemplatePart{Text: s})
		}
	}
	at := 0
	for _, m := range place.FindAllStringSubmatchIndex(s, -1) {
		text(s[at:m[0]])
		at = m[1]
		switch found := s[m[0]:m[1]]; {
		case m[2] >= 0:
			t = append(t, TemplatePart{Arg: s[m[2]:m[3]]})
		case len(found) == 2:
			text(found[:1])
		default:
			return nil, fmt.Errorf("has a %s that is neither {argument} nor doubled", found)
		}
	}
	text(s[at:])
	return t, nil
}

// sample returns the text with x in place of arguments.
func (t Template) sample() string {
	var b strings.Builder
	for _, p := range t {
		b.WriteString(p.Text)
		if p.Arg != "" {
			b.WriteString("x")
		}
	}
	return b.String()
}

func (t Template) args() (names []string) {
	for _, p := range t {
		if p.Arg != "" {
			names = append(names, p.Arg)
		}
	}
	return names
}

// variable matches ${NAME} in a value; its first group is NAME.
var variable = lazyregexp.New(`\$\{([^}]*)\}`)

// ExpandVariables replaces each ${NAME} in the value of a header, or of a program's variable, by
// the environment variable NAME. If some are not set, missing is the name of the last one.
func ExpandVariables(value string) (expanded, missing string) {
	expanded = variable.ReplaceAllStringFunc(value, func(m string) string {
		name := m[len("${") : len(m)-len("}")]
		v, ok := os.LookupEnv(name)
		if !ok {
			missing = name
		}
		return v
	})
	return expanded, missing
}

// ExpandHeaders returns the headers of a request with the values of their variables. The error
// names the header whose variable is not set.
func ExpandHeaders(headers map[string]string) (http.Header, error) {
	expanded := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, missing := ExpandVariables(headers[name])
		if missing != "" {
			return nil, fmt.Errorf(
				"the header %s needs the variable %s, which the gateway's environment does "+
					"not have", name, missing,
			)
		}
		expanded.Set(name, value)
	}
	return expanded, nil
}

var (
	httpToolName = lazyregexp.New(`^[A-Za-z0-9_-]{1,64}$`)
	httpArgName  = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
	headerName   = lazyregexp.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	jsonPointer  = lazyregexp.New(`^(/([^~/]|~[01])*)+$`)
)

// ResolvePointer finds the value that a JSON pointer (RFC 6901) names in decoded JSON. It returns
// false if there is no such value.
func ResolvePointer(v any, pointer string) (any, bool) {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for token := range strings.SplitSeq(pointer[1:], "/") {
		token = unescape.Replace(token)
		ok := false
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(in) && strconv.Itoa(i) == token; ok {
				v = in[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

const maxHTTPTools = 100

func (a *HTTPArg) check(t *table) {
	if len(a.Enum) > 0 && a.Type != "string" {
		t.fault("enum", "is for strings")
	}
}

// check checks the places against the arguments.
func (h *HTTPTool) check(t *table) {
	if h.Body != "" && !(t.has("method") && t.isGood("method")) {
		h.Method = http.MethodPost
	}
	if h.Body != "" && (h.Method == http.MethodGet || h.Method == http.MethodHead) {
		t.fault("body", "a %s request has none", h.Method)
	}
	bodyArgs, _ := findBodyArgs(h.Body)
	find := func(name string) *HTTPArg {
		if i := slices.IndexFunc(h.Args, func(a HTTPArg) bool { return a.Name == name }); i >= 0 {
			return &h.Args[i]
		}
		return nil
	}
	query := false
	for _, p := range h.URL {
		query = query || strings.Contains(p.Text, "?")
		if p.Arg == "" || !t.isGood("url") || !t.isGood("args") {
			continue
		}
		switch a := find(p.Arg); {
		case a == nil:
			t.fault("url", "{%s} is no argument: describe it under args", p.Arg)
		case !query && !a.Required:
			t.fault("url", "{%s} stands in the path and may be left out: make it required", p.Arg)
		}
	}
	for _, name := range bodyArgs {
		if t.isGood("body") && t.isGood("args") && find(name) == nil {
			t.fault("body", "{%s} is no argument: describe it under args", name)
		}
	}
	used := append(h.URL.args(), bodyArgs...)
	for _, a := range h.Args {
		if t.isGood("url") && t.isGood("body") && !slices.Contains(used, a.Name) {
			t.fault("args."+a.Name, "is in neither url nor body: use it, or remove it")
		}
	}
}

func (t *Template) parseText(s string) (err error) {
	*t, err = httpURL(s)
	return err
}

// httpURL reads a URL with arguments; which host it is they don't say.
func httpURL(s string) (Template, error) {
	t, err := ParseTemplate(s)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(t.sample())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil,
			errors.New(`is not an http or https URL, such as "https://api.example/items/{id}"`)
	case u.User != nil:
		return nil,
			errors.New(
				"must not hold a user name or password: write a header, with ${NAME} for a " +
					"variable")
	case u.Fragment != "":
		return nil, errors.New("must have nothing behind a #")
	}
	_, rest, _ := strings.Cut(s, "://")
	if i := strings.IndexAny(rest, "/?"); strings.Contains(rest[:max(i, 0)], "{") ||
		i < 0 && strings.Contains(rest, "{") ||
		strings.Contains(s[:strings.Index(s, "://")], "{") {
		return nil, errors.New("must name its host: arguments stand in the path and the query only")
	}
	return t, nil
}

func headerValue(s string) error {
	if strings.ContainsAny(s, "\r\n\x00") {
		return errors.New("must be one line")
	}
	for _, m := range variable.FindAllStringSubmatch(s, -1) {
		if !envName.MatchString(m[1]) {
			return fmt.Errorf("${%s} is not the name of an environment variable", m[1])
		}
	}
	return nil
}

// findBodyArgs finds the arguments in the strings of a JSON text.
func findBodyArgs(s string) (names []string, err error) {
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			t, e := ParseTemplate(v)
			if e != nil && err == nil {
				err = fmt.Errorf("%q %w", v, e)
			}
			names = append(names, t.args()...)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(v[key])
			}
		}
	}
	walk(v)
	return names, err
}

func isBody(s string) error {
	_, err := findBodyArgs(s)
	return err
}

func isResult(s string) error {
	if s != ResultText && s != ResultJSON && !jsonPointer.MatchString(s) {
		return fmt.Errorf(
			`%q is neither "text" nor "json" nor a JSON pointer such as "/items/0/name"`, s)
	}
	return nil
}
