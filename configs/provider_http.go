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
	Description string
	Method      string            // GET where there is no body, else POST
	URL         Template          // arguments in its path and its query
	Headers     map[string]string // with ${NAME} for variables of the environment
	Body        string            // JSON in whose strings arguments stand; "": none
	Args        []HTTPArg         // by name
	Timeout     time.Duration     // of the whole request
	Result      string            // ResultText, ResultJSON, or a JSON pointer
}

// HTTPArg is an argument of an [HTTPTool], and in JSON its part of the tool's schema. One that is not Required may be
// left out of a call.
type HTTPArg struct {
	Name        string   `json:"-"`
	Type        string   `json:"type"` // string, integer, number or boolean
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"` // of a string
	Required    bool     `json:"-"`
}

// Values of result, besides a JSON pointer into the answer: its body as text, or as JSON.
const (
	ResultText = "text"
	ResultJSON = "json"
)

// Template is a text with places for arguments, such as the URL of an [HTTPTool]: its parts in their order. Nil is the
// empty text.
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

// parseTemplate reads a text with the places that an expression finds: its one group is a place's name.
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

// ExpandVariables replaces each ${NAME} in the value of a header, or of a program's variable, by the environment
// variable NAME. If some are not set, missing is the name of the last one.
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

// ExpandHeaders returns the headers of a request with the values of their variables. The error names the header whose
// variable is not set.
func ExpandHeaders(headers map[string]string) (http.Header, error) {
	expanded := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value, missing := ExpandVariables(headers[name])
		if missing != "" {
			return nil, fmt.Errorf(
				"the header %s needs the variable %s, which the gateway's environment does not have", name, missing,
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

// ResolvePointer finds the value that a JSON pointer (RFC 6901) names in decoded JSON; false if there is none.
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

// httpTools reads the tables [tools.NAME].
func (t *table) httpTools(key string) []HTTPTool {
	all := t.table(key)
	if all == nil {
		return nil
	}
	var tools []HTTPTool
	all.eachTable(func(name string, sub *table) {
		if !httpToolName.MatchString(name) {
			all.fault(name, "is not a tool's name: 1 to 64 letters, digits, dashes and underscores")
		}
		tools = append(tools, sub.httpTool(name))
	})
	if n := len(all.values); n == 0 || n > maxHTTPTools {
		t.fault(key, "has %d tools: a provider has from 1 to %d", n, maxHTTPTools)
	}
	return tools
}

func (t *table) httpTool(name string) HTTPTool {
	h := HTTPTool{Name: name, Timeout: 30 * time.Second, Result: ResultText}
	t.str("description", &h.Description, notEmpty)
	t.str("url", new(string), func(s string) (err error) {
		h.URL, err = httpURL(s)
		return err
	})
	for _, key := range []string{"description", "url"} {
		if t.isMissing(key) {
			t.fault(key, "is missing: a tool needs a description and a url")
		}
	}
	t.headers(&h.Headers)
	bodyArgs := []string{}
	t.str("body", &h.Body, func(s string) (err error) {
		bodyArgs, err = findBodyArgs(s)
		return err
	})
	if h.Method = http.MethodGet; h.Body != "" {
		h.Method = http.MethodPost
	}
	t.str("method", &h.Method, oneOf(
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	))
	if h.Body != "" && (h.Method == http.MethodGet || h.Method == http.MethodHead) {
		t.fault("body", "a %s request has none", h.Method)
	}
	h.Args = t.httpArgs("args")
	t.duration("timeout", &h.Timeout, time.Millisecond, time.Hour)
	t.str("result", &h.Result, func(s string) error {
		if s != ResultText && s != ResultJSON && !jsonPointer.MatchString(s) {
			return fmt.Errorf(`%q is neither "text" nor "json" nor a JSON pointer such as "/items/0/name"`, s)
		}
		return nil
	})
	t.rejectUnknown()
	h.check(t, bodyArgs)
	return h
}

// check checks the places against the arguments.
func (h *HTTPTool) check(t *table, bodyArgs []string) {
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

// httpURL reads a URL with arguments; which host it is they don't say.
func httpURL(s string) (Template, error) {
	t, err := ParseTemplate(s)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(t.sample())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New(`is not an http or https URL, such as "https://api.example/items/{id}"`)
	case u.User != nil:
		return nil, errors.New("must not hold a user name or password: write a header, with ${NAME} for a variable")
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

// httpArgs reads the tables of arguments.
func (t *table) httpArgs(key string) []HTTPArg {
	all := t.table(key)
	if all == nil {
		return nil
	}
	var args []HTTPArg
	all.eachTable(func(name string, sub *table) {
		if !httpArgName.MatchString(name) {
			all.fault(name,
				"is not an argument's name: 1 to 64 letters, digits and underscores, beginning with none of the digits")
		}
		a := HTTPArg{Name: name, Type: "string", Required: true}
		sub.str("type", &a.Type, oneOf("string", "integer", "number", "boolean"))
		sub.str("description", &a.Description, nil)
		sub.boolean("required", &a.Required)
		sub.strs("enum", &a.Enum, nil)
		if len(a.Enum) > 0 && a.Type != "string" {
			sub.fault("enum", "is for strings")
		}
		sub.rejectUnknown()
		args = append(args, a)
	})
	return args
}
