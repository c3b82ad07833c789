package configs

import (
	"path/filepath"
	"strings"
	"time"
)

// Hook is an entry of [[hooks]]: a program or a URL of the user's own that sessions ask at certain
// events. Command or URL is set, not both. docs/hooks.md describes its input and answers.
type Hook struct {
	On       string        `toml:"on" is:"hookKind" need:"-"` // one of [HookKinds]
	Match    string        `toml:"match" is:"hookMatch"`      // with *; "" for all tools
	Command  []string      `toml:"command" first:"is empty: the program's name or path"`
	Dir      string        // of its file, in which Command runs
	URL      string        `toml:"url" is:"hookURL"`
	Timeout  time.Duration `toml:"timeout" default:"5s" range:"1ms,10m"`
	FailOpen hookFailure   `toml:"fail" default:"closed"` // only for HookPreToolUse
}

// hookFailure is the key fail of a hook: "closed", or true for "open".
type hookFailure bool

func (f *hookFailure) parseText(s string) error {
	*f = s == "open"
	return oneOf("closed", "open")(s)
}

// Kinds of hooks: the events at which a session asks its hooks. Only [HookPreToolUse] may deny a
// tool call. docs/hooks.md describes the input and the answer of each kind.
const (
	HookPreToolUse   = "pre_tool_use"
	HookPostToolUse  = "post_tool_use"
	HookUserPrompt   = "user_prompt"
	HookSessionStart = "session_start"
	HookSessionEnd   = "session_end"
	HookAgentStop    = "agent_stop"
	HookError        = "error"
)

// HookKinds are all kinds of hooks, in the order of a session's events. The key "on" of [[hooks]]
// has one of them.
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
	maxHookTimeout = 10 * time.Minute
	maxGateTimeout = 5 * time.Second
)

// check adds faults for keys that exclude each other.
func (h *Hook) check(t *table) {
	h.Dir = resolvePath(filepath.Dir(t.doc.file), ".")
	aboutTools := h.On == HookPreToolUse || h.On == HookPostToolUse
	if !t.has("on") {
		t.fault("on", "is required: one of %s", quoted(HookKinds))
	}
	switch {
	case len(h.Command) == 0 && h.URL == "" && t.isGood("command") && t.isGood("url"):
		t.fault("command", "is required, or url: what to ask")
	case len(h.Command) > 0 && h.URL != "":
		t.fault("url", "can't stand beside command: one hook asks one of them")
	}
	if h.On == "" {
		return
	}
	if t.has("match") && !aboutTools {
		t.fault("match", "is for %s and %s: the others are about no tool", HookPreToolUse,
			HookPostToolUse)
	}
	if t.has("fail") && h.On != HookPreToolUse {
		t.fault("fail", "is for %s: the others decide nothing, so that a failure is only told",
			HookPreToolUse)
	}
	if h.On == HookPreToolUse && h.Timeout > maxGateTimeout {
		t.fault("timeout",
			"%s is more than %s, which is how long a tool call waits to be allowed", h.Timeout,
			maxGateTimeout)
	}
	if len(h.Command) > 0 && strings.ContainsRune(h.Command[0], filepath.Separator) {
		h.Command[0] = resolvePath(h.Dir, h.Command[0])
	}
}
