package proc

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listeners finds the TCP ports on which this user's processes listen that were started with the
// argument arg.
func Listeners(_ context.Context, arg string) (found []Listener, err error) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	isListening := func(_, _ netip.AddrPort, state string) bool { return state == stateListen }
	open := append(sockets("/proc/net/tcp", isListening), sockets("/proc/net/tcp6", isListening)...)
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !slices.Contains(strings.Split(string(line), "\x00"), arg) {
			continue
		}
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // another user's
		}
		for _, fd := range fds {
			target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
			at := slices.IndexFunc(open, func(s socket) bool {
				return s.link == target && s.uid == os.Geteuid()
			})
			if err == nil && at >= 0 {
				found = append(found, Listener{PID: pid, Port: int(open[at].port)})
			}
		}
	}
	return found, nil
}
