package proc

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"

	"tapgw/internal/secrets"
)

// Owner is the process at one end of a connection, or the process that listens on a port, if the
// system shows it to this user. Without a PID, Command is "".
type Owner struct {
	PID     int    // 0: unknown, because the process is another user's
	Command string // the command line
	UID     int    // the user's id; -1: unknown
}

// Ends are the addresses of both ends of a TCP connection. Addresses of IPv4 have their short form.
type Ends struct{ Peer, Own netip.AddrPort }

// unknown is the owner if the system does not tell.
var unknown = Owner{UID: -1}

// commandShown is how many characters of a command line a message shows.
const commandShown = 80

// String names the process for a message, with at most 80 characters of its command line, without
// secrets, and its user if that is another than this process's.
func (o Owner) String() string {
	who := "another process"
	if o.PID != 0 {
		command := []rune(secrets.Redact(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, o.Command)))
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
