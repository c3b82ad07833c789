package configs

import "slices"

// layer is what one file says of a profile.
type layer struct {
	name  string
	table *table
}

// layers are the profiles of a file.
func layers(root *table) (found []layer) {
	root.table("copilot").
		table("profile").
		eachTable(func(name string, sub *table) { found = append(found, layer{name, sub}) })
	return found
}

// resolve checks [copilot] and makes the profiles of what all files so far say of
// them: the nearest last.
func (c *Copilot) resolve(root *table, layers []layer) (faults Faults) {
	own := &table{doc: root.doc, path: append(slices.Clone(root.path), "copilot"), bad: map[string]bool{}}
	c.mergeShortKeys(own)
	c.check(own)
	docs := []*document{root.doc}
	c.Profiles = nil
	for _, l := range layers {
		p, ok := c.Profiles[l.name]
		if !ok {
			p = c.Profile
		}
		p.read(l.table)
		p.check(l.table)
		c.Profiles = put(c.Profiles, l.name, p)
		if !slices.Contains(docs, l.table.doc) {
			docs = append(docs, l.table.doc)
		}
	}
	for _, doc := range docs {
		faults = append(faults, doc.sorted()...)
	}
	return faults
}

// userKeys are the keys of a profile that are the user's alone to set: where the
// traffic goes and with whose rights.
var userKeys = []string{"provider", "github_token_env", "config_dir"}

// copyUserKeys copies from another profile the keys that only the user may set.
func (p *Profile) copyUserKeys(from Profile) {
	p.Provider, p.GitHubTokenEnv, p.ConfigDir = from.Provider, from.GitHubTokenEnv, from.ConfigDir
}
