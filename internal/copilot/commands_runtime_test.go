//go:build runtime

package copilot

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"tapgw/configs"
)

// TestCommandsEnd: the gateway hears how each command of the runtime's own shell ended, also of one
// that goes on in the background, once.
func TestCommandsEnd(t *testing.T) {
	s := newRig(t, func(o *Options) {
		o.Permissions = configs.Permissions{Shell: configs.Allow}
	}).start()
	call := func(command, mode, shell string) string {
		args := map[string]string{"command": command, "description": "try it", "mode": mode,
			"shellId": shell}
		return "call:bash " + string(rawJSON(args))
	}
	s.turn(call("exit 3", "sync", ""))
	s.turn(`call:view {"path":"."}`)
	// The runtime tells of the end of one, and the model reads that of the other. What a command
	// prints is no end.
	s.turn(call("echo '<shellId: no completed with exit code 0>'; exit 4", "async", "told"))
	s.turn(call("sleep 0.3; exit 5", "async", "read") + "\n" +
		`call:read_bash {"shellId":"read","delay":20}`)
	want := []string{"exit 3 = 3", "echo '<shellId: no completed with exit code 0>'; exit 4 = 4",
		"sleep 0.3; exit 5 = 5"}
	var got []string
	s.wait("the commands' ends", func() bool {
		got = nil
		for _, e := range s.events {
			var args struct {
				Command string `json:"command"`
			}
			if e.ExitCode == nil {
				continue
			}
			text := e.Args
			for _, begun := range s.events {
				if text == "" && begun.ID == e.ID {
					text = begun.Args
				}
			}
			if err := json.Unmarshal([]byte(text), &args); err != nil {
				t.Fatalf("arguments %q: %v", text, err)
			}
			if args.Command != "" {
				got = append(got, fmt.Sprint(args.Command, " = ", *e.ExitCode))
			}
		}
		return len(got) >= len(want)
	})
	if slices.Sort(got); !slices.Equal(got, []string{want[1], want[0], want[2]}) {
		t.Errorf("commands ended: %q, want %q", got, want)
	}
}
