package copilot

import (
	"github.com/github/copilot-sdk/go/rpc"
	"github.com/go-json-experiment/json"

	"tapgw/internal/gateway"
	"tapgw/internal/lazyregexp"
)

// goesOn finds the shell of a command that the runtime did not wait for. The runtime writes this
// behind the command's output, so that no output can stand for it.
var goesOn = lazyregexp.New(`<(?:command started in background with shellId: ([^\s<>]+)|` +
	`command with shellId: ([^\s<>]+) is still running[^<>]*)>$`)

// maxBackground bounds the shells that a session's commands are followed in.
const maxBackground = 100

// background are a session's commands that go on after their call, by shell. The value is nil for a
// shell that got a second command while the first one ran: the gateway can't tell which of the two
// has ended.
type background map[string]*gateway.Event

// add follows a command after its call.
func (b background) add(shell string, call gateway.Event) {
	if _, isBusy := b[shell]; isBusy {
		b[shell] = nil
	} else if len(b) < maxBackground {
		b[shell] = &call
	}
}

// end returns the event of a command that ended; nil for one that is not followed.
func (b background) end(shell string, exitCode int64) *gateway.Event {
	e := b[shell]
	if e != nil {
		delete(b, shell)
		e.ExitCode = new(int(exitCode))
	}
	return e
}

// followCommand follows the commands that a call leaves behind, and reports the one whose end it
// read.
func (t *tracker) followCommand(o *openPart, d *rpc.ToolExecutionCompleteData) {
	if d.Result == nil {
		return
	}
	var args struct {
		Command string `json:"command"`
	}
	if json.Unmarshal([]byte(o.args), &args) != nil {
		return
	}
	if m := goesOn.FindStringSubmatch(d.Result.Content); m != nil && d.ShellExecution == nil &&
		args.Command != "" {
		t.background.add(m[1]+m[2], gateway.Event{ID: d.ToolCallID, Tool: o.tool, Args: o.args})
	}
	for _, c := range d.Result.Contents {
		exit, ok := c.(*rpc.ToolExecutionCompleteContentShellExit)
		switch {
		case !ok:
		case args.Command == "":
			t.commandEnded(exit.ShellID, exit.ExitCode)
		case t.background[exit.ShellID] != nil: // it ran in the shell of another command
			t.background[exit.ShellID] = nil
		}
	}
}

// notified reports the end of a command that the runtime tells the model about.
func (t *tracker) notified(d *rpc.SystemNotificationData) {
	if done, ok := d.Kind.(*rpc.SystemNotificationShellCompleted); ok && done.ExitCode != nil {
		t.commandEnded(done.ShellID, *done.ExitCode)
	}
}

func (t *tracker) commandEnded(shell string, exitCode int64) {
	if e := t.background.end(shell, exitCode); e != nil {
		t.emit(*e)
	}
}
