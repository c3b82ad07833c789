package protocol

import (
	"maps"
	"slices"
)

// checkParts checks the items of an array or the members of an object.
func (r *requirements) checkParts(v any, seen *evaluated) *mismatch {
	switch v := v.(type) {
	case []any:
		return r.checkItems(v, seen)
	case map[string]any:
		return r.checkMembers(v, seen)
	}
	return nil
}

func (r *requirements) checkItems(v []any, seen *evaluated) *mismatch {
	for i, s := range r.tuple[:min(len(r.tuple), len(v))] {
		if m := s.check(v[i], nil); m != nil {
			return m
		}
	}
	if r.items != nil {
		for _, e := range v[min(len(r.tuple), len(v)):] {
			if m := r.items.check(e, nil); m != nil {
				return m
			}
		}
	}
	if seen != nil {
		seen.tuple, seen.allItems = max(seen.tuple, len(r.tuple)), seen.allItems || r.items != nil
	}
	if m := r.checkContains(v, seen); m != nil {
		return m
	}
	switch {
	case r.minItems != nil && len(v) < *r.minItems:
		return mismatchf("minItems: array length %d is less than %d", len(v), *r.minItems)
	case r.maxItems != nil && len(v) > *r.maxItems:
		return mismatchf("maxItems: array length %d is greater than %d", len(v), *r.maxItems)
	}
	if r.unique {
		at := make(map[string]int, len(v))
		for i, e := range v {
			key := string(appendCanonical(nil, e))
			if first, twice := at[key]; twice {
				return mismatchf("uniqueItems: array items %d and %d are equal", first, i)
			}
			at[key] = i
		}
	}
	return nil
}

func (r *requirements) checkContains(v []any, seen *evaluated) *mismatch {
	if r.contains == nil {
		return nil
	}
	n := 0
	for i, e := range v {
		if r.contains.check(e, nil) == nil {
			n++
			seen.item(i)
		}
	}
	least := 1
	if r.minContains != nil {
		least = *r.minContains
	}
	switch {
	case n == 0 && least > 0:
		return mismatchf("contains: %s does not have an item that fits", display(v))
	case n < least:
		return mismatchf("minContains: %d items fit, less than %d", n, least)
	case r.maxContains != nil && n > *r.maxContains:
		return mismatchf("maxContains: %d items fit, more than %d", n, *r.maxContains)
	}
	return nil
}

func (r *requirements) checkMembers(v map[string]any, seen *evaluated) *mismatch {
	for _, p := range r.members {
		part, there := v[p.name]
		if !there {
			continue
		}
		if m := p.check(part, nil); m != nil {
			return m
		}
		seen.member(p.name)
	}
	if m := r.checkNames(v, seen); m != nil {
		return m
	}
	switch {
	case r.minMembers != nil && len(v) < *r.minMembers:
		return mismatchf("minProperties: object has %d properties, less than %d", len(v), *r.minMembers)
	case r.maxMembers != nil && len(v) > *r.maxMembers:
		return mismatchf("maxProperties: object has %d properties, greater than %d", len(v), *r.maxMembers)
	}
	if lack := missing(v, r.required); len(lack) > 0 {
		return mismatchf("required: missing properties: %q", lack)
	}
	for _, n := range r.dependencies {
		if _, there := v[n.name]; there {
			if lack := missing(v, n.needs); len(lack) > 0 {
				return mismatchf("dependentRequired[%q]: missing properties %q", n.name, lack)
			}
		}
	}
	for _, s := range r.dependentSchemas {
		if _, there := v[s.name]; there {
			if m := s.check(v, seen); m != nil {
				return m
			}
		}
	}
	return nil
}

// checkNames checks patternProperties, additionalProperties and propertyNames.
func (r *requirements) checkNames(v map[string]any, seen *evaluated) *mismatch {
	if r.patternMembers == nil && r.additional == nil && r.propertyNames == nil {
		return nil
	}
	var extra []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		known := r.memberNames[name]
		for _, p := range r.patternMembers {
			if !p.pattern.MatchString(name) {
				continue
			}
			known = true
			seen.member(name)
			if m := p.check(v[name], nil); m != nil {
				return m
			}
		}
		switch {
		case known || r.additional == nil:
		case r.additional.rejectsAll:
			extra = append(extra, name)
		default:
			seen.member(name)
			if m := r.additional.check(v[name], nil); m != nil {
				return m
			}
		}
		if r.propertyNames != nil {
			if m := r.propertyNames.check(name, nil); m != nil {
				return m
			}
		}
	}
	if extra != nil {
		return mismatchf("unexpected additional properties %q", extra)
	}
	return nil
}

// checkRest checks unevaluatedItems and unevaluatedProperties.
func (r *requirements) checkRest(v any, seen *evaluated) *mismatch {
	switch v := v.(type) {
	case []any:
		if r.unevaluatedItems == nil || seen.allItems {
			return nil
		}
		for i := seen.tuple; i < len(v); i++ {
			if seen.items[i] {
				continue
			}
			if m := r.unevaluatedItems.check(v[i], nil); m != nil {
				return m
			}
		}
		seen.allItems = true
	case map[string]any:
		if r.unevaluatedMembers == nil || seen.allMembers {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if seen.members[name] {
				continue
			}
			if m := r.unevaluatedMembers.check(v[name], nil); m != nil {
				return m
			}
		}
		seen.allMembers = true
	}
	return nil
}

func missing(v map[string]any, names []string) (lack []string) {
	for _, name := range names {
		if _, there := v[name]; !there {
			lack = append(lack, name)
		}
	}
	return lack
}
