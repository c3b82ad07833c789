package configs

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"tapgw/internal/match"
)

// MCPEvent is an entry of [[events]] in a provider file of kind mcp: what of a server's notifications becomes events of
// a stream. Resource or Log is set, not both. The first entry that fits a notification decides.
type MCPEvent struct {
	Resource string // the URI of a resource, or a glob of those that the server lists
	Read     bool   // whether an event has the resource's content, or only says that it has changed
	Log      string // the least level of log messages, one of [MCPLogLevels]
	Logger   string // a glob of the names of their loggers; "" for all
	Stream   string // "" for the provider's name
	Level    string // keep, surface or inject
	Filter   []FilterRule
}

// FilterRule gives an outcome to events of a stream whose text matches a JavaScript regular expression: keep, surface,
// inject or drop. The first rule that matches decides.
type FilterRule struct {
	Match, Outcome string
}

// MCPLogLevels are the levels of an MCP server's log messages, from the least to the most severe.
var MCPLogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

var (
	eventLevels    = []string{"keep", "surface", "inject"}
	filterOutcomes = []string{"keep", "surface", "inject", "drop"}
)

const (
	// maxEvents is also how many streams a provider may have.
	maxEvents      = 20
	maxFilterRules = 100
)

// IsURIGlob reports whether the resource of an [MCPEvent] is a glob and not one URI. A question mark alone makes none,
// because URIs have some.
func IsURIGlob(resource string) bool { return strings.ContainsAny(resource, "*[{") }

// readEvents reads [[events]] of a provider.
func (m *MCPUpstream) readEvents(t *table, provider string) {
	filtered := map[string]int{} // streams that have a filter, by their names as they count
	t.tables("events", []MCPEvent{}, func(sub *table) {
		e := MCPEvent{Read: true, Level: "surface"}
		sub.str("resource", &e.Resource, isResource)
		sub.boolean("read", &e.Read)
		sub.str("log", &e.Log, oneOf(MCPLogLevels...))
		sub.str("logger", &e.Logger, isLoggerGlob)
		sub.str("stream", &e.Stream, func(s string) error {
			if s != "" && !providerName.MatchString(s) {
				return fmt.Errorf("%q is not a stream's name: %s", s, nameRule)
			}
			return nil
		})
		sub.str("level", &e.Level, oneOf(eventLevels...))
		sub.tables("filter", []FilterRule{}, func(rule *table) { e.Filter = append(e.Filter, readFilterRule(rule)) })
		sub.rejectUnknown()
		e.check(sub)
		if len(e.Filter) > 0 {
			stream := strings.ToLower(cmp.Or(e.Stream, provider))
			if first, isTwice := filtered[stream]; isTwice {
				sub.fault("filter", "the stream %s has the filter of events[%d]: write the rules there", stream, first)
			}
			filtered[stream] = len(m.Events)
		}
		m.Events = append(m.Events, e)
	})
	if len(m.Events) > maxEvents {
		t.fault("events", "has %d entries: at most %d", len(m.Events), maxEvents)
	}
}

func readFilterRule(t *table) (r FilterRule) {
	t.str("match", &r.Match, func(s string) error {
		_, err := match.Compile(s)
		return err
	})
	t.str("outcome", &r.Outcome, oneOf(filterOutcomes...))
	for _, key := range []string{"match", "outcome"} {
		if t.isMissing(key) {
			t.fault(key, `is missing: a rule is { match = "behind=0", outcome = "drop" }`)
		}
	}
	t.rejectUnknown()
	return r
}

// check adds faults for keys that exclude or need each other.
func (e *MCPEvent) check(t *table) {
	if t.shape != nil {
		return
	}
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
			return fmt.Errorf("has the place {%s} of a pattern: write *, or ** for any number of segments", place)
		}
		rest = after
	}
}

func isLoggerGlob(s string) error {
	if _, err := path.Match(s, ""); err != nil || s == "" {
		return fmt.Errorf(`%q is not a glob of loggers' names, such as "db.*"`, s)
	}
	return nil
}
