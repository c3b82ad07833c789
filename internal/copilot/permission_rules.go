package copilot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/shellrule"
	"tapgw/internal/weburl"
)

// verdict is what patterns say of a request.
type verdict int

const (
	noVerdict verdict = iota // no pattern is about it
	granted                  // one allows it
	refused                  // one denies it: denials win
)

// commandVerdict judges a shell command. One that a pattern denies denies all of it.
// It is allowed where each command of the line is, and where they are all that the
// line does, as this program parses it (see [shellrule.Allows]). What the runtime
// found in it counts against it only.
func commandVerdict(req *rpc.PermissionRequestShell, allow, deny []string) verdict {
	var parts []string
	for _, segment := range req.CommandSegments {
		parts = append(parts, segment.FullCommandText)
	}
	if shellrule.Denies(deny, req.FullCommandText, parts...) {
		return refused
	}
	rules := make([]shellrule.Rule, len(allow))
	for i, pattern := range allow {
		rules[i] = shellrule.Begins(pattern)
	}
	if !req.HasWriteFileRedirection && shellrule.Allows(rules, req.FullCommandText) {
		return granted
	}
	return noVerdict
}

// pathVerdict judges a path: a denial holds for any way to read it, an allowance
// must hold for all of them (see inside).
func pathVerdict(name, cwd string, allow, deny []string) verdict {
	name = absolute(name, cwd)
	ways := []string{filepath.Clean(name)}
	known := true
	for _, way := range []string{name, filepath.Clean(name)} {
		target, err := resolve(way)
		if err != nil {
			known = false
			continue
		}
		ways = append(ways, target)
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

// matchesPath reports whether one of the globs matches. A relative one is seen from
// the session's directory, ~/ is the user's home.
func matchesPath(globs []string, name, cwd string) bool {
	return slices.ContainsFunc(globs, func(glob string) bool {
		if rest, ok := strings.CutPrefix(glob, "~/"); ok {
			home, err := os.UserHomeDir()
			if err != nil {
				return false
			}
			glob = filepath.ToSlash(home) + "/" + rest
		} else if !filepath.IsAbs(glob) {
			glob = filepath.ToSlash(cwd) + "/" + glob
		}
		if ok, _ := doublestar.Match(glob, filepath.ToSlash(name)); ok {
			return true
		}
		// What the glob begins with may lead through symlinks too.
		base, rest := doublestar.SplitPattern(glob)
		real, err := resolve(base)
		if err != nil || real == base {
			return false
		}
		ok, _ := doublestar.Match(strings.TrimSuffix(filepath.ToSlash(real), "/")+"/"+rest, filepath.ToSlash(name))
		return ok
	})
}

// urlVerdict judges a URL as a browser reads it. What no browser reads is refused: no
// pattern could be held against it.
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
