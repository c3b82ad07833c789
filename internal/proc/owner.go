package proc

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// Owner is a process that has an end of a connection or listens on a port, as far
// as the system tells.
type Owner struct {
	PID     int    // 0: not known; the process is another user's
	Command string // its command line
	UID     int    // of its user; -1: not known
}

// unknown is the owner that the system does not tell.
var unknown = Owner{UID: -1}

// commandShown is how much of a command line a message shows, in characters.
const commandShown = 80

// String names the process and, unless it is this process's user, its user.
func (o Owner) String() string {
	who := "another process"
	if o.PID != 0 {
		command := []rune(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, o.Command))
		if len(command) > commandShown {
			command = append(command[:commandShown-1], '…')
		}
		who = fmt.Sprintf("process %d (%s)", o.PID, string(command))
	}
	if o.UID < 0 || o.UID == os.Geteuid() {
		return who
	}
	name := strconv.Itoa(o.UID)
	if u, err := user.LookupId(name); err == nil {
		name = cmp.Or(u.Username, name)
	}
	return who + " of user " + name
}
