//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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

// suiteFiles is the variable of the directory for provider files.
const suiteFiles = "MCP_SUITE_FILES"

// TestMCPSuiteClient runs the official conformance suite against provider files of kind mcp. The suite starts a server
// and then the program suite-client, which gives that server to a session and lets it call the tools.
func TestMCPSuiteClient(t *testing.T) {
	t.Parallel()
	for _, revision := range suiteRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			h := newHome(t)
			h.serveFiles()
			s := &suite{home: h, role: "client", revision: revision}
			h.env = append(h.env, programVariable+"=suite-client", suiteFiles+"="+h.path("providers"))
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			s.args = []string{"--command", self}
			s.run()
		})
	}
}

// suiteClient is what that program does: a session with a provider file for the suite's server. It calls what the
// scenario asks for, accepts each form with what it must have, and cleans up.
type suiteClient struct {
	*client.Client
	scenario string
	name     string // of the provider and the session
	session  string
	calls    []suiteCall // that the scenario wants
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
	c := &suiteClient{Client: admin, scenario: os.Getenv("MCP_CONFORMANCE_SCENARIO")}
	c.name = fmt.Sprintf("%s-%d", regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(c.scenario, "-"), os.Getpid())
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		var asked struct{ ToolCalls []suiteCall }
		if err := json.Unmarshal([]byte(text), &asked); err != nil {
			return err
		}
		c.calls = asked.ToolCalls
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	if c.session, err = c.Start(ctx, adminapi.StartRequest{Host: "local", CWD: cwd, Label: c.name}); err != nil {
		return err
	}
	defer func() { _ = c.Delete(context.WithoutCancel(ctx), c.session) }()
	path := filepath.Join(os.Getenv(suiteFiles), c.name+".toml")
	file := fmt.Sprintf("kind = \"mcp\"\nurl = %q\nsessions = { label = %q }\n", args[0], c.name)
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }()
	if err := c.waitBound(ctx); err != nil {
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

// waitBound waits until the session has the server's tools, or the gateway says why it has not.
func (c *suiteClient) waitBound(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		list, err := c.Providers(ctx)
		for _, p := range list {
			if p.Name == c.name && p.Session == c.session {
				return true, nil
			}
		}
		if err != nil {
			return false, err
		}
		files, err := c.Configured(ctx)
		for _, f := range files {
			if f.Name == c.name && f.Reason != "" {
				return false, errors.New(f.Reason)
			}
		}
		return false, err
	})
}

// callAll calls the tools that the scenario names, or each tool once, and reads a resource and a prompt where the
// server has some.
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

// call calls a tool and returns what it said. The suite sees its own side of it. Where the gateway refuses arguments,
// such as null for an optional text, it leaves null out, as a model would.
func (c *suiteClient) call(ctx context.Context, name string, args json.RawMessage) (text string, err error) {
	r, err := c.Call(ctx, c.session, name, adminapi.Call{Args: args})
	if r.ErrorCode == string(protocol.CodeInvalidArguments) {
		var members map[string]any
		_ = json.Unmarshal(args, &members)
		maps.DeleteFunc(members, func(_ string, v any) bool { return v == nil })
		args, _ = json.Marshal(members)
		r, err = c.Call(ctx, c.session, name, adminapi.Call{Args: args})
	}
	fmt.Fprintf(os.Stderr, "%s %s: %s%s %s\n", name, args, r.Data, r.ErrorCode, r.Error)
	_ = json.Unmarshal(r.Data, &text)
	return text, err
}

// echoSchema shows the suite a tool's schema as the session has it.
func (c *suiteClient) echoSchema(ctx context.Context, tools []adminapi.Tool) error {
	i := slices.IndexFunc(tools, func(t adminapi.Tool) bool { return t.Name == "json_schema_2020_12_tool" })
	if i < 0 {
		return errors.New("the tool json_schema_2020_12_tool is not there")
	}
	args, err := json.Marshal(map[string]json.RawMessage{"schema": tools[i].Parameters})
	if err == nil {
		_, err = c.call(ctx, "json_schema_echo", args)
	}
	return err
}

// callWithFirst calls a tool that lists things, and then another one with the name of the first, which ends before end.
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
				err = c.Answer(ctx, c.session, adminapi.Answer{Question: q.ID, Content: fill(q.Schema)})
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
