package adminapi

import (
	"encoding/json"
	"time"
)

// Terminal is a Copilot CLI in a terminal that has joined the gateway, as GET /terminals lists
// them, oldest first.
type Terminal struct {
	Session string `json:"session"` // a session's id
	CWD     string `json:"cwd"`
	// of the CLIs that have the session; empty when they are not known
	PIDs     []int     `json:"pids"`
	Ways     []string  `json:"ways"` // how it has joined: hooks, mcp, extension, port
	JoinedAt time.Time `json:"joinedAt"`
}

// TerminalHook is the body of POST /terminals/hooks: a hook of a terminal's CLI, as the CLI gave it
// to `tapgw hook`.
type TerminalHook struct {
	Event string          `json:"event"` // such as preToolUse
	PID   int             `json:"pid"`   // of the CLI's process
	Input json.RawMessage `json:"input"` // the CLI's input for the hook
}

// TerminalAnswer answers POST /terminals/hooks. Output is the text that `tapgw hook` prints for the
// CLI.
type TerminalAnswer struct {
	Output json.RawMessage `json:"output"`
}

// TerminalAttach is the body of POST /terminals: the loopback port of a terminal that was started
// with `copilot --ui-server`.
type TerminalAttach struct {
	Port int `json:"port"`
}

// TerminalAttached answers POST /terminals. The gateway follows the terminal from this session to
// its others.
type TerminalAttached struct {
	Session string `json:"session"`
	PID     int    `json:"pid"`     // of the process that has the port; 0 when it is not known
	Warning string `json:"warning"` // for the person who attached it
}
