//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// TestHello writes the template in each language beside a gateway with a Copilot session, as a
// newcomer does. The model is offered its tool once tapgw new ends, and calls it.
func TestHello(t *testing.T) {
	t.Parallel()
	for _, lang := range []string{"go", "node", "python"} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			m := model(t, scriptmodel.Calls)
			h.serve()
			session := h.copilot(m)
			h.newProvider(lang)
			if got := h.ask(session, `call:greet_mine {"name":"Ada"}`); got != "Hello, Ada!" {
				t.Errorf("the session answers %q, want %q", got, "Hello, Ada!")
			}
			first, second := request(t, m, 1), request(t, m, 2)
			if !first.HasTool("greet_mine") ||
				!strings.Contains(string(first.Body), "Greet someone by name") {
				t.Errorf("the model is offered %q, want greet_mine with its description",
					first.ToolNames())
			}
			if second.LastResult() != "Hello, Ada!" {
				t.Errorf("the model is told %q, want %q", second.LastResult(), "Hello, Ada!")
			}
		})
	}
}
