//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/protocol"
)

// Variables: the directory for provider files, and the secret of the client that the suite has
// registered.
const (
	suiteFiles  = "MCP_SUITE_FILES"
	suiteSecret = "MCP_SUITE_SECRET"
)

// TestMCPSuiteClient runs the official conformance suite against provider files of kind mcp. The
// suite starts a server and then the program suite-client, which gives that server to a session and
// lets it call the tools.
func TestMCPSuiteClient(t *testing.T) {
	t.Parallel()
	for _, revision := range suiteRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.env = append(h.env, suiteSecret+"=pre-registered-secret")
			h.serveFiles()
			s := &suite{home: h, role: "client", revision: revision}
			h.env = append(h.env, programVariable+"=suite-client",
				suiteFiles+"="+h.path("providers"))
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			s.args = []string{"--command", self}
			s.run()
		})
	}
}

// suiteClient is what that program does: a session with a provider file for the suite's server. It
// calls what the scenario asks for, accepts each form with what it must have, and cleans up.
type suiteClient struct {
	*client.Client
	name    string // of the provider and the session
	session string
	calls   []suiteCall // that the scenario wants
	seen    attempts
	logins  int
}

// attempts count what the log of the provider says of its connections.
type attempts struct{ made, refused int }

// maxLogins is how often the person logs in before they give up.
const maxLogins = 3

// suiteContext is what the suite says of a scenario in MCP_CONFORMANCE_CONTEXT.
type suiteContext struct {
	ToolCalls []suiteCall
	ClientID  string `json:"client_id"` // that the server's operator has registered
}

func readSuiteContext() (c suiteContext, err error) {
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

type suiteCall struct {
	Name      string
	Arguments json.RawMessage
}

// runSuiteClient is the program of a [suiteClient]. Its argument is the URL of the suite's server.
func runSuiteClient(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	admin, err := client.New(client.Options{})
	if err != nil {
		return err
	}
	defer admin.Close()
	scenario, err := readSuiteContext()
	if err != nil {
		return err
	}
	name := regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(os.Getenv("MCP_CONFORMANCE_SCENARIO"),
		"-")
	c := &suiteClient{Client: admin, name: fmt.Sprintf("%s-%d", name, os.Getpid()),
		calls: scenario.ToolCalls}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	if c.session, err = c.Start(ctx, adminapi.StartRequest{Host: "local", CWD: cwd,
		Label: c.name}); err != nil {
		return err
	}
	defer func() { _ = c.Delete(context.WithoutCancel(ctx), c.session) }()
	path := filepath.Join(os.Getenv(suiteFiles), c.name+".toml")
	file := fmt.Sprintf("kind = \"mcp\"\nurl = %q\nsessions = { label = %q }\n", args[0], c.name)
	if scenario.ClientID != "" {
		file += fmt.Sprintf("[oauth]\nclient_id = %q\nclient_secret = \"${%s}\"\n",
			scenario.ClientID, suiteSecret)
	}
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	if err := c.connect(ctx); err != nil {
		return err
	}
	answering, stop := context.WithCancel(ctx)
	answered := make(chan error, 1)
	go func() { answered <- c.answer(answering) }()
	err = c.callAll(ctx)
	stop()
	return errors.Join(err, <-answered)
}

// poll repeats a look until it finds what it looks for.
func poll(ctx context.Context, look func() (found bool, err error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if found, err := look(); found || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// connect waits until the session has the server's tools, and logs in where the server wants that.
func (c *suiteClient) connect(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		now := c.attempts(ctx)
		if now.refused > c.seen.refused {
			return false, c.login(ctx)
		}
		list, err := c.Providers(ctx)
		isBound := slices.ContainsFunc(list, func(p adminapi.Provider) bool {
			return p.Name == c.name && p.Session == c.session
		})
		if err != nil || isBound && now.made > c.seen.made {
			c.seen = now
			return true, err
		}
		files, err := c.Configured(ctx)
		for _, f := range files {
			if f.Name == c.name && f.Reason != "" && !isPassing.MatchString(f.Reason) {
				return false, errors.New(f.Reason)
			}
		}
		return false, err
	})
}

const needsLogin = "needs a login"

// isPassing matches reasons why there is no connection yet.
var isPassing = regexp.MustCompile(needsLogin + "|the login has changed")

// attempts reads the log of the provider.
func (c *suiteClient) attempts(ctx context.Context) (n attempts) {
	// there is none before the gateway has read the file
	lines, _ := c.ProviderLog(ctx, c.name, client.LogQuery{})
	for _, line := range lines {
		switch {
		case strings.Contains(line, "connected by MCP"):
			n.made++
		case strings.Contains(line, needsLogin):
			n.refused++
		}
	}
	return n
}

// login logs in at the server, as a person does who trusts it.
func (c *suiteClient) login(ctx context.Context) error {
	if c.logins++; c.logins > maxLogins {
		return fmt.Errorf("the server still wants a login after %d", maxLogins)
	}
	c.seen.made = c.attempts(ctx).made
	for step, err := range c.LoginProvider(ctx, c.name, false) {
		if err == nil && step.URL != "" {
			err = browse(ctx, step.URL)
		}
		if err != nil {
			return err
		}
	}
	c.seen.refused = c.attempts(ctx).refused + 1 // an attempt may have begun before the login
	return nil
}

// browse opens a link as a browser does.
func browse(ctx context.Context, link string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, link, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// callAll calls the tools that the scenario names, or each tool once, and reads a resource and a
// prompt where the server has some.
func (c *suiteClient) callAll(ctx context.Context) error {
	if len(c.calls) > 0 {
		for _, call := range c.calls {
			if _, err := c.call(ctx, call.Name, call.Arguments); err != nil {
				return err
			}
		}
		return nil
	}
	tools, err := c.Tools(ctx, c.session)
	if err != nil {
		return err
	}
	for _, t := range tools {
		var err error
		switch strings.TrimPrefix(t.Name, c.name+"_") {
		case "list_resources":
			err = c.callWithFirst(ctx, "list_resources", " - ", "read_resource", "uri")
		case "list_prompts":
			err = c.callWithFirst(ctx, "list_prompts", "(", "get_prompt", "name")
		case "read_resource", "get_prompt":
		case "json_schema_echo": // says back how the schema of another tool came here
			err = c.echoSchema(ctx, tools)
		default:
			_, err = c.call(ctx, t.Name, fill(t.Parameters))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// call calls a tool and returns what it said. The suite sees its own side of it. Where the gateway
// refuses arguments, such as null for an optional text, it leaves null out, as a model would.
func (c *suiteClient) call(
	ctx context.Context, name string, args json.RawMessage,
) (text string, err error) {
	r, err := c.Call(ctx, c.session, name, adminapi.Call{Args: args})
	if r.ErrorCode == string(protocol.CodeInvalidArguments) {
		var members map[string]any
		_ = json.Unmarshal(args, &members)
		maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil })
		args, _ = json.Marshal(members)
		r, err = c.Call(ctx, c.session, name, adminapi.Call{Args: args})
	}
	fmt.Fprintf(os.Stderr, "%s %s: %s%s %s\n", name, args, r.Data, r.ErrorCode, r.Error)
	if strings.Contains(r.Error, needsLogin) {
		if err := errors.Join(c.login(ctx), c.connect(ctx)); err != nil {
			return "", err
		}
		return c.call(ctx, name, args)
	}
	_ = json.Unmarshal(r.Data, &text)
	return text, err
}

// echoSchema shows the suite a tool's schema as the session has it.
func (c *suiteClient) echoSchema(ctx context.Context, tools []adminapi.Tool) error {
	i := slices.IndexFunc(tools, func(t adminapi.Tool) bool {
		return t.Name == "json_schema_2020_12_tool"
	})
	if i < 0 {
		return errors.New("the tool json_schema_2020_12_tool is not there")
	}
	args, err := json.Marshal(map[string]json.RawMessage{"schema": tools[i].Parameters})
	if err == nil {
		_, err = c.call(ctx, "json_schema_echo", args)
	}
	return err
}

// callWithFirst calls a tool that lists things, and then another one with the name of the first,
// which ends before end.
func (c *suiteClient) callWithFirst(ctx context.Context, list, end, tool, key string) error {
	text, err := c.call(ctx, c.name+"_"+list, nil)
	first, _, ok := strings.Cut(text, end)
	if err != nil || !ok {
		return err
	}
	args, err := json.Marshal(map[string]string{key: first})
	if err == nil {
		_, err = c.call(ctx, c.name+"_"+tool, args)
	}
	return err
}

// answer accepts the questions of the session until ctx ends.
func (c *suiteClient) answer(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		questions, err := c.Questions(ctx)
		for _, q := range questions {
			if q.Session == c.session && err == nil {
				err = c.Answer(ctx, c.session,
					adminapi.Answer{Question: q.ID, Content: fill(q.Schema)})
			}
		}
		return false, err
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// fill makes an object that a schema allows, with the members that it requires and no others.
func fill(schema json.RawMessage) json.RawMessage {
	var shape struct {
		Properties map[string]struct{ Type string }
		Required   []string
	}
	_ = json.Unmarshal(schema, &shape) // true and false are schemas, too
	members := map[string]any{}
	for _, name := range shape.Required {
		switch shape.Properties[name].Type {
		case "boolean":
			members[name] = true
		case "number", "integer":
			members[name] = 1
		default:
			members[name] = "x"
		}
	}
	data, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return data
}
