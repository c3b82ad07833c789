package install

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tailscale/hujson"

	"tapgw/internal/ownfile"
	"tapgw/internal/visible"
)

// The hook file that makes a Copilot CLI run tapgw hook.

// hookTimeout is how many seconds the CLI waits for a hook. It lets a call through when a hook is
// late, so tapgw hook answers long before that.
const hookTimeout = 30

// hookEvents are the events for which the CLI runs tapgw hook.
var hookEvents = []string{
	"sessionStart", "userPromptSubmitted", "preToolUse", "permissionRequest", "postToolUse",
	"agentStop", "sessionEnd",
	"errorOccurred",
}

// shellHook runs tapgw hook in bash. The shell replaces itself, so that the CLI is the hook's
// parent. A program that is gone lets the call through and says so: the CLI would deny all of them
// for a tapgw that was removed. A gateway that does not answer is another thing, which tapgw hook
// decides.
func shellHook(program, event string) string {
	quoted := "'" + strings.ReplaceAll(program, "'", `'\''`) + "'"
	return "[ -x " + quoted +
		" ] || { echo tapgw is gone, so nothing judges this: delete this hook >&2; exit 0; }; " +
		"exec " + quoted + " hook " + event
}

// hookFile is the CLI's hook file. A shell runs the commands: bash, or PowerShell on Windows.
func hookFile(program string) string {
	type hook struct {
		Type       string `json:"type"`
		Bash       string `json:"bash"`
		PowerShell string `json:"powershell"`
		Timeout    int    `json:"timeoutSec"`
	}
	var b strings.Builder
	b.WriteString("{\n  \"version\": 1,\n  \"hooks\": {\n")
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	for i, event := range hookEvents {
		b.WriteString("    \"" + event + "\": [\n      ")
		_ = encoder.Encode(hook{"command", // it ends the line
			shellHook(program, event),
			"& '" + strings.ReplaceAll(program, "'", "''") + "' hook " + event, hookTimeout})
		b.WriteString("    ]")
		if i < len(hookEvents)-1 {
			b.WriteString(",")
		}
		b.WriteString("\n")
	}
	b.WriteString("  }\n}\n")
	return b.String()
}

// stateUnreadable is the state of a part whose file can't be read or parsed.
const stateUnreadable = "unreadable"

// noteCopilot tells the person about further steps that the parts need to work.
func (d Dialog) noteCopilot(place copilotPlace, list []*copilotChange) {
	note := func(format string, args ...any) { d.Out.Notef("tapgw: "+format, args...) }
	written := false
	for _, ch := range list {
		written = written || ch.Written
		switch ch.What {
		case Hooks:
			project := place.project
			if project == "" {
				project, _ = d.Workdir()
			}
			if at, err := newCopilotPlace(project); err == nil {
				for _, file := range disablesHooks(at.root) {
					note(
						"%s has disableAllHooks: in this project the CLI runs no hooks, "+
							"and asks no gate",
						visible.Line(file))
				}
			}
			if other := place.otherScope(project); other != "" {
				note("the hooks are in %s, too, so each would run twice: uninstall one of both",
					visible.Line(other))
			}
		case Extension:
			if !strings.Contains(os.Getenv("COPILOT_CLI_ENABLED_FEATURE_FLAGS"), "EXTENSIONS") {
				note("the CLI loads extensions only with copilot --experimental, " +
					"or with COPILOT_CLI_ENABLED_FEATURE_FLAGS=EXTENSIONS in its environment")
			}
		}
	}
	if place.project != "" {
		note("the files have the path of this machine's tapgw, so do not commit them; " +
			"the CLI reads them in folders that it trusts")
	}
	if written {
		note("terminals that are open notice it when they are started again")
	}
}

// otherScope returns the user's hook file if the place is a project, or else the project's hook
// file, if it is there.
func (p copilotPlace) otherScope(project string) string {
	if p.project != "" {
		project = ""
	}
	other, err := newCopilotPlace(project)
	if err != nil {
		return ""
	}
	found, err := other.file(Hooks).Look()
	if err != nil || found.State == ownfile.Absent {
		return ""
	}
	return found.File.Path
}

// disablesHooks returns the settings of a project that turn the CLI's hooks off, the user's too.
// Settings of the user do not.
func disablesHooks(project string) (files []string) {
	for _, name := range []string{
		".github/copilot/settings.json", ".github/copilot/settings.local.json",
		".claude/settings.json", ".claude/settings.local.json",
	} {
		file := filepath.Join(project, filepath.FromSlash(name))
		data, err := readSettings(file)
		if err != nil {
			continue // the CLI can't read it either
		}
		var settings struct {
			DisableAllHooks bool `json:"disableAllHooks"`
		}
		if data, err = hujson.Standardize(data); err == nil &&
			json.Unmarshal(data, &settings) == nil && settings.DisableAllHooks {
			files = append(files, file)
		}
	}
	return files
}

// readSettings reads a small regular file.
func readSettings(file string) ([]byte, error) {
	const maxSettings = 1 << 20
	switch info, err := os.Stat(file); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxSettings:
		return nil, fs.ErrInvalid
	}
	return os.ReadFile(file) //nolint:gosec // settings of the CLI
}

// DisabledHooks returns the files of the project of a directory that turn the CLI's hooks off
// there.
func DisabledHooks(dir string) ([]string, error) {
	place, err := newCopilotPlace(dir)
	if err != nil {
		return nil, err
	}
	return disablesHooks(place.root), nil
}
