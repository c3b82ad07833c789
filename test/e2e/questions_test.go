//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// phone is a provider that answers what it is asked, unless that is about mine. Then it says how it
// ended.
const phone = `import asyncio
from tapgw import Provider, Question

async def ask(q: Question) -> None:
    try:
        if "mine" in q.message + q.detail:
            await asyncio.get_running_loop().create_future()
        elif q.kind == "permission":
            await q.answer(decision="once", person="Anna\x1b[2K")
        else:
            await q.answer(text=q.choices[1], person="Anna")
    except asyncio.CancelledError:
        await p.push(f"it was {q.end.reason} by {q.end.by}", session=q.session)

p = Provider("phone", on_question=ask)
p.main()
`

// phoneFile is its provider file, with or without the grant.
func (h *home) phoneFile(grants string) {
	h.t.Helper()
	h.put("providers/phone.toml",
		fmt.Sprintf("kind = \"command\"\ncommand = [\"/usr/bin/python3\", \"-B\", %q]\n%s\n"+
			"[env]\nPYTHONPATH = %q\n", h.path("phone.py"), grants,
			filepath.Join(repo, "providers", "python")))
}

// TestProviderAnswers lets a provider in Python answer for the user: the permission that a real
// session needs, and what its model asks. The user may be first, and the provider hears of it.
// Without the grant in its file, it hears nothing.
func TestProviderAnswers(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	if err := os.Mkdir(h.path("providers"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.put("phone.py", phone)
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"ask\"\n")
	h.phoneFile(`grants = ["questions"]`)
	h.serve("--config", h.path("tapgw.toml"))
	session := h.copilot(m)
	h.waitTimeline(session, "provider phone joined")
	shell := func(command string) string {
		return fmt.Sprintf(`call:bash {"command":%q,"description":"try it"}`, command)
	}

	if got := h.ask(session, shell("echo o''ne")); !strings.Contains(got, "one\n") {
		t.Errorf("a permission: %q, want the command's output", got)
	}
	if got := h.ask(session,
		`call:ask_user {"question":"Which?","choices":["red","green"]}`); !strings.Contains(got,
		"User selected: green") {
		t.Errorf("what the model asks: %q, want that the user selected green", got)
	}
	h.waitTimeline(session, `answered by provider phone ("Anna\\x1b[2K"): once`)
	h.waitTimeline(session, `answered by provider phone ("Anna"): green`)

	turn := h.asking(session, shell("echo mine"))
	h.asked(session)
	h.tapctl("sessions", "answer", session, "deny")
	turn.wait(patience)
	h.waitTimeline(session, "it was answered by user")

	h.phoneFile("")
	eventually(t, patience, func() error {
		list := h.tapctl("providers", "--json")
		if strings.Contains(list, `grants = [\"questions\"]`) {
			return nil
		}
		return fmt.Errorf("tapctl providers does not say what is missing: %s", list)
	})
	turn = h.asking(session, shell("echo two"))
	h.asked(session)
	h.tapctl("sessions", "answer", session, "deny")
	turn.wait(patience)
	h.waitTimeline(session, "answered by the user: deny")
}
