//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer starts a NATS server in this process, and returns its URL.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{ServerName: "n", Host: "127.0.0.1",
		Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true,
		NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

// serveIn starts a gateway that joins another one.
func (h *home) serveIn(url, name, other string) *gateway {
	h.t.Helper()
	config := fmt.Sprintf(
		"[cluster]\nurls = [%q]\nname = %q\nshare = [\"*\"]\nadmit = { %s = \"project\" }\n"+
			"[cluster.keep]\nstreams = [\"builds\"]\n", url, name, other)
	if err := os.WriteFile(h.path("tapgw.toml"), []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return h.serve("--config", h.path("tapgw.toml"))
}

// TestPageMachines sees the sessions and providers of another gateway in the lists of its own, and
// which of them are doubtful or gone. What is elsewhere can't be opened or changed from here.
func TestPageMachines(t *testing.T) {
	t.Parallel()
	url := natsServer(t)
	here, there := newHome(t), newHome(t)
	g, other := here.serveIn(url, "desk", "lab"), there.serveIn(url, "lab", "desk")
	here.local("--label", "mine")
	far := there.local("--label", "theirs")
	there.bindProvider(far, "scope", "look")
	v := here.browser().profile(t).openView(here.link(), bypassPolicy())
	v.waitText(".items", "theirs")
	v.until(`document.querySelectorAll(".items li").length === 2`)
	if got := eval[string](v.tab, `[...document.querySelectorAll(".items .group")].map((g) =>
		[g.querySelector(".fold span").textContent, g.querySelector(".label").textContent,
			g.querySelector("li a").hasAttribute("href"), g.querySelector("li button").checkVisibility()].join()).join("; ")`,
	); got != ",mine,true,true; on lab,theirs,false,false" {
		t.Errorf("the list of sessions: %q, want that of lab in a group of its own, without a link",
			got)
	}
	v.checkWidths("machines")
	v.show("Providers")
	v.waitText("tbody .whyText", "On gateway lab.")
	const row = `[...document.querySelectorAll("tbody tr")].find((tr) => tr.textContent.includes("scope"))`
	got := eval[string](v.tab, `[`+row+`.querySelector("a").hasAttribute("href"),
		[...`+row+`.querySelectorAll(".buttons button")].filter((b) => b.checkVisibility()).length].join()`)
	if got != "false,0" {
		t.Errorf("the provider elsewhere has a link or buttons: %q, want none", got)
	}
	if out := here.tapctl("push", "--all", "--stream", "builds", "--provider", "ci",
		"it broke"); out == "" {
		t.Error("tapctl push --all printed nothing")
	}
	eventually(t, patience, func() error {
		if out := there.tapctl("query", "--session", far); !strings.Contains(out, "it broke") {
			return fmt.Errorf("the session elsewhere has %q, want the event", out)
		}
		return nil
	})
	out := there.tapctl("query", "--all", "builds")
	if !strings.Contains(out, "it broke") || !strings.Contains(out, "desk") {
		t.Errorf("tapctl query --all: %q, want the event and its gateway", out)
	}
	other.kill()
	v.until(row + `.querySelector(".chip").textContent === "doubtful"`)
	v.until(`!` + row)
	v.checkFaults(g.origin())
}
