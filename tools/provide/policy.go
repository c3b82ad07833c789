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

// Allow lists the actions that tools may take without asking a person. The zero value allows only
// actions that stay in the workspace and start no program.
type Allow struct {
	Terminal []string // commands; see [shellrule.Exactly] for their form
	Outside  []string // globs of absolute paths
	Web      []string // hosts that may be reached although their addresses are not public
	// names of drop-in tools that may do more than read, and of tools with Consent
	Tools []string
	// NoKind allows drop-in tools whose files name no kind. It is set where a person has chosen the
	// tools that are served or called, and not where a model chooses.
	NoKind bool
	// Where tells people where a list is, with %s for its name. Default: allow.%s in
	// lsclient.toml.
	Where string
}

// where tells people where a list is.
func (a *Allow) where(list string) string {
	return fmt.Sprintf(cmp.Or(a.Where, "allow.%s in lsclient.toml"), list)
}

// Refusal is the error of a call that is not allowed. What tells the model the refused action and
// the list that allows it.
type Refusal struct{ What string }

// Error implements error: the reason, for the model.
func (r *Refusal) Error() string { return r.What }

func refuse(format string, args ...any) *Refusal { return &Refusal{fmt.Sprintf(format, args...)} }

// Check returns a [Refusal] if a call of the tool may not run. Built-in tools are always allowed,
// except for commands and tools that need consent.
func (a *Allow) Check(t *tools.Tool, args json.RawMessage) error {
	if slices.Contains(a.Tools, t.Name) {
		return nil
	}
	switch {
	case t.Kind == tools.Terminal && t.Source == "":
		command := Command(args)
		if part := a.notAllowed(command); part != "" {
			return refuse("the command %q is not allowed: %s has no rule for %s", command,
				a.where("terminal"), part)
		}
	case t.Kind == tools.Unknown && a.NoKind:
	case t.Consent || t.Source != "" && t.Kind != tools.Read:
		return refuse("the tool %q may %s and is not allowed: %s lists those that are",
			t.Name, abilities[t.Kind], a.where("tools"))
	}
	return nil
}

// abilities describe the actions of a kind of tool.
var abilities = map[tools.Kind]string{
	tools.Unknown: "do anything (its file names no kind)",
	tools.Edit:    "change files", tools.Terminal: "run commands", tools.Web: "reach the network",
}

// AllowsOutside reports whether tools may use an absolute path outside the workspace.
func (a *Allow) AllowsOutside(path string) bool {
	return slices.ContainsFunc(a.Outside, func(glob string) bool {
		ok, err := doublestar.PathMatch(glob, filepath.Clean(path))
		return ok && err == nil
	})
}

// AllowsHost reports whether tools may reach a host whose address is not public.
func (a *Allow) AllowsHost(host string) bool {
	name, err := weburl.Host(host)
	return err == nil && slices.ContainsFunc(a.Web, func(h string) bool {
		listed, err := weburl.Host(h)
		return err == nil && listed == name
	})
}

// NotPublic is the refusal of a host that [Allow.AllowsHost] does not allow. addr is not
// valid if only a proxy knows the address.
func (a *Allow) NotPublic(host string, addr netip.AddrPort) *Refusal {
	if !addr.IsValid() {
		return refuse(
			"%s has no address that is known here, and what the proxy makes of it is not allowed: "+
				"%s lists what is", host, a.where("web"))
	}
	return refuse("%s has the address %s, which is not public and not allowed: %s lists what is",
		host, addr.Addr(), a.where("web"))
}

// Command returns the command in the arguments of a terminal tool, "" if they can't be
// read.
func Command(args json.RawMessage) string {
	var in struct {
		Command string `json:"command"`
	}
	// This decoder reads them as the tool does: keys are exact in case and unique.
	if jsonexp.Unmarshal(args, &in) != nil {
		return ""
	}
	return in.Command
}

// notAllowed returns the part of a command line that no rule allows, in words, or "".
func (a *Allow) notAllowed(command string) string {
	rules := make([]shellrule.Rule, len(a.Terminal))
	for i, pattern := range a.Terminal {
		rules[i] = shellrule.Exactly(pattern)
	}
	return shellrule.NotAllowed(rules, command)
}
