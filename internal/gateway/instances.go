package gateway

import (
	"encoding/json"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

// targetParam is the parameter that chooses an instance. See docs/protocol.md,
// "Instances".
const targetParam = "target"

// metaTool is the name of the tool that lists a provider's instances.
func metaTool(provider string) string {
	const maxName = 64 - len("list_") - len("_instances") // a tool name has at most 64 bytes
	return "list_" + strings.ReplaceAll(provider[:min(maxName, len(provider))], ".",
		"_") + "_instances"
}

// listInstances answers a meta-tool: the instances of a provider as a JSON array. See
// docs/protocol.md, "Instances".
func (s *Session) listInstances(provider string) protocol.Raw {
	type instance struct {
		Instance     string       `json:"instance"`
		Metadata     protocol.Raw `json:"metadata"`
		LastActiveAt time.Time    `json:"lastActiveAt"`
	}
	list := []instance{}
	s.g.mu.Lock()
	for _, b := range s.bindings {
		p := b.provider
		if p.name != provider || p.instance == "" {
			continue
		}
		metadata := p.metadata
		if metadata == nil {
			metadata = protocol.Raw("{}")
		}
		list = append(list, instance{p.instance, metadata, time.Unix(0, p.lastActive.Load()).UTC()})
	}
	s.g.mu.Unlock()
	data, err := json.Marshal(list)
	if err != nil {
		return protocol.Raw("[]")
	}
	return data
}

// withProperty adds a property to a schema and makes it the schema of an object. All other
// members stay as they are.
func withProperty(schema protocol.Raw, name string, property []byte) protocol.Raw {
	member := append(protocol.AppendText(nil, name), ':')
	member = append(member, property...)
	insert := func(object protocol.Raw, member []byte) protocol.Raw {
		empty := true
		_ = protocol.Object(object, func(string, protocol.Raw) error { empty = false; return nil })
		out := append(protocol.Raw{'{'}, member...)
		if !empty {
			out = append(out, ',')
		}
		return append(out, object[1:]...)
	}
	out, found, typed := protocol.Raw{'{'}, false, false
	_ = protocol.Object(schema, func(key string, v protocol.Raw) error {
		typed = typed || key == "type"
		if key == "properties" && v.Kind() == '{' {
			v, found = insert(v, member), true
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(protocol.AppendText(out, key), ':')
		out = append(out, v...)
		return nil
	})
	out = append(out, '}')
	if !found {
		out = insert(out, append([]byte(`"properties":{`), append(member, '}')...))
	}
	if !typed {
		out = insert(out, []byte(`"type":"object"`))
	}
	return out
}

// hasProperty reports whether a schema has a property in its properties.
func hasProperty(schema protocol.Raw, name string) bool {
	has := false
	_ = protocol.Object(schema, func(key string, v protocol.Raw) error {
		if key == "properties" && v.Kind() == '{' {
			_ = protocol.Object(v, func(p string, _ protocol.Raw) error {
				has = has || p == name
				return nil
			})
		}
		return nil
	})
	return has
}

// splitTarget splits arguments into target and the rest. ok is false when target is neither
// a string nor null.
func splitTarget(args protocol.Raw) (target string, rest protocol.Raw, ok bool) {
	rest, ok = protocol.Raw{'{'}, true
	_ = protocol.Object(args, func(name string, v protocol.Raw) error {
		if name == targetParam {
			target, ok = protocol.Text(v)
			ok = ok || v.Kind() == 'n'
			return nil
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(protocol.AppendText(rest, name), ':')
		rest = append(rest, v...)
		return nil
	})
	return target, append(rest, '}'), ok
}
