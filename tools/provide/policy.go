package provide

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/bmatcuk/doublestar/v4"
	jsonexp "github.com/go-json-experiment/json"

	"tapgw/internal/shellrule"
	"tapgw/internal/weburl"
	"tapgw/tools"
)

// Allow lists what tools may do without anybody being asked. Its zero value
// allows what stays in the workspace and starts no program.
type Allow struct {
	Terminal []string // commands: the words of one, with a last * for any further ones
	Outside  []string // globs of absolute paths
	Web      []string // hosts that may be reached although their addresses are not public
	Tools    []string // drop-in tools of the kinds edit, terminal and web
	// Where names one of these lists to people, with %s for its name; "":
	// allow.%s in lsclient.toml.
	Where string
}

// where names a list.
func (a *Allow) where(list string) string {
	return fmt.Sprintf(cmp.Or(a.Where, "allow.%s in lsclient.toml"), list)
}

// Refusal is why a call was not allowed.
type Refusal struct{ What string }

// Error says what was refused and what allows it.
func (r *Refusal) Error() string { return r.What }

func refuse(format string, args ...any) *Refusal { return &Refusal{fmt.Sprintf(format, args...)} }

// Check reports why a call may not run, nil if it may. The error is a [Refusal].
func (a *Allow) Check(t *tools.Tool, args json.RawMessage) error {
	if slices.Contains(a.Tools, t.Name) {
		return nil
	}
	switch {
	case t.Kind == tools.Terminal && t.Source == "":
		if command := Command(args); !a.command(command) {
			return refuse("the command %q is not allowed: %s lists those that are", command, a.where("terminal"))
		}
	case t.Source != "" && t.Kind != tools.Read:
		return refuse("the tool %q may %s and is not allowed: %s lists those that are", t.Name, doing[t.Kind],
			a.where("tools"))
	}
	return nil
}

// doing says what a kind of tool does.
var doing = map[tools.Kind]string{tools.Edit: "change files", tools.Terminal: "run commands",
	tools.Web: "reach the network"}

// OutsideOK reports whether a path outside the workspace may be used.
func (a *Allow) OutsideOK(path string) bool {
	return slices.ContainsFunc(a.Outside, func(glob string) bool {
		ok, err := doublestar.PathMatch(glob, filepath.Clean(path))
		return ok && err == nil
	})
}

// HostOK reports whether a host on an address that is not public may be reached.
func (a *Allow) HostOK(host string) bool {
	name, err := weburl.Host(host)
	return err == nil && slices.ContainsFunc(a.Web, func(h string) bool {
		listed, err := weburl.Host(h)
		return err == nil && listed == name
	})
}

// NotPublic is the refusal of a host that HostOK does not allow. An address that is
// not valid is one that only a proxy knows.
func (a *Allow) NotPublic(host string, addr netip.AddrPort) *Refusal {
	if !addr.IsValid() {
		return refuse("%s has no address that is known here, and what the proxy makes of it is not allowed: %s "+
			"lists what is", host, a.where("web"))
	}
	return refuse("%s has the address %s, which is not public and not allowed: %s lists what is", host, addr.Addr(),
		a.where("web"))
}

// Command is the command that a terminal tool's arguments hold.
func Command(args json.RawMessage) string {
	var in struct {
		Command string `json:"command"`
	}
	// As the tool reads them, names exact and once. It complains about what is wrong.
	if jsonexp.Unmarshal(args, &in) != nil {
		return ""
	}
	return in.Command
}

// command reports whether a command is one that may run (see [shellrule.Exactly]).
func (a *Allow) command(command string) bool {
	rules := make([]shellrule.Rule, len(a.Terminal))
	for i, pattern := range a.Terminal {
		rules[i] = shellrule.Exactly(pattern)
	}
	return shellrule.Allows(rules, command)
}
