package configs

import (
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Hook is an entry of [[hooks]]: a program or a URL of the user's own that sessions ask at certain events. Command or
// URL is set, not both. docs/hooks.md describes its input and answers.
type Hook struct {
	On       string // one of [HookKinds]
	Match    string // names of tools, with *; "" for all tools
	Command  []string
	Dir      string // of its file, in which Command runs
	URL      string
	Timeout  time.Duration
	FailOpen bool // allow when the hook fails; only for HookPreToolUse
}

// Kinds of hooks: the events at which a session asks them. Only [HookPreToolUse] may deny a tool call; docs/hooks.md
// says what each one gets and may answer.
const (
	HookPreToolUse   = "pre_tool_use"
	HookPostToolUse  = "post_tool_use"
	HookUserPrompt   = "user_prompt"
	HookSessionStart = "session_start"
	HookSessionEnd   = "session_end"
	HookAgentStop    = "agent_stop"
	HookError        = "error"
)

// HookKinds are all kinds of hooks, in the order of a session's events. The key "on" of [[hooks]] is one of them.
var HookKinds = []string{
	HookSessionStart,
	HookUserPrompt,
	HookPreToolUse,
	HookPostToolUse,
	HookAgentStop,
	HookError,
	HookSessionEnd,
}

// How long a hook may take. A tool call waits for its hooks as long as for a provider's gate.
const (
	hookTimeout    = 5 * time.Second
	maxHookTimeout = 10 * time.Minute
	maxGateTimeout = 5 * time.Second
)

// readHooks reads [[hooks]].
func readHooks(root *table, into *[]Hook) {
	dir := resolvePath(filepath.Dir(root.doc.file), ".")
	hooks := []Hook{}
	root.tables("hooks", append([]Hook{}, *into...), func(t *table) {
		h := Hook{Timeout: hookTimeout, Dir: dir}
		fail := "closed"
		t.str("on", &h.On, oneOf(HookKinds...))
		if t.isMissing("on") {
			t.fault("on", "is required: one of %s", quoted(HookKinds))
		}
		t.str("match", &h.Match, isHookMatch)
		t.list("command", &h.Command, func(before []string, s string) error {
			if len(before) == 0 && s == "" {
				return errors.New("is empty: the program's name or path")
			}
			return nil
		})
		t.str("url", &h.URL, isHookURL)
		t.duration("timeout", &h.Timeout, time.Millisecond, maxHookTimeout)
		t.str("fail", &fail, oneOf("closed", "open"))
		h.FailOpen = fail == "open"
		h.check(t)
		t.rejectUnknown()
		hooks = append(hooks, h)
	})
	if root.has("hooks") {
		*into = hooks
	}
}

// check adds faults for keys that exclude each other.
func (h *Hook) check(t *table) {
	aboutTools := h.On == HookPreToolUse || h.On == HookPostToolUse
	switch {
	case t.shape != nil:
		return
	case len(h.Command) == 0 && h.URL == "" && t.isGood("command") && t.isGood("url"):
		t.fault("command", "is required, or url: what to ask")
	case len(h.Command) > 0 && h.URL != "":
		t.fault("url", "can't stand beside command: one hook asks one of them")
	}
	if h.On == "" {
		return
	}
	if t.has("match") && !aboutTools {
		t.fault("match", "is for %s and %s: the others are about no tool", HookPreToolUse, HookPostToolUse)
	}
	if t.has("fail") && h.On != HookPreToolUse {
		t.fault("fail", "is for %s: the others decide nothing, so that a failure is only told", HookPreToolUse)
	}
	if h.On == HookPreToolUse && h.Timeout > maxGateTimeout {
		t.fault("timeout",
			"%s is more than %s, which is how long a tool call waits to be allowed", h.Timeout, maxGateTimeout)
	}
	if len(h.Command) > 0 && strings.ContainsRune(h.Command[0], filepath.Separator) {
		h.Command[0] = resolvePath(h.Dir, h.Command[0])
	}
}

func isHookURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New(`is not an http or https URL, such as "http://127.0.0.1:8080/hook"`)
	case u.User != nil:
		return errors.New("must not hold a user name or password")
	}
	return nil
}

// tables reads the tables of an array of tables; have is what there is without it.
func (t *table) tables(key string, have any, read func(sub *table)) {
	if t == nil {
		return
	}
	if t.shape != nil {
		sub := &table{
			doc:   t.doc,
			path:  append(slices.Clone(t.path), key, element(0)),
			bad:   map[string]bool{},
			shape: &jsonschema.Schema{Type: "object"},
		}
		read(sub)
		t.describe(key, func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: sub.shape, Default: literal(have)}
		})
		return
	}
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	var values []map[string]any
	switch v := v.(type) {
	case []map[string]any:
		values = v
	case []any: // written as one value
		for _, v := range v {
			sub, ok := v.(map[string]any)
			if !ok {
				t.mismatch(key, "an array of tables", v)
				return
			}
			values = append(values, sub)
		}
	default:
		t.mismatch(key, "an array of tables, each [["+key+"]]", v)
		return
	}
	for i, sub := range values {
		read(
			&table{
				doc:    t.doc,
				path:   append(slices.Clone(t.path), key, element(i)),
				values: sub,
				bad:    map[string]bool{},
			},
		)
	}
}
