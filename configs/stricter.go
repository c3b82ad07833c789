package configs

import (
	"path/filepath"
	"slices"
)

// tightenAt applies what the tapgw.toml of projects that hold a directory say more strictly, and returns the nearest
// that did; "" for none. counts is a file that counts as a whole, and is left out. Of a file with faults, the keys
// without them count.
func (p *Permissions) tightenAt(dir, counts string) (nearest string) {
	dir, err := realDir(dir)
	if err != nil {
		return ""
	}
	for {
		for _, name := range projectDirs {
			file := filepath.Join(dir, name, configFile)
			if file == counts {
				continue
			}
			data, err := readFile(file)
			if err != nil {
				continue
			}
			var c Config
			_, root := open(file, data)
			if root == nil {
				continue // [Files.Notes] has the fault
			}
			c.read(root)
			before := *p
			p.tighten(c.Copilot.Permissions)
			if nearest == "" && !isEqual(before, *p) {
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

// tighten makes p as strict as another one where that is stricter. An empty kind of the other says nothing.
func (p *Permissions) tighten(by Permissions) {
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
