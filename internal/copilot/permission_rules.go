package copilot

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/protect"
	"tapgw/internal/shellrule"
	"tapgw/internal/weburl"
)

// verdict is the result of holding patterns against a request.
type verdict int

const (
	noVerdict verdict = iota // no pattern matches
	granted                  // a pattern allows it, and no pattern denies it
	refused                  // a pattern denies it
)

// commandVerdict judges a shell command line. It is refused if a pattern denies any command of it;
// denial is that pattern. It is granted if patterns allow each command, and the line does nothing
// else as this program parses it (see [shellrule.Allows]). The commands that the runtime found in
// the line only count against it.
func commandVerdict(
	req *rpc.PermissionRequestShell, allow, deny []string,
) (v verdict, denial string) {
	var parts []string
	for _, segment := range req.CommandSegments {
		parts = append(parts, segment.FullCommandText)
	}
	if pattern := shellrule.Denial(deny, req.FullCommandText, parts...); pattern != "" {
		return refused, pattern
	}
	if notAllowedPart(req, allow) == "" {
		return granted, ""
	}
	return noVerdict, ""
}

// notAllowedPart returns the part of a command line that no pattern allows, in words, or "".
func notAllowedPart(req *rpc.PermissionRequestShell, allow []string) string {
	rules := make([]shellrule.Rule, len(allow))
	for i, pattern := range allow {
		rules[i] = shellrule.Begins(pattern)
	}
	part := shellrule.NotAllowed(rules, req.FullCommandText)
	if part == "" && req.HasWriteFileRedirection {
		return "a redirection to a file"
	}
	return part
}

// howToAllow names the part of a request that no pattern of p allows, the key for such a pattern,
// and last the setting that allows every such request. Models read it, and people in the timeline.
func howToAllow(p *configs.Permissions, req sdk.PermissionRequest) string {
	key, part, all := "", "", ""
	switch req := req.(type) {
	case *rpc.PermissionRequestShell:
		key, part, all = "allow_commands", notAllowedPart(req, p.AllowCommands), "command"
	case *rpc.PermissionRequestRead:
		key, part, all = "allow_read_paths", "this file", "file"
	case *rpc.PermissionRequestWrite:
		key, part, all = "allow_write_paths", "this file", "file"
	case *rpc.PermissionRequestURL:
		key, part, all = "allow_urls", "this address", "address"
	default:
		return fmt.Sprintf(`set %s = "allow" in [copilot.permissions] of tapgw.toml to allow it`,
			req.Kind())
	}
	return fmt.Sprintf(`%s in [copilot.permissions] of tapgw.toml has no pattern for %s; `+
		`set %s = "allow" there to allow every %s`, key, cmp.Or(part, "it"), req.Kind(), all)
}

// pathVerdict judges a path. A denial counts for any way to read the path, an allowance must hold
// for all of them; see inside.
func pathVerdict(name, cwd string, allow, deny []string) verdict {
	name = absolute(name, cwd)
	ways := []string{filepath.Clean(name)}
	known := true
	for _, way := range []string{name, filepath.Clean(name)} {
		if _, err := protect.Resolve(way); err != nil {
			known = false
		}
		ways = append(ways, protect.Target(way))
	}
	for _, way := range ways {
		if matchesPath(deny, way, cwd) {
			return refused
		}
	}
	if !known {
		return noVerdict
	}
	for _, way := range ways[1:] {
		if !matchesPath(allow, way, cwd) {
			return noVerdict
		}
	}
	return granted
}

// matchesPath reports whether one of the globs matches. A relative glob is relative to the
// session's directory, and ~/ is the user's home.
func matchesPath(globs []string, name, cwd string) bool {
	return matchesGlob(pathGlobs(globs, cwd), name)
}

// pathGlobs returns the globs that absolute paths are compared with, each also with the symlinks of
// its fixed beginning resolved.
func pathGlobs(patterns []string, cwd string) (globs []string) {
	home, err := os.UserHomeDir()
	for _, pattern := range patterns {
		if err != nil && strings.HasPrefix(pattern, "~/") {
			continue
		}
		glob := configs.PathGlob(pattern, filepath.ToSlash(cwd), filepath.ToSlash(home))
		globs = append(globs, glob)
		base, rest := doublestar.SplitPattern(glob)
		if real, err := protect.Resolve(base); err == nil && real != base {
			globs = append(globs, configs.PathGlob(rest, filepath.ToSlash(real), ""))
		}
	}
	return globs
}

func matchesGlob(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		ok, _ := doublestar.Match(glob, filepath.ToSlash(name))
		return ok
	})
}

// urlVerdict judges a URL as a browser reads it. A URL that no browser can read is refused, because
// no pattern can be compared with it.
func urlVerdict(s string, allow, deny []string) verdict {
	u, err := weburl.Parse(s)
	if err != nil {
		return refused
	}
	one := func(patterns []string, is func(weburl.Pattern) bool) bool {
		return slices.ContainsFunc(patterns, func(text string) bool {
			p, err := weburl.ParsePattern(text)
			return err == nil && is(p)
		})
	}
	switch {
	case one(deny, func(p weburl.Pattern) bool { return p.Denies(u) }):
		return refused
	case one(allow, func(p weburl.Pattern) bool { return p.Allows(u) }):
		return granted
	}
	return noVerdict
}
