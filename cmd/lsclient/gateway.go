package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/langserver"
	"tapgw/internal/protocol"
)

const (
	// idleTime bounds the word that a turn is over.
	idleTime = 5 * time.Second
	// comingTime is how long a prompt may take that the gateway has promised: one
	// of a provider that injects too often never comes.
	comingTime = 5 * time.Second
)

// leaveTime bounds how long providers may take to let a conversation go.
const leaveTime = 11 * time.Second

// aliases are the tools behind the words that providers' rules use.
var aliases = map[string][]string{
	"shell": {"run_in_terminal", "run_tests"},
	"edit": {"insert_edit_into_file", "create_file", "create_directory", "replace_string_in_file",
		"multi_replace_string", "apply_patch"},
	"read": {"read_file", "list_dir", "file_search", "grep_search", "find_test_files", "get_doc_info"},
}

// joined is a conversation as a session of a gateway.
type joined struct {
	*client.HostSession
	v       *conversation
	leaving atomic.Bool

	mu      sync.Mutex // guards the fields that follow
	given   []client.HostTool
	prompts []client.HostPrompt // wait for their turn
	more    chan struct{}       // has room for one: a prompt came
	coming  int                 // how many the gateway sends now
	cancel  context.CancelCauseFunc
}

// join makes the conversation a session of the gateway that the configuration
// names, or that runs.
func (v *conversation) join(ctx context.Context) error {
	k := v.k
	use, find := k.conf().Gateway.Use, k.gateway("", "")
	switch flag := k.String("gateway"); flag {
	case "":
	case configs.GatewayAuto, configs.GatewayOn, configs.GatewayOff:
		use = flag
	default:
		use, find.URL = configs.GatewayOn, flag
	}
	if use == configs.GatewayOff {
		return nil
	}
	j := &joined{v: v, more: make(chan struct{}, 1)}
	v.joined = j
	label := cmp.Or(k.String("label"), filepath.Base(k.workspace))
	session, err := client.Host(ctx, find, client.HostOptions{
		Name: "lsclient", Version: cli.Version(), Aliases: aliases,
		ID: rand.Text(), Label: label, CWD: k.workspace, Model: k.model(),
		Tools: j.setTools, Send: j.send, Interrupt: j.interrupt,
		Log: func(level, message string) {
			if j.leaving.Load() {
				return // that the gateway lets go is what was asked for
			}
			k.tell(map[string]any{"type": "log", "level": level, "message": message}, "[%s] %s", level,
				cli.Clean(message))
		},
		State: func(up bool, why error) {
			switch {
			case up || j.leaving.Load():
			case errors.Is(why, client.ErrLost):
				k.out.Notef("lsclient: %v; it is looked for", why)
			case errors.Is(why, client.ErrSessionEnded):
				j.setTools(nil) // nobody answers their calls any more
			}
		},
	})
	if err != nil {
		v.joined = nil
		if use == configs.GatewayAuto && cli.AsError(err).Exit == cli.ExitUnreachable {
			return nil
		}
		return err
	}
	j.mu.Lock()
	j.HostSession = session
	j.mu.Unlock()
	return nil
}

// gateway says where the gateway is: as flags, the environment or the
// configuration name it, else the one that runs for this user.
func (k *call) gateway(url, token string) client.Options {
	if os.Getenv(client.EnvURL) == "" {
		url = cmp.Or(url, k.conf().Gateway.URL)
	}
	return client.Options{URL: url, Token: token}
}

func (j *joined) leave(ctx context.Context) {
	if j.HostSession == nil {
		return
	}
	j.leaving.Store(true)
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	j.Close(ctx, "the conversation is over")
}

func (j *joined) setTools(list []client.HostTool) {
	j.mu.Lock()
	j.given = list
	j.mu.Unlock()
	j.v.changed(context.Background())
}

// tools are the providers' tools whose names nobody else has.
func (j *joined) tools(beside []langserver.Tool) []langserver.Tool {
	j.mu.Lock()
	defer j.mu.Unlock()
	var list []langserver.Tool
	for _, t := range j.given {
		taken := slices.ContainsFunc(beside, func(o langserver.Tool) bool { return o.Name == t.Name })
		if taken || slices.Contains(serverHas, t.Name) || slices.Contains(serverRuns, t.Name) {
			continue
		}
		list = append(list, langserver.Tool{
			Name: t.Name, Description: t.Description, Parameters: langserver.StrictSchema(t.Parameters),
			Call: func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
				return j.call(ctx, call)
			},
		})
	}
	return list
}

// call calls a provider's tool.
func (j *joined) call(ctx context.Context, call langserver.Invocation) langserver.Outcome {
	r, err := j.CallTool(ctx, rand.Text(), call.Tool, call.Input)
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

// gate asks the providers' rules and gates. One that can't be asked denies.
func (j *joined) gate(ctx context.Context, tool string, args json.RawMessage) (deny, added string) {
	d, err := j.PreToolUse(ctx, tool, args)
	switch {
	case errors.Is(err, client.ErrSessionEnded):
		return "", "" // it was taken out of the gateway: nobody's gates are its own
	case err != nil:
		return fmt.Sprintf("%s was not allowed: its gates can't be asked: %v", tool, err), ""
	case d.Decision == protocol.DecisionDeny:
		return cmp.Or(d.Reason, tool+" was not allowed"), ""
	}
	return "", d.Context
}

func (j *joined) send(p client.HostPrompt) {
	j.mu.Lock()
	if p.Mode == adminapi.ModeImmediate {
		j.prompts = slices.Insert(j.prompts, 0, p)
	} else {
		j.prompts = append(j.prompts, p)
	}
	j.mu.Unlock()
	select {
	case j.more <- struct{}{}:
	default:
	}
}

// next takes the prompt that is to have its turn now.
func (j *joined) next() (p client.HostPrompt, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.prompts) == 0 {
		return p, false
	}
	p, j.prompts = j.prompts[0], j.prompts[1:]
	return p, true
}

// awaited is next, and waits for a prompt that the gateway has promised.
func (j *joined) awaited(ctx context.Context) (p client.HostPrompt, ok bool) {
	if p, ok = j.next(); ok {
		return p, true
	}
	j.mu.Lock()
	coming := j.coming
	j.mu.Unlock()
	if coming == 0 {
		return p, false
	}
	t := time.NewTimer(comingTime)
	defer t.Stop()
	select {
	case <-j.more:
	case <-t.C:
	case <-ctx.Done():
	}
	return j.next()
}

func (j *joined) interrupt(reason string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cancel != nil {
		j.cancel(fmt.Errorf("interrupted: %s", reason))
	}
}

// around runs a turn as the gateway's session: it is busy, can be interrupted,
// and its prompt gets what providers add.
func (j *joined) around(ctx context.Context, prompt, source string,
	turn func(ctx context.Context, prompt string) (langserver.Turn, error)) (langserver.Turn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	j.mu.Lock()
	j.cancel = cancel
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.cancel = nil
		j.mu.Unlock()
	}()
	j.Busy()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), idleTime)
		defer cancel()
		injects := j.Idle(ctx)
		j.mu.Lock()
		j.coming = injects
		j.mu.Unlock()
	}()
	if source == "" {
		j.Event(protocol.EventUserMessage, map[string]string{"content": prompt})
	}
	added, err := j.UserPrompt(ctx, prompt, source)
	if err != nil && !errors.Is(err, client.ErrSessionEnded) {
		j.v.k.out.Notef("lsclient: what providers add to the prompt is missing: %v", err)
	}
	if added != "" {
		prompt += "\n\n" + added
	}
	result, err := turn(ctx, prompt)
	if result.Text != "" {
		j.Event(protocol.EventAssistantMessage, map[string]string{"content": result.Text})
	}
	return result, err
}

// toolDone tells of a tool call that has ended.
func (j *joined) toolDone(e langserver.ToolCall) {
	kind, output := "success", e.Result
	if e.State != langserver.Completed {
		kind, output = "failure", cmp.Or(e.Error, string(e.State))
	}
	provider := "host"
	if e.Type == "client" {
		provider = "lsclient"
	}
	j.mu.Lock()
	for _, t := range j.given {
		if t.Name == e.Name {
			provider = ""
		}
	}
	j.mu.Unlock()
	if provider == "" {
		return // the gateway has seen the call itself
	}
	j.Event(protocol.EventToolComplete, map[string]any{
		"tool": e.Name, "provider": provider, "args": e.Input,
		"result": map[string]string{"type": kind, "output": output},
	})
}
