package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CopilotHook is a hook that a project's files give the Copilot runtime (.github/hooks,
// .github/copilot). In a trusted project, the gateway asks these hooks in the runtime's place. They
// can deny a call but never allow it.
type CopilotHook struct {
	Hook
	Event   string            // the runtime's name of On
	Env     map[string]string // for Command, beside the common variables
	Project string            // the directory that the user trusts
	File    string            // the hook's, from Project
	// Fault is the reason why the hook can't be asked, or "". With a fault, a hook of the kind
	// HookPreToolUse denies every call.
	Fault string
}

// copilotEvents are the events of the runtime that the gateway's hooks have, too.
var copilotEvents = map[string]string{
	"sessionStart": HookSessionStart, "sessionEnd": HookSessionEnd,
	"userPromptSubmitted": HookUserPrompt,
	"preToolUse":          HookPreToolUse, "postToolUse": HookPostToolUse,
	"postToolUseFailure": HookPostToolUse, "agentStop": HookAgentStop, "errorOccurred": HookError,
}

// copilotDecisions are further names of the runtime's events at which a hook may deny a call.
var copilotDecisions = []string{"PreToolUse", "permissionRequest", "PermissionRequest",
	"preMcpToolCall"}

const (
	copilotHookTimeout = 30 * time.Second // the runtime's default
	// terminalHooks is the file by which tapgw install lets the CLI in terminals ask the gateway.
	// Sessions of the gateway ask it anyway.
	terminalHooks = ".github/hooks/tapgw.json"
)

// CopilotHooks returns the hooks of the trusted project that a directory is in, as they were when
// the user trusted them. Before each use of a hook, [Unchanged] must accept its file.
func (f Files) CopilotHooks(dir string) ([]CopilotHook, error) {
	if f.isNamed {
		return nil, nil
	}
	p, trusted, err := trustedAbove(dir)
	if err != nil || !trusted {
		return nil, err
	}
	var all []CopilotHook
	for _, rel := range p.Files.paths() {
		if !isCopilotHooks(rel) {
			continue
		}
		for _, h := range parseCopilotHooks(rel, p.Files[rel].Text) {
			h.Project, h.Dir = p.Dir, filepath.Join(p.Dir, filepath.FromSlash(h.Dir))
			all = append(all, h)
		}
	}
	return all, nil
}

// isCopilotHooks reports whether the runtime reads hooks from a file of a project.
func isCopilotHooks(rel string) bool {
	switch rel {
	case terminalHooks:
		return false
	case ".github/copilot/settings.json", ".github/copilot/settings.local.json":
		return true
	}
	return strings.HasPrefix(rel, ".github/hooks/") && strings.HasSuffix(rel, ".json")
}

// parseCopilotHooks reads the hooks of a file. Dir is relative to the project. A file that can't be
// read yields a hook that denies each call.
func parseCopilotHooks(rel string, text []byte) []CopilotHook {
	deny := func(format string, args ...any) []CopilotHook {
		h := CopilotHook{File: rel, Event: "preToolUse", Fault: fmt.Sprintf(format, args...)}
		h.On, h.Timeout = HookPreToolUse, maxGateTimeout
		return []CopilotHook{h}
	}
	var doc struct {
		Disabled bool                       `json:"disableAllHooks"`
		Hooks    map[string]json.RawMessage `json:"hooks"`
	}
	if text == nil {
		return deny("it is larger than %d KiB", maxKeptFile>>10)
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return deny("it is no JSON with hooks: %v", err)
	}
	if doc.Disabled {
		return nil
	}
	var all []CopilotHook
	for _, event := range slices.Sorted(maps.Keys(doc.Hooks)) {
		var entries []map[string]json.RawMessage
		on, known := copilotEvents[event]
		if slices.Contains(copilotDecisions, event) {
			on = HookPreToolUse
		}
		switch err := json.Unmarshal(doc.Hooks[event], &entries); {
		case err != nil && (on == HookPreToolUse || !known):
			all = append(all, deny("hooks.%s: is no list of hooks", event)...)
			continue
		case len(entries) == 0:
			continue
		}
		for i, entry := range entries {
			h := CopilotHook{File: rel, Event: event}
			h.On, h.Timeout = on, copilotHookTimeout
			if !known {
				h.Fault = fmt.Sprintf("hooks.%s: the gateway has no such event; it has %s", event,
					strings.Join(slices.Sorted(maps.Keys(copilotEvents)), ", "))
			} else if err := h.read(entry); err != nil {
				h.Fault = fmt.Sprintf("hooks.%s[%d].%v", event, i, err)
			}
			if h.On == HookPreToolUse {
				h.Timeout = min(h.Timeout, maxGateTimeout)
			}
			all = append(all, h)
		}
	}
	return all
}

// read reads an entry of the list of an event. The error names the member.
func (h *CopilotHook) read(entry map[string]json.RawMessage) error {
	h.Dir = "."
	var kind, bash, command string
	var seconds float64
	for _, key := range slices.Sorted(maps.Keys(entry)) {
		into := map[string]any{
			"type": &kind, "bash": &bash, "command": &command, "cwd": &h.Dir, "env": &h.Env,
			"timeoutSec": &seconds, "powershell": new(string), "comment": new(string),
		}[key]
		if into == nil {
			return fmt.Errorf("%s: the gateway has no such member of a hook", key)
		}
		if err := json.Unmarshal(entry[key], into); err != nil {
			return fmt.Errorf("%s: has another type than it must have", key)
		}
	}
	if bash == "" {
		bash = command
	}
	dir := path.Clean(h.Dir)
	switch {
	case kind != "command":
		return fmt.Errorf(`type: %q is not "command", the only type that the gateway runs`, kind)
	case bash == "":
		return fmt.Errorf("bash: is required: the command")
	case !filepath.IsLocal(dir):
		return fmt.Errorf("cwd: %q is no directory of the project", h.Dir)
	case seconds < 0:
		return fmt.Errorf("timeoutSec: must not be negative")
	case seconds > 0:
		h.Timeout = time.Duration(min(seconds, maxHookTimeout.Seconds()) * float64(time.Second))
	}
	h.Dir, h.Command = dir, []string{"bash", "-c", bash}
	return nil
}

// describeCopilotHooks says which commands the hooks of a file run, and which hooks have faults.
func describeCopilotHooks(rel string, text []byte) string {
	var runs, faults []string
	for _, h := range parseCopilotHooks(rel, text) {
		switch {
		case h.Fault == "":
			runs = append(runs, fmt.Sprintf("%s runs %s", h.Event, h.Command[2]))
		case h.On == HookPreToolUse:
			faults = append(faults, h.Fault+": it denies every call")
		default:
			faults = append(faults, h.Fault+": it is not asked")
		}
	}
	if len(runs)+len(faults) == 0 {
		return "nothing, it has no hooks that count"
	}
	return "Copilot sessions here ask its hooks: " + strings.Join(append(runs, faults...), "; ")
}
