package copilot

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// Values of a permission.
const (
	Allow = "allow"
	Deny  = "deny"
	CWD   = "cwd" // of Read: inside the session's directory
)

// Permissions say what a session may do, by kind: the table
// [copilot.permissions] of tapgw.toml. There is nobody to ask, so anything
// that is not allowed is denied, and the denial says how to allow it.
type Permissions struct {
	Shell, Write, Read, URL, MCP, CustomTool, Memory, Hook string
}

func (p Permissions) withDefaults() Permissions {
	return Permissions{
		Shell:      cmp.Or(p.Shell, Deny),
		Write:      cmp.Or(p.Write, Deny),
		Read:       cmp.Or(p.Read, CWD),
		URL:        cmp.Or(p.URL, Deny),
		MCP:        cmp.Or(p.MCP, Deny),
		CustomTool: cmp.Or(p.CustomTool, Allow),
		Memory:     cmp.Or(p.Memory, Deny),
		Hook:       cmp.Or(p.Hook, Deny),
	}
}

// of returns the setting of a kind of request; false for a kind without one.
func (p Permissions) of(kind rpc.PermissionRequestKind) (string, bool) {
	switch kind {
	case rpc.PermissionRequestKindShell:
		return p.Shell, true
	case rpc.PermissionRequestKindWrite:
		return p.Write, true
	case rpc.PermissionRequestKindRead:
		return p.Read, true
	case rpc.PermissionRequestKindURL:
		return p.URL, true
	case rpc.PermissionRequestKindMCP:
		return p.MCP, true
	case rpc.PermissionRequestKindCustomTool:
		return p.CustomTool, true
	case rpc.PermissionRequestKindMemory:
		return p.Memory, true
	case rpc.PermissionRequestKindHook:
		return p.Hook, true
	}
	return "", false
}

// permit answers the runtime's question whether something may be done.
func (s *session) permit(req sdk.PermissionRequest, _ sdk.PermissionInvocation) (rpc.PermissionDecision, error) {
	if req == nil {
		return &rpc.PermissionDecisionUserNotAvailable{}, nil
	}
	reason := s.denial(req)
	if reason == "" {
		return &rpc.PermissionDecisionApproveOnce{}, nil
	}
	s.note(gateway.LogWarning, fmt.Sprintf("%s request denied: %s", req.Kind(), reason))
	return &rpc.PermissionDecisionReject{Feedback: &reason}, nil
}

// denial says why a request is denied, "" if it is allowed.
func (s *session) denial(req sdk.PermissionRequest) string {
	kind := req.Kind()
	setting, known := s.r.o.Permissions.of(kind)
	how := fmt.Sprintf(`set %s = "allow" in [copilot.permissions] of tapgw.toml to allow it`, kind)
	switch {
	case !known:
		return fmt.Sprintf("the gateway never allows requests of kind %q", kind)
	case req.RequiresManagedApproval():
		return "an administrator's policy wants a person to approve this, and a gateway session has none"
	case setting == Allow:
		return ""
	case setting == CWD:
		read, ok := req.(*rpc.PermissionRequestRead)
		if !ok {
			return "the gateway's policy does not allow it; " + how
		}
		if path := absolute(read.Path, s.cwd); inside(path, s.cwd) || inside(path, s.outputDir) {
			return ""
		}
		return fmt.Sprintf("the gateway's policy allows reading inside %s only; %s everywhere", s.cwd, how)
	}
	return "the gateway's policy does not allow it; " + how
}

// absolute makes a path absolute without cleaning it: what ".." means depends on
// the symlinks before it.
func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + string(filepath.Separator) + path
}

// inside reports whether a path lies in a directory once symlinks are resolved,
// whether ".." is taken for the parent of where a symlink leads, as the system
// does, or of the symlink, as programs do that clean paths first.
func inside(path, dir string) bool {
	if dir == "" {
		return false
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	for _, path := range []string{path, filepath.Clean(path)} {
		target, err := resolve(path)
		if err != nil {
			return false
		}
		if rel, err := filepath.Rel(dir, target); err != nil || !filepath.IsLocal(rel) {
			return false
		}
	}
	return true
}

// resolve resolves the symlinks of a path of which the end need not exist.
func resolve(path string) (string, error) {
	target, err := filepath.EvalSymlinks(path)
	if err == nil || !os.IsNotExist(err) {
		return target, err
	}
	// A symlink to nowhere leads somewhere as soon as that is made.
	if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&os.ModeSymlink != 0 {
		return "", err
	}
	parent, name := filepath.Split(strings.TrimRight(path, string(filepath.Separator)))
	if parent == "" || name == "" || name == ".." {
		return "", err
	}
	if parent, err = resolve(parent); err != nil {
		return "", err
	}
	return filepath.Join(parent, name), nil
}
