package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
			if err := printLog(&cli.Output{W: &b, JSON: asJSON}, line); err != nil || b.String() != want[i] {
				t.Errorf("%q, JSON %v: %q, %v, want no error and %q", line, asJSON, b.String(), err, want[i])
			}
		}
	}
}

// TestLogHasNoSecret: what a provider or the runtime wrote may have a secret of any kind.
func TestLogHasNoSecret(t *testing.T) {
	var b bytes.Buffer
	newLogger(&b, slog.LevelInfo).Info("running x --password hunter2", "error", errors.New("redis://:pw@h: refused"),
		"password", "hunter2", "text", "npm_0123456789abcdefghijABCDEFGHIJ012345")
	for _, secret := range []string{"hunter2", ":pw@", "npm_"} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("the log has %s, want no %s in it", b.String(), secret)
		}
	}
}

// TestLogHasNoToken: what others wrote may have a token of a gateway, and the log has the placeholder of records.
func TestLogHasNoToken(t *testing.T) {
	token := "adm-0123456789abcdef0123456789abcdef"
	var b bytes.Buffer
	log := newLogger(&b, slog.LevelInfo).With("with", token)
	log.Info("said "+token, "text", token, "error", fmt.Errorf("reading: %w", errors.New(token)),
		slog.Group("group", "list", []string{"a", token}), "count", 3)
	got := b.String()
	if strings.Contains(got, token) || strings.Count(got, "<token>") != 5 {
		t.Errorf("the log has %s, want <token> in place of each token", got)
	}
	if !strings.Contains(got, `"count":3`) || !strings.Contains(got, `"level":"INFO"`) {
		t.Errorf("the log has %s, want the rest as it was", got)
	}
}
