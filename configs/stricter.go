package configs

import (
	"path/filepath"
	"slices"
	"strings"
)

// TightenAt applies what each tapgw.toml of a project says more strictly, in a directory and above it, and returns the
// nearest file that did; "" for none. No trust is needed, for nobody is harmed. Of a file with faults, the keys without
// them count.
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

// tightenBy applies what one tapgw.toml says more strictly, and reports whether it says any such thing.
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
	c.read(root)
	before := *p
	p.Tighten(c.Copilot.Permissions)
	return !isEqual(before, *p)
}

// stricter says which permissions of a project's tapgw.toml count though the file does not; "" for none.
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
	return "; stricter than yours, and counting without trust: " + strings.Join(Changed(c, with), ", ")
}

// Tighten makes p as strict as another one where that is stricter. An empty kind of the other says nothing.
func (p *Permissions) Tighten(by Permissions) {
	// From the widest to the strictest. Of ask and cwd none is stricter: p's own stays.
	rank := map[string]int{Allow: 1, Ask: 2, CWD: 2, Deny: 3}
	for _, kind := range []struct{ own, other *string }{
		{&p.Shell, &by.Shell}, {&p.Write, &by.Write}, {&p.Read, &by.Read}, {&p.URL, &by.URL}, {&p.MCP, &by.MCP},
		{&p.CustomTool, &by.CustomTool}, {&p.Memory, &by.Memory}, {&p.Hook, &by.Hook},
	} {
		if rank[*kind.other] > rank[*kind.own] {
			*kind.own = *kind.other
		}
	}
	p.DenyCommands = union(p.DenyCommands, by.DenyCommands)
	p.DenyPaths = union(p.DenyPaths, by.DenyPaths)
	p.DenyURLs = union(p.DenyURLs, by.DenyURLs)
}

// union returns a new list of what is in one of two lists.
func union(a, b []string) []string {
	list := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}
