package spans

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Metrics are the durations of operations, by the conventions that semconv.go names. The zero value
// is ready, and any goroutine may call its methods.
type Metrics struct{ all [len(histograms)]durations }

// Operation is the kind of operation that took a duration.
type Operation int

// Operations that are counted.
const (
	ExecuteTool Operation = iota // a call of a tool, with waits
	InvokeAgent                  // a turn
	MCPServer                    // a call of an MCP client
	MCPClient                    // a call's request to an MCP server
	// a session of an MCP client, of the revisions that have sessions
	MCPServerSession
	MCPClientSession // a session with an MCP server, of the same revisions
)

// histograms are the names, the texts and the buckets of the operations.
var histograms = [...]struct {
	name, help string
	bounds     []float64 // in seconds
}{
	ExecuteTool: {"gen_ai_execute_tool_duration_seconds", "Calls of tools of providers.",
		doubling(0.01, 14)},
	InvokeAgent: {"gen_ai_invoke_agent_duration_seconds", "Turns of sessions.", doubling(0.1, 13)},
	MCPServer: {"mcp_server_operation_duration_seconds", "Requests of MCP clients for calls.",
		mcpBounds},
	MCPClient: {"mcp_client_operation_duration_seconds", "Requests of calls to MCP servers.",
		mcpBounds},
	MCPServerSession: {
		"mcp_server_session_duration_seconds", "Sessions of MCP clients that have ended.",
		mcpBounds,
	},
	MCPClientSession: {
		"mcp_client_session_duration_seconds", "Sessions with MCP servers that have ended.",
		mcpBounds,
	},
}

var mcpBounds = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// Labels describe the kind of an operation; empty labels are left out. A label for a name that
// others choose freely is a known name or [Other].
type Labels struct {
	Agent, Tool, Method, Transport, Error string
}

// Other stands for unknown names, and for the names beyond maxSeries.
const Other = "_OTHER"

// maxSeries bounds the label sets of one histogram, without the sets of [Other].
const maxSeries = 300

func doubling(first float64, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = first * float64(int(1)<<i)
	}
	return list
}

// durations are the histograms of an operation, one for each set of labels.
type durations struct {
	mu     sync.Mutex // guards the fields below
	series map[Labels]*series
}

type series struct {
	counts [16]uint64 // by bucket; the last used one counts all longer durations
	sum    time.Duration
}

// Count counts an operation that has ended.
func (m *Metrics) Count(of Operation, l Labels, took time.Duration) {
	d := &m.all[of]
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.series[l]
	if s == nil && len(d.series) >= maxSeries {
		l.Agent, l.Tool = other(l.Agent), other(l.Tool)
		l.Error = other(l.Error)
		s = d.series[l]
	}
	if s == nil {
		if d.series == nil {
			d.series = map[Labels]*series{}
		}
		s = &series{}
		d.series[l] = s
	}
	i, _ := slices.BinarySearch(histograms[of].bounds, took.Seconds())
	s.counts[i]++
	s.sum += took
}

func other(name string) string {
	if name == "" {
		return ""
	}
	return Other
}

// Write writes the metrics in the text format of Prometheus. It leaves out metrics without a count.
func (m *Metrics) Write(w io.Writer) {
	for of, h := range histograms {
		m.all[of].write(w, h.name, h.help, h.bounds)
	}
}

func (d *durations) write(w io.Writer, name, help string, bounds []float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.series) == 0 {
		return
	}
	lines := make([]string, 0, len(d.series))
	for l, s := range d.series {
		var text strings.Builder
		labels := l.text()
		sum := uint64(0)
		for i, bound := range bounds {
			sum += s.counts[i]
			fmt.Fprintf(&text, "%s_bucket{%sle=%q} %d\n", name, labels,
				strconv.FormatFloat(bound, 'g', 6, 64), sum)
		}
		sum += s.counts[len(bounds)]
		fmt.Fprintf(&text, "%s_bucket{%sle=\"+Inf\"} %d\n", name, labels, sum)
		labels = strings.TrimSuffix(labels, ",")
		fmt.Fprintf(&text, "%s_sum{%s} %g\n%[1]s_count{%[2]s} %[4]d\n", name, labels,
			s.sum.Seconds(), sum)
		lines = append(lines, text.String())
	}
	slices.Sort(lines)
	_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s histogram\n%[3]s", name, help,
		strings.Join(lines, ""))
}

// labelText escapes a label's value.
var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (l Labels) text() string {
	var text strings.Builder
	for _, f := range []struct{ name, value string }{
		{agentName, l.Agent}, {toolName, l.Tool}, {mcpMethod, l.Method},
		{networkTransport, l.Transport}, {ErrorType, l.Error},
	} {
		if f.value != "" {
			text.WriteString(strings.ReplaceAll(f.name, ".",
				"_") + `="` + labelText.Replace(f.value) + `",`)
		}
	}
	return text.String()
}
