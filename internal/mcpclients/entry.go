package mcpclients

import (
	"encoding/json"
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

// The gateway's entry in a client's file: its members, old and new.

// entryName is the name of the gateway in the clients' files.
const entryName = "tapgw"

// member is a key of an entry and its value: a string, a list of strings, a boolean, members, or a
// value from a client's file: [json.RawMessage], or in TOML the whole pair as rawPair.
type member struct {
	key   string
	value any
}

// members are the members of an object or a table, in their order.
type members []member

type rawPair string

// entry is the gateway's entry in a client's file.
type entry struct {
	needed   members // members without which it does not work
	defaults members // members of a new entry, which the user may change later
}

func (e entry) all() members { return slices.Concat(e.needed, e.defaults) }

// ownKeys are the keys that an update sets or removes. Others are the user's.
var ownKeys = []string{"type", "command", "args", "env", "environment", "url", "headers",
	"bearer_token_env_var"}

// update returns the members of an entry that replaces an old one: the members that it needs now,
// and the user's additions. Changed is false if the old entry has the same members. update returns
// an error if the old entry belongs to another program.
func (e entry) update(old map[string]any, extras members) (list members, changed bool, err error) {
	if err := checkOurs(old); err != nil {
		return nil, false, err
	}
	list = e.withAdded(old)
	was, now := map[string]any{}, list.values()
	for _, key := range ownKeys {
		if v, ok := old[key]; ok && !isEmpty(v) {
			was[key] = v
		}
	}
	for _, m := range extras {
		if !slices.Contains(ownKeys, m.key) {
			list = append(list, m)
		}
	}
	return list, !reflect.DeepEqual(was, now), nil
}

// withAdded returns our members, with the variables or headers that the user has added to the old
// entry.
func (e entry) withAdded(old map[string]any) members {
	list := slices.Clone(e.needed)
	at := func(key string) int {
		return slices.IndexFunc(list, func(m member) bool { return m.key == key })
	}
	for _, key := range []string{"env", "environment", "headers"} {
		if (key == "headers") != (at("url") >= 0) {
			continue
		}
		added, _ := old[key].(map[string]any)
		var all members
		for _, name := range slices.Sorted(maps.Keys(added)) {
			if name != statedir.EnvHome && name != authorization {
				all = append(all, member{name, fmt.Sprint(added[name])})
			}
		}
		if i := at(key); len(all) > 0 && i >= 0 {
			list[i].value = slices.Concat(list[i].value.(members), all)
		} else if len(all) > 0 {
			list = append(list, member{key, all})
		}
	}
	return list
}

// values returns members as a parser of the client's file returns them.
func (list members) values() (values map[string]any) {
	data, err := json.Marshal(list)
	if err == nil {
		err = json.Unmarshal(data, &values)
	}
	if err != nil {
		panic(fmt.Sprint("an entry is no JSON: ", err)) // it has strings
	}
	return values
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

// checkOurs returns an error if an entry is not the gateway's: it must run tapgw mcp, or have the
// URL of /mcp.
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
	return errors.New("the entry " + entryName + " is not the gateway's, it " + what +
		": rename or remove it")
}

// commandOf returns the program of an entry and its arguments, or nil if the entry starts no
// program.
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
