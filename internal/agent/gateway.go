package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/jsonrpc2"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/langserver"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/protocol"
)

// An agent's session of a gateway: the tools, prompts and gates that providers bring into a
// conversation.

const (
	// idleTimeout bounds the request that says that a turn has ended.
	idleTimeout = 5 * time.Second
	// promptTimeout is how long to wait for a prompt that the gateway has announced. The prompt
	// never comes if its provider injects too often.
	promptTimeout = 5 * time.Second
	// strangerTimeout is how long a program may take to prove that it is the user's gateway, if a
	// gateway is welcome and not required.
	strangerTimeout = 2 * time.Second
)

// endTimeout bounds how long providers may take to clean up after a conversation.
const endTimeout = 11 * time.Second

// aliases are the tools that the words shell, edit and read of providers' rules stand for.
var aliases = map[string][]string{
	"shell": {"run_in_terminal", "run_tests"},
	"edit": {"insert_edit_into_file", "create_file", "create_directory", "replace_string_in_file",
		"multi_replace_string", "apply_patch"},
	"read": {"read_file", "list_dir", "file_search", "grep_search", "find_test_files",
		"get_doc_info"},
}

// gatewaySession is a conversation as a session of a gateway.
type gatewaySession struct {
	*client.HostSession
	v        *Conversation
	isEnding atomic.Bool

	promptReady chan struct{} // has room for one element; it means that a prompt has come

	mu            sync.Mutex // guards the fields that follow
	providerTools []protocol.HostTool
	prompts       []protocol.HostPrompt // wait for their turns
	expected      int                   // number of prompts that the gateway has announced
	cancel        context.CancelCauseFunc
}

// Gateway says whether conversations become sessions of a gateway, and of which.
type Gateway struct {
	Use  string // [configs.GatewayAuto], [configs.GatewayOn] or [configs.GatewayOff]
	Find client.Options
}

// ChooseGateway returns the gateway that the value of --gateway names, or without the flag the one
// of the configuration or the user's own.
func ChooseGateway(w *workspace.Workspace, flag string, isSet bool) (Gateway, error) {
	g := Gateway{Use: w.Config().Gateway.Use, Find: w.Gateway("", "")}
	g.Find.Flag = "--gateway URL"
	switch {
	case !isSet:
	case flag == configs.GatewayAuto, flag == configs.GatewayOn, flag == configs.GatewayOff:
		g.Use = flag
	case strings.Contains(flag, "://"):
		g.Use, g.Find.URL = configs.GatewayOn, flag
	default:
		return g,
			cli.Usage(
				"flag --gateway: %q is none of auto, on, off and a URL like ws://127.0.0.1:9400",
				flag)
	}
	return g, nil
}

// join makes a conversation with the server a session of the chosen gateway. Unless a gateway is
// required, the session is nil if no gateway runs, or if another user's program answers.
func (v *Conversation) join(ctx context.Context, id, label string) (*gatewaySession, error) {
	use, find := v.Gateway.Use, v.Gateway.Find
	if use == configs.GatewayOff {
		return nil, nil
	}
	limited := ctx
	if use == configs.GatewayAuto && (find.URL != "" || os.Getenv(client.EnvURL) != "") {
		// The address may be old, and a program that listens there must not hold up the
		// conversation.
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, strangerTimeout)
		defer cancel()
	}
	g, err := v.register(limited, find, id, label)
	if err == nil || use != configs.GatewayAuto || ctx.Err() != nil {
		return g, err
	}
	switch e := cli.AsError(err); e.Exit {
	case cli.ExitUnreachable:
		return nil, nil
	case cli.ExitRefused, cli.ExitTimedOut:
		v.Workspace.Note("lsclient: goes on without a gateway: %s", e.Message)
		return nil, nil
	}
	return nil, err
}

// register makes a conversation a session of a gateway.
func (v *Conversation) register(
	ctx context.Context, find client.Options, id, label string,
) (*gatewaySession, error) {
	g := &gatewaySession{v: v, promptReady: make(chan struct{}, 1)}
	o := client.HostOptions{
		Name: "lsclient", Version: cli.Version(), Aliases: aliases,
		ID: id, Label: label, CWD: v.Workspace.Dir, Model: v.Model(),
		Tools: g.setTools, Send: g.send, Interrupt: g.interrupt,
		Log: func(level, message string) {
			if !g.isEnding.Load() { // else the end of the session is intended
				v.Show(GatewayLog{level, message})
			}
		},
		State: func(up bool, why error) {
			switch {
			case up || g.isEnding.Load():
			case errors.Is(why, client.ErrLost):
				v.Workspace.Note("lsclient: %v; trying to connect again", why)
			case errors.Is(why, client.ErrSessionEnded):
				g.setTools(nil) // calls of their tools would fail
			}
		},
	}
	session, err := client.Host(ctx, find, o)
	if e, ok := errors.AsType[*jsonrpc2.Error](err); ok && e.Code == jsonrpc2.CodeInvalidParams &&
		v.kept.resumed {
		o.ID = rand.Text() // the conversation's earlier session has not ended yet
		session, err = client.Host(ctx, find, o)
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.HostSession = session
	g.mu.Unlock()
	return g, nil
}

func (g *gatewaySession) end(ctx context.Context) {
	if g.HostSession == nil {
		return
	}
	g.isEnding.Store(true)
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	g.Close(ctx, "the conversation is over")
}

func (g *gatewaySession) setTools(list []protocol.HostTool) {
	g.mu.Lock()
	g.providerTools = list
	g.mu.Unlock()
	g.v.updateTools(context.Background())
}

// tools returns the providers' tools whose names are free.
func (g *gatewaySession) tools(beside []langserver.Tool) []langserver.Tool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []langserver.Tool
	for _, t := range g.providerTools {
		if slices.ContainsFunc(beside, func(o langserver.Tool) bool { return o.Name == t.Name }) {
			continue
		}
		list = append(list, langserver.Tool{
			Name: t.Name, Description: t.Description,
			Parameters: langserver.StrictSchema(json.RawMessage(t.Parameters)),
			Call: func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
				s := g.v.workerOf(call.ConversationID).session
				if s == nil {
					return langserver.FailedWith(fmt.Errorf("this conversation has no tool %s",
						call.Tool))
				}
				return s.callTool(ctx, call)
			},
		})
	}
	return list
}

// callTool calls a provider's tool.
func (g *gatewaySession) callTool(
	ctx context.Context, call langserver.Invocation,
) langserver.Outcome {
	r, err := g.CallTool(ctx, rand.Text(), call.Tool, call.Input)
	switch {
	case err != nil:
		return langserver.FailedWith(err)
	case r.ErrorCode == string(protocol.CodeCancelled):
		return langserver.Outcome{Parts: []string{r.Error}, Status: langserver.StatusCancelled}
	case r.ErrorCode != "":
		return langserver.FailedWith(fmt.Errorf("%s: %s", r.ErrorCode, r.Error))
	}
	var text string
	if json.Unmarshal(r.Data, &text) != nil {
		text = string(r.Data)
	}
	return langserver.Succeeded(text)
}

// gate asks the providers' rules and gates. If that fails, the call is denied.
func (g *gatewaySession) gate(
	ctx context.Context, tool string, args json.RawMessage,
) (deny, added string) {
	d, err := g.PreToolUse(ctx, tool, args)
	switch {
	case errors.Is(err, client.ErrSessionEnded):
		return "", "" // the session has ended in the gateway, so no gates apply
	case err != nil:
		return fmt.Sprintf("%s was not allowed: its gates can't be asked: %v", tool, err), ""
	case d.Decision == protocol.DecisionDeny:
		return cmp.Or(d.Reason, tool+" was not allowed"), ""
	}
	return "", d.Context
}

func (g *gatewaySession) send(p protocol.HostPrompt) {
	g.mu.Lock()
	if p.Mode == adminapi.ModeImmediate {
		g.prompts = slices.Insert(g.prompts, 0, p)
	} else {
		g.prompts = append(g.prompts, p)
	}
	g.mu.Unlock()
	chans.Wake(g.promptReady)
}

// nextPrompt removes and returns the next prompt.
func (g *gatewaySession) nextPrompt() (p protocol.HostPrompt, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.prompts) == 0 {
		return p, false
	}
	p, g.prompts = g.prompts[0], g.prompts[1:]
	return p, true
}

// waitPrompt is nextPrompt, but waits for a prompt that the gateway has announced.
func (g *gatewaySession) waitPrompt(ctx context.Context) (p protocol.HostPrompt, ok bool) {
	if p, ok = g.nextPrompt(); ok {
		return p, true
	}
	g.mu.Lock()
	coming := g.expected
	g.mu.Unlock()
	if coming == 0 {
		return p, false
	}
	t := time.NewTimer(promptTimeout)
	defer t.Stop()
	select {
	case <-g.promptReady:
	case <-t.C:
	case <-ctx.Done():
	}
	return g.nextPrompt()
}

func (g *gatewaySession) interrupt(reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cancel != nil {
		g.cancel(fmt.Errorf("interrupted: %s", reason))
	}
}

// runTurn runs a turn as a turn of the gateway's session: the session is busy, can be interrupted,
// and providers add to the prompt.
func (g *gatewaySession) runTurn(ctx context.Context, prompt, source string,
	turn func(ctx context.Context, prompt string) (langserver.Turn, error)) (langserver.Turn,
	error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.mu.Lock()
	g.cancel = cancel
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.cancel = nil
		g.mu.Unlock()
	}()
	g.Busy()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), idleTimeout)
		defer cancel()
		injects := g.Idle(ctx)
		g.mu.Lock()
		g.expected = injects
		g.mu.Unlock()
	}()
	if source == "" {
		g.Event(protocol.EventUserMessage, map[string]string{"content": prompt})
	}
	added, err := g.UserPrompt(ctx, prompt, source)
	if err != nil && !errors.Is(err, client.ErrSessionEnded) {
		g.v.Workspace.Note("lsclient: the prompt lacks what providers add to it: %v", err)
	}
	if added != "" {
		prompt += "\n\n" + added
	}
	result, err := turn(ctx, prompt)
	if result.Text != "" {
		g.Event(protocol.EventAssistantMessage, map[string]string{"content": result.Text})
	}
	return result, err
}

// toolDone reports a tool call that has ended to the gateway.
func (g *gatewaySession) toolDone(e langserver.ToolCall) {
	kind, output := "success", e.Result
	if e.State != langserver.Completed {
		kind, output = "failure", cmp.Or(e.Error, string(e.State))
	}
	provider := "host"
	if e.Type == "client" {
		provider = "lsclient"
	}
	g.mu.Lock()
	for _, t := range g.providerTools {
		if t.Name == e.Name {
			provider = ""
		}
	}
	g.mu.Unlock()
	if provider == "" {
		return // the gateway has made the call
	}
	result := map[string]any{"type": kind, "output": output}
	if code, ok := exitCode(e); ok {
		result["exitCode"] = code
	}
	g.Event(protocol.EventToolComplete, map[string]any{
		"tool": e.Name, "provider": provider, "args": e.Input, "result": result,
	})
}

// exitLine is the last line of the result of our own shell tools.
var exitLine = lazyregexp.New(`\n\[exit code (\d+)\]$`)

// exitCode is how the command of one of our own shell tools ended; not ok for other tools, and
// without an exit code.
func exitCode(e langserver.ToolCall) (code int, ok bool) {
	if e.Type != "client" || !slices.Contains(aliases["shell"], e.Name) {
		return 0, false
	}
	m := exitLine.FindStringSubmatch(e.Result)
	if m == nil {
		return 0, false
	}
	code, err := strconv.Atoi(m[1])
	return code, err == nil
}
