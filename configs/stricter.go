package configs

import (
	"path/filepath"
	"slices"
	"strings"
)

// TightenAt makes the permissions as strict as each project's tapgw.toml in a directory and above
// it, where the file is stricter. It returns the nearest file that changed something, else "". Such
// a file needs no trust, because it allows nothing. In a file with faults, the keys and patterns
// without faults count.
func (p *Permissions) TightenAt(dir string) (nearest string) {
	dir, err := realDir(dir)
	if err != nil {
		return ""
	}
	for {
		for _, name := range projectDirs {
			file := filepath.Join(dir, name, configFile)
			if p.tightenBy(file) && nearest == "" {
				nearest = file
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nearest
		}
		dir = up
	}
}

// tightenBy applies the stricter permissions of one tapgw.toml, and reports whether there are any.
func (p *Permissions) tightenBy(file string) bool {
	data, err := readFile(file)
	if err != nil {
		return false
	}
	var c Config
	_, root := open(file, data)
	if root == nil {
		return false // [Files.Notes] has the fault
	}
	root.read(&c)
	before := *p
	p.Tighten(c.Copilot.Permissions)
	return !isEqual(before, *p)
}

// stricter lists, for people, the permissions of a project's tapgw.toml that count without trust;
// "" if it has no such permission.
func (f Files) stricter(file string) string {
	dir, name := filepath.Split(file)
	c, err := f.Load()
	if err != nil || name != configFile || !slices.Contains(projectDirs, filepath.Base(dir)) {
		return ""
	}
	with := c
	if !with.Copilot.Permissions.tightenBy(file) {
		return ""
	}
	return "; stricter than yours, and counting without trust: " + strings.Join(Changed(c, with),
		", ")
}

// Tighten makes p as strict as another Permissions where the other is stricter. An empty kind of
// the other has no effect.
func (p *Permissions) Tighten(by Permissions) {
	// From the widest to the strictest. Neither ask nor cwd is stricter than the other: p's own
	// value stays.
	rank := map[string]int{Allow: 1, Ask: 2, CWD: 2, Deny: 3}
	for _, kind := range []struct{ own, other *string }{
		{&p.Shell, &by.Shell}, {&p.Write, &by.Write}, {&p.Read, &by.Read}, {&p.URL, &by.URL},
		{&p.MCP, &by.MCP}, {&p.CustomTool, &by.CustomTool}, {&p.Memory, &by.Memory},
		{&p.Hook, &by.Hook},
	} {
		if rank[*kind.other] > rank[*kind.own] {
			*kind.own = *kind.other
		}
	}
	p.DenyCommands = union(p.DenyCommands, by.DenyCommands)
	p.DenyPaths = union(p.DenyPaths, by.DenyPaths)
	p.DenyURLs = union(p.DenyURLs, by.DenyURLs)
}

// union returns a new list with the elements of both lists.
func union(a, b []string) []string {
	list := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
