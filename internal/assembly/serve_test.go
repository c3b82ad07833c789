package assembly

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestLogHasNoSecret: what a provider or the runtime wrote may have a secret of any kind.
func TestLogHasNoSecret(t *testing.T) {
	var b bytes.Buffer
	NewLogger(&b, slog.LevelInfo).Info("running x --password hunter2", "error",
		errors.New("redis://:pw@h: refused"), "password", "hunter2", "text",
		"npm_0123456789abcdefghijABCDEFGHIJ012345")
	for _, secret := range []string{"hunter2", ":pw@", "npm_"} {
		if strings.Contains(b.String(), secret) {
			t.Errorf("the log has %s, want no %s in it", b.String(), secret)
		}
	}
}

// TestLogHasNoToken: what others wrote may have a token of a gateway, and the log has the
// placeholder of records.
func TestLogHasNoToken(t *testing.T) {
	token := "adm-0123456789abcdef0123456789abcdef"
	var b bytes.Buffer
	log := NewLogger(&b, slog.LevelInfo).With("with", token)
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
