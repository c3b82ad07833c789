package gateway

import (
	"sync"

	"tapgw/internal/protocol"
)

// schemaCache holds the compiled schemas of the tools that are called. Tools hold their
// schemas as text, since compiled schemas take many times the memory and most tools are
// never called. Two generations approximate an LRU: when the young one is full it
// becomes the old one.
type schemaCache struct {
	mu         sync.Mutex // guards the fields below
	young, old map[*tool]*protocol.Schema
}

const schemasKept = 128

func (c *schemaCache) get(t *tool) (*protocol.Schema, error) {
	c.mu.Lock()
	s, ok := c.young[t]
	if !ok {
		if s, ok = c.old[t]; ok {
			c.put(t, s)
		}
	}
	c.mu.Unlock()
	if ok {
		return s, nil
	}
	s, err := protocol.CompileSchema(t.Parameters)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.put(t, s)
	c.mu.Unlock()
	return s, nil
}

// put adds to the young generation. Call with c.mu held.
func (c *schemaCache) put(t *tool, s *protocol.Schema) {
	if len(c.young) >= schemasKept || c.young == nil {
		c.old, c.young = c.young, make(map[*tool]*protocol.Schema)
	}
	c.young[t] = s
}
