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

// Metrics are the durations of operations, by the conventions that semconv.go names. The zero value is ready.
type Metrics struct {
	ExecuteTool Durations // calls of tools, with waits
	InvokeAgent Durations // turns
	MCPServer   Durations // calls of MCP clients
	MCPClient   Durations // what calls ask of MCP servers

	MCPServerSession Durations // of MCP clients of the revisions that have sessions
	MCPClientSession Durations // with MCP servers, of the same revisions
}

// Labels say of what kind an operation was; empty ones are left out. Names that others choose freely must be known
// ones, or be [Other].
type Labels struct {
	Agent, Tool, Method, Transport, Error string
}

// Other stands for names that nobody offers, and for those beyond maxSeries.
const Other = "_OTHER"

// maxSeries bounds the label sets of one histogram, but for those of [Other].
const maxSeries = 300

// Buckets, in seconds.
var (
	mcpBounds   = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
	toolBounds  = doubling(0.01, 14)
	agentBounds = doubling(0.1, 13)
)

func doubling(first float64, n int) []float64 {
	list := make([]float64, n)
	for i := range list {
		list[i] = first * float64(int(1)<<i)
	}
	return list
}

// Durations are histograms of how long operations took, one for each set of labels. Any goroutine may call its methods.
type Durations struct {
	mu     sync.Mutex
	series map[Labels]*series
}

type series struct {
	counts [16]uint64 // by bucket; the last one used is that of everything longer
	sum    time.Duration
}

// observe counts an operation, by the bounds of the histogram that it is counted in.
func (d *Durations) observe(bounds []float64, l Labels, took time.Duration) {
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
	i, _ := slices.BinarySearch(bounds, took.Seconds())
	s.counts[i]++
	s.sum += took
}

func other(name string) string {
	if name == "" {
		return ""
	}
	return Other
}

// CountTool counts a call of a tool.
func (m *Metrics) CountTool(l Labels, took time.Duration) { m.ExecuteTool.observe(toolBounds, l, took) }

// CountTurn counts a turn.
func (m *Metrics) CountTurn(l Labels, took time.Duration) {
	m.InvokeAgent.observe(agentBounds, l, took)
}

// CountMCPServer counts a call of an MCP client.
func (m *Metrics) CountMCPServer(l Labels, took time.Duration) {
	m.MCPServer.observe(mcpBounds, l, took)
}

// CountMCPClient counts what a call asked of an MCP server.
func (m *Metrics) CountMCPClient(l Labels, took time.Duration) {
	m.MCPClient.observe(mcpBounds, l, took)
}

// CountMCPServerSession counts a session of an MCP client that has ended.
func (m *Metrics) CountMCPServerSession(l Labels, took time.Duration) {
	m.MCPServerSession.observe(mcpBounds, l, took)
}

// CountMCPClientSession counts a session with an MCP server that has ended.
func (m *Metrics) CountMCPClientSession(l Labels, took time.Duration) {
	m.MCPClientSession.observe(mcpBounds, l, took)
}

// Write writes the metrics in the text format of Prometheus. Those that nothing was counted in are left out.
func (m *Metrics) Write(w io.Writer) {
	for _, h := range []struct {
		name, help string
		bounds     []float64
		d          *Durations
	}{
		{"gen_ai_execute_tool_duration_seconds", "Calls of tools of providers.", toolBounds, &m.ExecuteTool},
		{"gen_ai_invoke_agent_duration_seconds", "Turns of sessions.", agentBounds, &m.InvokeAgent},
		{"mcp_server_operation_duration_seconds", "Requests of MCP clients for calls.", mcpBounds, &m.MCPServer},
		{"mcp_client_operation_duration_seconds", "Requests of calls to MCP servers.", mcpBounds, &m.MCPClient},
		{"mcp_server_session_duration_seconds", "Sessions of MCP clients that have ended.", mcpBounds,
			&m.MCPServerSession},
		{"mcp_client_session_duration_seconds", "Sessions with MCP servers that have ended.", mcpBounds,
			&m.MCPClientSession},
	} {
		h.d.write(w, h.name, h.help, h.bounds)
	}
}

func (d *Durations) write(w io.Writer, name, help string, bounds []float64) {
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
			fmt.Fprintf(&text, "%s_bucket{%sle=%q} %d\n", name, labels, strconv.FormatFloat(bound, 'g', 6, 64), sum)
		}
		sum += s.counts[len(bounds)]
		fmt.Fprintf(&text, "%s_bucket{%sle=\"+Inf\"} %d\n", name, labels, sum)
		labels = strings.TrimSuffix(labels, ",")
		fmt.Fprintf(&text, "%s_sum{%s} %g\n%[1]s_count{%[2]s} %[4]d\n", name, labels, s.sum.Seconds(), sum)
		lines = append(lines, text.String())
	}
	slices.Sort(lines)
	_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %[1]s histogram\n%[3]s", name, help, strings.Join(lines, ""))
}

// labelText escapes a label's value.
var labelText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func (l Labels) text() string {
	var text strings.Builder
	for _, f := range []struct{ name, value string }{
		{agentName, l.Agent}, {toolName, l.Tool}, {mcpMethod, l.Method}, {networkTransport, l.Transport},
		{ErrorType, l.Error},
	} {
		if f.value != "" {
			text.WriteString(strings.ReplaceAll(f.name, ".", "_") + `="` + labelText.Replace(f.value) + `",`)
		}
	}
	return text.String()
}
