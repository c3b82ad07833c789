package configs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// MCPEvent is an entry of [[events]] in a provider file of kind mcp: a rule that turns a server's
// notifications into events of a stream. Either Resource or Log is set. The first entry that fits a
// notification decides.
type MCPEvent struct {
	// Resource is the URI of a resource, or a glob of resources that the server lists. With Read,
	// an event has the resource's content; without it, it only says that the resource has changed.
	Resource string `toml:"resource" is:"resource"`
	Read     bool   `toml:"read" default:"true"`
	// Log is the least level of log messages, one of [MCPLogLevels], Logger a glob of the names of
	// their loggers; "" for all.
	Log    string       `toml:"log" is:"logLevel"`
	Logger string       `toml:"logger" is:"loggerGlob"`
	Stream string       `toml:"stream" is:"eventStream?"` // "" for the provider's name
	Level  string       `toml:"level" of:"keep,surface,inject" default:"surface"`
	Filter []FilterRule `toml:"filter"`
}

// FilterRule gives an outcome to events of a stream whose text matches a JavaScript regular
// expression: keep, surface, inject or drop. The first rule that matches decides.
type FilterRule struct {
	Match   string `toml:"match" is:"pattern" need:"-"`
	Outcome string `toml:"outcome" of:"keep,surface,inject,drop" need:"-"`
}

// MCPLogLevels are the levels of an MCP server's log messages, from the least to the most severe.
var MCPLogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

const (
	// maxEvents is also how many streams a provider may have.
	maxEvents      = 20
	maxFilterRules = 100
)

// IsURIGlob reports whether the resource of an [MCPEvent] is a glob and not one URI. A question
// mark does not make a glob, because URIs have question marks too.
func IsURIGlob(resource string) bool { return strings.ContainsAny(resource, "*[{") }

// checkEvents adds a fault for a stream of a provider that has two filters.
func (m *MCPUpstream) checkEvents(t *table, provider string) {
	filtered := map[string]int{} // streams that have a filter, by their names as they count
	for i, e := range m.Events {
		if len(e.Filter) == 0 {
			continue
		}
		stream := strings.ToLower(cmp.Or(e.Stream, provider))
		if first, isTwice := filtered[stream]; isTwice {
			t.fault(fmt.Sprintf("events.[%d].filter", i),
				"the stream %s has the filter of events[%d]: write the rules there", stream, first)
		}
		filtered[stream] = i
	}
	if len(m.Events) > maxEvents {
		t.fault("events", "has %d entries: at most %d", len(m.Events), maxEvents)
	}
}

func (r *FilterRule) check(t *table) {
	for _, key := range []string{"match", "outcome"} {
		if !t.has(key) {
			t.fault(key, `is missing: a rule is { match = "behind=0", outcome = "drop" }`)
		}
	}
}

// check adds faults for keys that exclude or need each other.
func (e *MCPEvent) check(t *table) {
	isResource, isLog := t.has("resource"), t.has("log")
	switch {
	case isResource && isLog:
		t.fault("log", "can't stand beside resource: an entry is about one of them")
	case !isResource && !isLog:
		t.fault("resource", "is missing, or log: what the events are about")
	}
	e.Read = e.Read && isResource
	if t.has("read") && !isResource {
		t.fault("read", "goes with resource")
	}
	if t.has("logger") && !isLog {
		t.fault("logger", "goes with log")
	}
	if len(e.Filter) > maxFilterRules {
		t.fault("filter", "has %d rules: at most %d", len(e.Filter), maxFilterRules)
	}
}

func isResource(s string) error {
	if s == "" {
		return errors.New("must be a URI, or a glob of URIs")
	}
	if err := noNUL(s); err != nil || !IsURIGlob(s) {
		return err
	}
	if !doublestar.ValidatePattern(s) {
		return fmt.Errorf("%q is not a glob: a bracket, brace or backslash has no end", s)
	}
	for rest := s; ; {
		_, after, isThere := strings.Cut(rest, "{")
		if !isThere {
			return nil
		}
		place, _, _ := strings.Cut(after, "}")
		if !strings.Contains(place, ",") {
			return fmt.Errorf(
				"has the place {%s} of a pattern: write *, or ** for any number of segments", place)
		}
		rest = after
	}
}
