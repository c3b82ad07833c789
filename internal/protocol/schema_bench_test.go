package protocol

import "testing"

// A check is in the path of every call.
func BenchmarkCheck(b *testing.B) {
	for _, bench := range []struct{ name, schema, args string }{
		{"plain", `{"type":"object","properties":{"path":{"type":"string"},` +
			`"line":{"type":"integer","minimum":1},"all":{"type":"boolean"}},"required":["path"]}`,
			`{"path":"internal/protocol/schema.go","line":30,"all":true}`},
		{"nested", `{"type":"object","properties":{"path":{"type":"string","minLength":1},` +
			`"edits":{"type":"array","minItems":1,"items":{"type":"object","properties":{` +
			`"old":{"type":"string"},"new":{"type":"string"},"line":{"type":["integer","null"]}},` +
			`"required":["old","new"],"additionalProperties":false}},"mode":{"enum":["a","b"]}},` +
			`"required":["path","edits"],"additionalProperties":false}`,
			`{"path":"a/b.go","mode":"b","edits":[{"old":"func a() {\n}","new":"func b() {\n}",` +
				`"line":3},{"old":"x","new":"y","line":null},{"old":"p","new":"q"}]}`},
	} {
		b.Run(bench.name, func(b *testing.B) {
			s := compileT(b, bench.schema)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Check(Raw(bench.args)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
