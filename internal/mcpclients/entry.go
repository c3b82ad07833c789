package mcpclients

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"tapgw/internal/statedir"
)

// entryName is the name of the gateway in the clients' files.
const entryName = "tapgw"

// member is a key of an entry and its value: a string, a list of strings, a boolean, members, or raw.
type member struct {
	key   string
	value any
}

// raw is a value as a client's file has it; in TOML the whole pair.
type raw string

// entry is what a client's file says about the gateway.
type entry struct {
	members  []member // that make it work
	defaults []member // that a new entry gets; later they are the user's
}

func (e entry) all() []member { return slices.Concat(e.members, e.defaults) }

// ownKeys are the keys that an update sets or removes. Others are the user's.
var ownKeys = []string{"type", "command", "args", "env", "environment", "url", "headers", "bearer_token_env_var"}

// update returns the members of an entry that replaces an old one: what it needs now, and what the user has added to
// it. Changed is false if the old one says the same already. The error says that the old entry is another program's.
func (e entry) update(old map[string]any, extras []member) (members []member, changed bool, err error) {
	if err := checkOurs(old); err != nil {
		return nil, false, err
	}
	members = e.withAdded(old)
	was, now := map[string]any{}, values(members)
	for _, key := range ownKeys {
		if v, ok := old[key]; ok && !isEmpty(v) {
			was[key] = v
		}
	}
	for _, m := range extras {
		if !slices.Contains(ownKeys, m.key) {
			members = append(members, m)
		}
	}
	return members, !reflect.DeepEqual(was, now), nil
}

// withAdded returns the members with the variables or headers that the user has added to those of ours.
func (e entry) withAdded(old map[string]any) []member {
	members := slices.Clone(e.members)
	has := func(key string) bool {
		return slices.ContainsFunc(members, func(m member) bool { return m.key == key })
	}
	for _, key := range []string{"env", "environment", "headers"} {
		if (key == "headers") != has("url") {
			continue
		}
		added, _ := old[key].(map[string]any)
		added = maps.Clone(added)
		maps.DeleteFunc(
			added,
			func(name string, _ any) bool { return name == statedir.EnvHome || name == authorization },
		)
		if len(added) == 0 {
			continue
		}
		if !has(key) {
			members = append(members, member{key, []member(nil)})
		}
		i := slices.IndexFunc(members, func(m member) bool { return m.key == key })
		list := slices.Clone(members[i].value.([]member))
		for _, name := range slices.Sorted(maps.Keys(added)) {
			list = append(list, member{name, fmt.Sprint(added[name])})
		}
		members[i].value = list
	}
	return members
}

// values returns members as a parser of the client's file returns them.
func values(members []member) map[string]any {
	all := map[string]any{}
	for _, m := range members {
		switch v := m.value.(type) {
		case []member:
			all[m.key] = values(v)
		case []string:
			list := make([]any, len(v))
			for i := range v {
				list[i] = v[i]
			}
			all[m.key] = list
		default:
			all[m.key] = v
		}
	}
	return all
}

func isEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return v == nil
}

// checkOurs returns an error if an entry is not the gateway's: it must run tapgw mcp, or have the URL of /mcp.
func checkOurs(entry map[string]any) error {
	words := commandOf(entry)
	if len(words) > 1 && slices.Contains(words[1:], "mcp") {
		base, self := filepath.Base(words[0]), filepath.Base(os.Args[0])
		if base == entryName || base == entryName+".exe" || base == self {
			return nil
		}
	}
	address, _ := entry["url"].(string)
	if u, err := url.Parse(address); err == nil && len(words) == 0 &&
		(u.Path == "/mcp" || strings.HasPrefix(u.Path, "/mcp/s/")) {
		return nil
	}
	what := "has neither command nor url"
	if len(words) > 0 {
		what = fmt.Sprintf("runs %q", words[0])
	} else if address != "" {
		what = "has another URL"
	}
	return errors.New("the entry " + entryName + " is not the gateway's, it " + what + ": rename or remove it")
}

// commandOf returns the program of an entry and its arguments; nil if there is none.
func commandOf(entry map[string]any) (words []string) {
	for _, key := range []string{"command", "args"} {
		switch v := entry[key].(type) {
		case string:
			words = append(words, v)
		case []any:
			for _, word := range v {
				words = append(words, fmt.Sprint(word))
			}
		}
	}
	return words
}
