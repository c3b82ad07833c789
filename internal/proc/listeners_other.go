//go:build !linux

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
)

// Listeners finds the TCP ports on which this user's processes listen that were started with the
// argument arg. It asks lsof and ps. The error wraps [exec.ErrNotFound] where there is no lsof.
func Listeners(ctx context.Context, arg string) (found []Listener, err error) {
	uid := strconv.Itoa(os.Geteuid())
	out, err := exec.CommandContext(ctx, "lsof", "-nP", "-a", "-u", uid, "-iTCP", "-sTCP:LISTEN",
		"-Fpn").Output()
	if err != nil {
		if _, isExit := errors.AsType[*exec.ExitError](err); isExit {
			return nil, nil // it found no socket
		}
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	for _, l := range parseLsof(string(out)) {
		line, err := exec.CommandContext(ctx, "ps", "-o", "command=", "-p",
			strconv.Itoa(l.PID)).Output()
		if err == nil && slices.Contains(strings.Fields(string(line)), arg) {
			found = append(found, l)
		}
	}
	return found, nil
}

// parseLsof reads the output of lsof -Fpn: a line p and a process's id, then lines n and the names
// of its sockets.
func parseLsof(out string) (found []Listener) {
	pid := 0
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "p"):
			pid, _ = strconv.Atoi(line[1:])
		case strings.HasPrefix(line, "n"):
			port, err := strconv.Atoi(line[strings.LastIndexByte(line, ':')+1:])
			l := Listener{PID: pid, Port: port}
			if err == nil && pid > 0 && !slices.Contains(found, l) {
				found = append(found, l)
			}
		}
	}
	return found
}
