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

// verdict is the result of holding patterns against a request.
type verdict int

const (
	noVerdict verdict = iota // no pattern matches
	granted                  // a pattern allows it, and none denies it
	refused                  // a pattern denies it
)

// commandVerdict judges a shell command line. It is refused if a pattern denies any command of it. It is granted if
// patterns allow each command, and the line does nothing else as this program parses it (see [shellrule.Allows]). The
// commands that the runtime found in the line only count against it.
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

// pathVerdict judges a path. A denial counts for any way to read the path, an allowance must hold for all of them; see
// inside.
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

// matchesPath reports whether one of the globs matches. A relative glob is relative to the session's directory, and ~/
// is the user's home.
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
		// The fixed beginning of the glob may lead through symlinks too.
		base, rest := doublestar.SplitPattern(glob)
		real, err := resolve(base)
		if err != nil || real == base {
			return false
		}
		ok, _ := doublestar.Match(strings.TrimSuffix(filepath.ToSlash(real), "/")+"/"+rest, filepath.ToSlash(name))
		return ok
	})
}

// urlVerdict judges a URL as a browser reads it. A URL that no browser can read is refused, because no pattern can be
// compared with it.
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
