package spans

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMetricsAreWritten(t *testing.T) {
	var m Metrics
	var got strings.Builder
	if m.Write(&got); got.String() != "" {
		t.Errorf("before anything happened: got %q, want nothing", got.String())
	}
	for _, took := range []time.Duration{10 * time.Millisecond, 11 * time.Millisecond, time.Hour} {
		m.Count(MCPServer, Labels{Method: MCPCall, Tool: "a\"\\\nb", Transport: "tcp"}, took)
	}
	m.Write(&got)
	labels := `{gen_ai_tool_name="a\"\\\nb",mcp_method_name="tools/call",network_transport="tcp"`
	const name = "\nmcp_server_operation_duration_seconds"
	for _, want := range []string{
		"# TYPE mcp_server_operation_duration_seconds histogram", name + "_bucket" + labels +
			`,le="0.01"} 1`,
		name + "_bucket" + labels + `,le="0.02"} 2`, name + "_bucket" + labels + `,le="300"} 2`,
		name + "_bucket" + labels + `,le="+Inf"} 3`, name + "_sum" + labels + "} 3600.021",
		name + "_count" + labels + "} 3",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("got\n%s\nwant %s", got.String(), want)
		}
	}
	m.Count(ExecuteTool, Labels{Tool: "x"}, time.Second)
	got.Reset()
	if m.Write(&got); !strings.Contains(got.String(), `le="81.92"} 1`) {
		t.Errorf("got\n%s\nwant the bounds that double to 81.92", got.String())
	}
}

// However many names come, a histogram stays small, and counts all.
func TestMetricsAreBounded(t *testing.T) {
	var m Metrics
	const n = 10_000
	for i := range n {
		name := fmt.Sprint("tool", i)
		m.Count(ExecuteTool, Labels{Tool: name, Error: name}, time.Second)
		m.Count(InvokeAgent, Labels{Agent: name}, time.Second)
	}
	for name, d := range map[string]*durations{"tools": &m.all[ExecuteTool],
		"agents": &m.all[InvokeAgent]} {
		sum := uint64(0)
		for _, s := range d.series {
			for _, count := range s.counts {
				sum += count
			}
		}
		if len(d.series) != maxSeries+1 || sum != n {
			t.Errorf("%s: %d series count %d, want %d and %d", name, len(d.series), sum,
				maxSeries+1, n)
		}
	}
}

func BenchmarkCountTool(b *testing.B) {
	var m Metrics
	b.ReportAllocs()
	for b.Loop() {
		m.Count(ExecuteTool, Labels{Tool: "greet"}, time.Millisecond)
	}
}
