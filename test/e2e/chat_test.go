//go:build e2e && linux

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"tapgw/internal/scriptmodel"
)

// chat is the template chat on a recorded server of its service.
type chat struct {
	*home
	program string
	url     string // of the server
}

// chatTokens are those that the recorded servers take.
var chatTokens = []string{"7001:AAE-token-of-the-bot", "xapp-1-token-of-the-app"}

// chat installs the template in the home, and starts a recorded server.
func (h *home) chat(service string) *chat {
	h.t.Helper()
	c := &chat{home: h, program: h.copyTemplate("chat")}
	modules := filepath.Join(filepath.Dir(c.program), "node_modules")
	if err := os.Mkdir(modules, 0o700); err != nil {
		h.t.Fatal(err)
	}
	sdk := h.path("work", "providers", "node")
	if err := os.Symlink(sdk, filepath.Join(modules, "tapgw-provider")); err != nil {
		h.t.Fatal(err)
	}
	c.url = h.start("node", filepath.Join(filepath.Dir(c.program), "test", "recorded.mjs"),
		service).result()
	return c
}

// control gives the server a request, "" for what it was sent so far, and returns its answer.
func (c *chat) control(request string) (answer []byte, err error) {
	c.t.Helper()
	r, err := http.Post(c.url+"/control", "application/json", strings.NewReader(request))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	if answer, err = io.ReadAll(r.Body); err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", request, answer)
	}
	return answer, err
}

// do makes a person of the service write, or press a button once it is there.
func (c *chat) do(name string, args ...any) {
	c.t.Helper()
	request, err := json.Marshal(map[string]any{"name": name, "args": args})
	if err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, patience, func() error { _, err := c.control(string(request)); return err })
}

// said waits until the bot has sent a request with a text.
func (c *chat) said(text string) {
	c.t.Helper()
	quoted, err := json.Marshal(text)
	if err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, patience, func() error {
		all, err := c.control("")
		if err == nil && !bytes.Contains(all, bytes.Trim(quoted, `"`)) {
			err = fmt.Errorf("the bot did not say %q, only %s", text, all)
		}
		return err
	})
}

// log is what the bot wrote.
func (c *chat) log() string {
	c.t.Helper()
	return c.tapctl("providers", "log", "chat")
}

// end ends the bot's process by a signal and returns its id.
func (c *chat) end(s syscall.Signal) (pid int) {
	c.t.Helper()
	all := regexp.MustCompile(`as process (\d+)`).FindAllStringSubmatch(c.log(), -1)
	if len(all) == 0 {
		c.t.Fatal("the log names no process of the bot, want one")
	}
	pid, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Kill(pid, s); err != nil {
		c.t.Fatal(err)
	}
	return pid
}

// TestChat starts the template by its sample, for each service. People prompt a session and answer
// what it asks, and a stranger does nothing; neither the bot's death nor the gateway's loses or
// repeats a word.
func TestChat(t *testing.T) {
	t.Parallel()
	t.Run("telegram", func(t *testing.T) { testChat(t, "telegram", 1, 9) })
	t.Run("slack", func(t *testing.T) { testChat(t, "slack", "U1", "U9") })
}

func testChat(t *testing.T, service string, ada, stranger any) {
	t.Parallel()
	h := newHome(t)
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.HasSuffix(r.LastUser(), "break") {
			return scriptmodel.Reply{Status: http.StatusBadRequest, Text: "the model is broken"}
		}
		return scriptmodel.Calls(r)
	})
	c := h.chat(service)
	h.env = append(h.env, "TELEGRAM_BOT_TOKEN="+chatTokens[0], "SLACK_BOT_TOKEN="+chatTokens[0],
		"SLACK_APP_TOKEN="+chatTokens[1])
	h.put("tapgw.toml", "[copilot.permissions]\nshell = \"ask\"\n")
	if err := os.Mkdir(h.path("providers"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := h.serve("--config", h.path("tapgw.toml"))
	h.template("chat", "providers/templates/chat/chat.mjs", c.program,
		`CHAT_SERVICE = "telegram", CHAT_USERS = "123456789"`, fmt.Sprintf(`CHAT_SERVICE = %q, CHAT_API = %q,
		SLACK_BOT_TOKEN = "${SLACK_BOT_TOKEN}", SLACK_APP_TOKEN = "${SLACK_APP_TOKEN}", CHAT_USERS = "%v"`,
			service, c.url, ada))
	session := h.copilot(m)

	c.do("write", ada, "good morning")
	c.said("You said: [from provider chat]\ngood morning")
	c.do("write", stranger, "let me in")
	c.said("Sorry, I work only for the people")

	shell := func(command string) string {
		return fmt.Sprintf(`call:bash {"command":%q,"description":"compute"}`, command)
	}
	c.do("write", ada, shell("echo $((40+2))"))
	c.do("press", stranger, "echo $((40+2))", "Allow once")
	c.do("press", ada, "echo $((40+2))", "Allow once")
	c.said("\n\n42")
	if lines := h.timeline(session, fmt.Sprintf("(%s %v)", service, ada)); len(lines) == 0 {
		t.Errorf("the timeline does not say that %v answered, want it to", ada)
	}
	c.do("write", ada, `call:ask_user {"question":"Which?","choices":["red","green"]}`)
	c.do("press", ada, "Which?", "2. green")
	c.said("User selected: green")
	c.do("write", ada, shell("rm -r tea"))
	c.do("press", ada, "rm -r tea", "Deny")
	c.said("⛔ bash: ")
	h.tapctl("push", "--session", session, "--level", "surface", "the build is red")
	c.said("the build is red")
	if n := len(m.Requests()); n != 7 {
		t.Errorf("the model got %d requests, want 7: one for each prompt, one for each result", n)
	}
	c.do("write", ada, "break")
	c.said("⚠ ")
	h.waitIdle(session)
	broken := len(m.Requests())

	// The bot dies while a question waits, and the button still answers.
	c.do("write", ada, shell("echo $((50+3))"))
	h.asked(session)
	c.end(syscall.SIGKILL)
	c.do("press", ada, "echo $((50+3))", "Allow once")
	h.waitIdle(session)
	if last := m.Requests()[len(m.Requests())-1]; !strings.Contains(last.LastResult(), "53") {
		t.Errorf("the command's result is %q, want 53 in it", last.LastResult())
	}

	// The gateway goes, and somebody writes before the next one has the session.
	g.stop()
	c.do("write", ada, "while you were away")
	h.serve("--config", h.path("tapgw.toml"))
	h.tapctl(append([]string{"sessions", "resume", session}, endpoint(m)...)...)
	c.said("You said: [from provider chat]\nwhile you were away")
	if n := len(m.Requests()) - broken; n != 3 {
		t.Errorf("the model got %d requests after the failure, want 3: two prompts and a result", n)
	}
	pid := c.end(syscall.SIGTERM)
	eventually(t, patience, func() error {
		if log := c.log(); !strings.Contains(log, fmt.Sprintf("process %d ended by itself", pid)) {
			return fmt.Errorf("process %d did not end with success on SIGTERM: %s", pid, log)
		}
		return nil
	})
	for _, secret := range chatTokens {
		if log := c.log(); strings.Contains(log, secret) {
			t.Errorf("the log has a token, want none:\n%s", log)
		}
	}
}
