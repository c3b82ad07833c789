package main

import (
	"bytes"
	"testing"

	"tapgw/internal/cli"
)

// TestLogLinesForPeopleAndPrograms: with --json whatever is in a log is an object.
func TestLogLinesForPeopleAndPrograms(t *testing.T) {
	for line, want := range map[string][2]string{
		`{"time":"odd","level":"WARN","msg":"b\u001b[2Jad","n":1,"o":{"a":"b"}}`: {"odd  WARN   bad  n=1  o={\"a\":\"b\"}\n", `{"time":"odd","level":"WARN","msg":"b\u001b[2Jad","n":1,"o":{"a":"b"}}` + "\n"},
		"panic: \x1b[1mno": {"panic: no\n", `{"msg":"panic: \u001b[1mno"}` + "\n"},
		`{"msg":"cut`:      {"{\"msg\":\"cut\n", `{"msg":"{\"msg\":\"cut"}` + "\n"},
		`["msg"]`:          {"[\"msg\"]\n", `{"msg":"[\"msg\"]"}` + "\n"},
	} {
		for i, asJSON := range []bool{false, true} {
			var b bytes.Buffer
			if err := printLog(&cli.Output{W: &b, JSON: asJSON}, line); err != nil ||
				b.String() != want[i] {
				t.Errorf("%q, JSON %v: %q, %v, want no error and %q", line, asJSON, b.String(), err,
					want[i])
			}
		}
	}
}
