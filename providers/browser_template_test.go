//go:build runtime

package providers_test

import (
	"path/filepath"
	"testing"
)

// TestBrowserTemplate runs the tests that the template browser has in its own language.
func TestBrowserTemplate(t *testing.T) {
	t.Parallel()
	runNode(t, filepath.Join("templates", "browser"), "node", "--test",
		filepath.Join("test", "helper.test.mjs"))
}
