package copilot

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/shellrule"
)

// verdict is what patterns say of a request.
type verdict int

const (
	silent  verdict = iota // no pattern is about it
	granted                // one allows it
	refused                // one denies it: denials win
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
	return silent
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
		return silent
	}
	for _, way := range ways[1:] {
		if !matchesPath(allow, way, cwd) {
			return silent
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

// urlVerdict judges a URL.
func urlVerdict(s string, allow, deny []string) verdict {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return silent
	}
	if slices.ContainsFunc(deny, func(p string) bool { return matchesURL(p, u, false) }) {
		return refused
	}
	if u.User == nil && slices.ContainsFunc(allow, func(p string) bool { return matchesURL(p, u, true) }) {
		return granted
	}
	return silent
}

// matchesURL matches [SCHEME://]HOST[:PORT][/PATH] with a URL: *.HOST is every host
// below HOST, PATH is what its path begins with, whole segments. Without a scheme it
// is http or https, without a port the scheme's. A denial is about every port and,
// unless it names one, every path.
func matchesURL(pattern string, u *url.URL, exact bool) bool {
	scheme, rest, named := strings.Cut(pattern, "://")
	if !named {
		scheme, rest = "", pattern
	}
	host, prefix, _ := strings.Cut(rest, "/")
	host, port, _ := strings.Cut(strings.ToLower(host), ":")
	have := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	switch sub, below := strings.CutPrefix(host, "*."); {
	case scheme != "" && !strings.EqualFold(scheme, u.Scheme), scheme == "" && u.Scheme != "http" && u.Scheme != "https":
		return false
	case below && !strings.HasSuffix(have, "."+sub), !below && have != host:
		return false
	case (exact || port != "") && portOf(u) != portOf(&url.URL{Scheme: u.Scheme, Host: "x:" + port}):
		return false
	}
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return true
	}
	// Servers differ in what they make of these.
	if exact && (strings.Contains(u.Path, "..") || strings.ContainsAny(u.Path, `\`) || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")) {
		return false
	}
	at := strings.Trim(path.Clean("/"+u.Path), "/")
	return at == prefix || strings.HasPrefix(at, prefix+"/")
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "http":
		return "80"
	default:
		return "443"
	}
}
