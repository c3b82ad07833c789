package configs

import "slices"

// layer has the keys that one file sets in a profile.
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

// resolve checks [copilot] and makes the profiles from the layers of all files so far. The layer of
// the nearest file comes last.
func (c *Copilot) resolve(root *table, layers []layer) (faults Faults) {
	own := root.below(nil, "copilot")
	c.mergeShortKeys(own)
	c.checkTogether(own)
	docs := []*document{root.doc}
	c.Profiles = nil
	for _, l := range layers {
		p, ok := c.Profiles[l.name]
		if !ok {
			p = c.Profile
		}
		l.table.read(&p)
		p.checkTogether(l.table)
		if c.Profiles == nil {
			c.Profiles = map[string]Profile{}
		}
		c.Profiles[l.name] = p
		if !slices.Contains(docs, l.table.doc) {
			docs = append(docs, l.table.doc)
		}
	}
	for _, doc := range docs {
		faults = append(faults, doc.sorted()...)
	}
	return faults
}
