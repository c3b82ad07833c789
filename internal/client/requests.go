package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/protocol"
)

// Status returns the gateway's state: its address, process, version, number of sessions and
// providers, and the mistakes in its config files (docs/admin-api.md, GET /api/v1/status).
func (c *Client) Status(ctx context.Context) (adminapi.Status, error) {
	return get[adminapi.Status](ctx, c, "/status", nil)
}

// Sessions returns the sessions that run, oldest first (docs/admin-api.md, GET /api/v1/sessions).
// The list may be empty.
func (c *Client) Sessions(ctx context.Context) ([]adminapi.Session, error) {
	return get[[]adminapi.Session](ctx, c, "/sessions", nil)
}

// Session returns one session. id is its whole id; [Client.FindSession] finds it for a label or a
// beginning. An unknown id is [cli.ExitNotFound] (docs/admin-api.md, GET /api/v1/sessions/{id}).
func (c *Client) Session(ctx context.Context, id string) (adminapi.Session, error) {
	return get[adminapi.Session](ctx, c, sessionPath(id, ""), nil)
}

// Start starts a session of the gateway and returns its id when the session runs. A wrong field of
// r is [cli.ExitUsage], and the message names it (docs/admin-api.md, POST /api/v1/sessions).
func (c *Client) Start(ctx context.Context, r adminapi.StartRequest) (id string, err error) {
	started, err := post[adminapi.Started](ctx, c, "/sessions", r)
	return started.ID, err
}

// PersistedFilter chooses sessions on disk for [Client.Persisted]. A session must match every field
// that is set; "" and 0 match all. Repository has the form owner/name.
type PersistedFilter struct {
	CWD, Repository, Branch string
	Last                    int // at most so many
}

// Persisted returns the sessions on disk that match f, the last used first, whichever program
// started them (docs/admin-api.md, GET /api/v1/persisted).
func (c *Client) Persisted(ctx context.Context, f PersistedFilter) ([]adminapi.Persisted, error) {
	return get[[]adminapi.Persisted](ctx, c, "/persisted", values(map[string]string{
		"cwd": f.CWD, "repository": f.Repository, "branch": f.Branch, "last": number(f.Last),
	}))
}

// Resume starts a session on disk in the gateway again, with its id and history. It fails with
// INVALID_STATE if the session runs already, and with [cli.ExitNotFound] for an unknown id
// (docs/admin-api.md, POST /api/v1/persisted/{id}/resume).
func (c *Client) Resume(ctx context.Context, id string, r adminapi.ResumeRequest) error {
	_, err := post[adminapi.Started](ctx, c, "/persisted/"+url.PathEscape(id)+"/resume", r)
	return err
}

// Delete removes a stored session permanently. It fails with INVALID_STATE while the session runs:
// call [Client.Stop] first (docs/admin-api.md, DELETE /api/v1/persisted/{id}).
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/persisted/"+url.PathEscape(id), nil, nil, nil)
}

// SetModel changes the model of a running session, and with r.Effort its reasoning effort, from the
// session's next request on. The history stays (docs/admin-api.md, POST
// /api/v1/sessions/{id}/model).
func (c *Client) SetModel(ctx context.Context, id string, r adminapi.ModelRequest) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "model"), r)
	return err
}

// Stop ends a session and returns when its providers have finished or their time is over. The
// gateway goes on with it if ctx ends before that (docs/admin-api.md, DELETE
// /api/v1/sessions/{id}).
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, sessionPath(id, ""), nil, nil, nil)
}

// Send gives a session a prompt and returns as soon as the gateway has accepted it. It sets
// q.Detach, so it does not report how the turn ends (docs/admin-api.md, POST
// /api/v1/sessions/{id}/query).
func (c *Client) Send(ctx context.Context, id string, q adminapi.Query) error {
	q.Detach = true
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "query"), q)
	return err
}

// Query gives a session a prompt and yields each callback of its turn as it comes. The last line
// has End, and in it the error of a turn that failed. An error of the sequence means that the
// request itself failed (docs/admin-api.md, POST /api/v1/sessions/{id}/query).
func (c *Client) Query(
	ctx context.Context, id string, q adminapi.Query,
) iter.Seq2[LiveLine, error] {
	q.Detach = false
	return decoded[LiveLine](stream(ctx, c, http.MethodPost, sessionPath(id, "query"), nil, q))
}

// LiveLine is a line of [Client.Live] or [Client.Query]: a callback of the session, or the end of a
// turn. If End is set, the embedded Callback is zero.
type LiveLine struct {
	adminapi.Callback
	End *adminapi.TurnEnd // of the last line of a query; nil in any other line
	Raw json.RawMessage   // the line as it came
}

// UnmarshalJSON implements [json.Unmarshaler]. An object whose done is true becomes End; any other
// becomes the Callback. Raw gets a copy of data in both cases.
func (l *LiveLine) UnmarshalJSON(data []byte) error {
	*l = LiveLine{Raw: append(json.RawMessage{}, data...)}
	var end adminapi.TurnEnd
	if err := json.Unmarshal(data, &end); err == nil && end.Done {
		l.End = &end
		return nil
	}
	return json.Unmarshal(data, &l.Callback)
}

// Questions returns the questions that wait for a person's answer, of all sessions, oldest first.
// Each has the time at which it expires (docs/admin-api.md, GET /api/v1/questions).
func (c *Client) Questions(ctx context.Context) ([]adminapi.Question, error) {
	return get[[]adminapi.Question](ctx, c, "/questions", nil)
}

// Answer answers a question of a session, which a.Question names. It fails with [cli.ExitNotFound]
// if there is no such question, and with INVALID_STATE if it is over (docs/admin-api.md, POST
// /api/v1/sessions/{id}/answer).
func (c *Client) Answer(ctx context.Context, id string, a adminapi.Answer) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "answer"), a)
	return err
}

// Live yields a session's callbacks from now on, of every turn, until the session ends. Its lines
// never have End (docs/admin-api.md, GET /api/v1/sessions/{id}/live).
func (c *Client) Live(ctx context.Context, id string) iter.Seq2[LiveLine, error] {
	return decoded[LiveLine](stream(ctx, c, http.MethodGet, sessionPath(id, "live"), nil, nil))
}

// Interrupt ends the turn that runs in a session; its tool calls end with CANCELLED. It returns the
// beginnings of the prompts that were queued behind the turn and are dropped with it; the list may
// be empty (docs/admin-api.md, POST /api/v1/sessions/{id}/interrupt).
func (c *Client) Interrupt(ctx context.Context, id, reason string) (dropped []string, err error) {
	answer, err := post[adminapi.Interrupted](ctx, c, sessionPath(id, "interrupt"),
		adminapi.Interrupt{Reason: reason})
	return answer.Dropped, err
}

// Queue returns the prompts that wait in all sessions (docs/admin-api.md, GET /api/v1/queue).
func (c *Client) Queue(ctx context.Context) ([]adminapi.QueuedPrompt, error) {
	return get[[]adminapi.QueuedPrompt](ctx, c, "/queue", nil)
}

// CancelQueued takes back a prompt that waits in a session. It fails with [cli.ExitNotFound] if the
// prompt does not wait, and with INVALID_STATE if the agent has it (docs/admin-api.md, DELETE
// /api/v1/sessions/{id}/queue/{prompt}).
func (c *Client) CancelQueued(ctx context.Context, id, prompt string) error {
	return c.do(ctx, http.MethodDelete, sessionPath(id, "queue/"+url.PathEscape(prompt)), nil, nil,
		nil)
}

// SendQueued sends a prompt that waits into the turn that runs, with the errors of
// [Client.CancelQueued] (docs/admin-api.md, POST /api/v1/sessions/{id}/queue/{prompt}/send).
func (c *Client) SendQueued(ctx context.Context, id, prompt string) error {
	path := sessionPath(id, "queue/"+url.PathEscape(prompt)+"/send")
	_, err := post[adminapi.Nothing](ctx, c, path, adminapi.Nothing{})
	return err
}

// Foreground makes a session the foreground session: the one that commands without a session mean,
// and the first that providers are offered (docs/admin-api.md, POST
// /api/v1/sessions/{id}/foreground).
func (c *Client) Foreground(ctx context.Context, id string) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "foreground"), adminapi.Nothing{})
	return err
}

// MCPToken returns the token with which MCP clients use a session at /mcp. It is valid only there,
// and ends with the session (docs/admin-api.md, POST /api/v1/sessions/{id}/mcp-token).
func (c *Client) MCPToken(ctx context.Context, id string) (string, error) {
	answer, err := post[adminapi.MCPToken](ctx, c, sessionPath(id, "mcp-token"), adminapi.Nothing{})
	return answer.Token, err
}

// ProviderToken makes a token with which a provider binds a session, and no other one. It ends with
// the session (docs/admin-api.md, POST /api/v1/sessions/{id}/provider-token).
func (c *Client) ProviderToken(ctx context.Context, id string) (string, error) {
	answer, err := post[adminapi.ProviderToken](ctx, c, sessionPath(id, "provider-token"),
		adminapi.Nothing{})
	return answer.Token, err
}

// Rename gives a session another label, one line of at most 200 characters. Provider files that
// name labels follow the change (docs/admin-api.md, POST /api/v1/sessions/{id}/rename).
func (c *Client) Rename(ctx context.Context, id, label string) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "rename"),
		adminapi.RenameRequest{Label: label})
	return err
}

// LogQuery chooses lines of a timeline or of a provider's log. Last and Since limit the lines that
// exist already, not the lines that Follow adds. The zero value means all lines and no following.
type LogQuery struct {
	Follow bool      // the coming ones, too
	Last   int       // number of existing lines; 0: all
	Since  time.Time // only newer ones; the zero time: all
}

func (q LogQuery) values() url.Values {
	v := lastSince(q.Last, q.Since)
	if q.Follow {
		v.Set("follow", "1")
	}
	return v
}

func lastSince(last int, since time.Time) url.Values {
	return values(map[string]string{"last": number(last), "since": stamp(since)})
}

// values returns the parameters of a request, without the empty ones.
func values(all map[string]string) url.Values {
	v := url.Values{}
	for name, value := range all {
		if value != "" {
			v.Set(name, value)
		}
	}
	return v
}

// number is a parameter that is empty for 0.
func number(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// stamp is a parameter that is empty for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// Timeline yields the lines of a session's timeline, oldest first. With q.Follow it goes on with
// new lines until the session ends or ctx does (docs/admin-api.md, GET /api/v1/sessions/{id}/log).
func (c *Client) Timeline(
	ctx context.Context, id string, q LogQuery,
) iter.Seq2[adminapi.TimelineLine, error] {
	return decoded[adminapi.TimelineLine](stream(ctx, c, http.MethodGet, sessionPath(id, "log"),
		q.values(), nil))
}

// RuntimeEvents yields the buffered events of a session's runtime, each as the gateway sent it: an
// [adminapi.RuntimeEvent]. With q.Follow it goes on until the session ends. It fails with
// INVALID_STATE for a session without a runtime (docs/admin-api.md, GET /api/v1/sessions/{id}/log).
func (c *Client) RuntimeEvents(
	ctx context.Context, id string, q LogQuery,
) iter.Seq2[json.RawMessage, error] {
	v := q.values()
	v.Set("events", "1")
	return decoded[json.RawMessage](stream(ctx, c, http.MethodGet, sessionPath(id, "log"), v, nil))
}

// Record yields the lines of a recording of a session, from now on until the session ends: first an
// [adminapi.RecordingStart], then each an [adminapi.RecordingLine] (docs/recordings.md). Tokens are
// removed.
func (c *Client) Record(ctx context.Context, id string) iter.Seq2[json.RawMessage, error] {
	return decoded[json.RawMessage](stream(ctx, c, http.MethodGet, sessionPath(id, "recording"),
		nil, nil))
}

// Usage returns the tokens that a session's models read and wrote, and their cost: in all, by model
// and by turn (docs/admin-api.md, GET /api/v1/sessions/{id}/usage).
func (c *Client) Usage(ctx context.Context, id string) (adminapi.Usage, error) {
	return get[adminapi.Usage](ctx, c, sessionPath(id, "usage"), nil)
}

// Push pushes an event or a prompt to a session and returns its fate; one of p.Event and p.Prompt
// is required. With p.Wait it returns when the turn that the push started has ended
// (docs/admin-api.md, POST /api/v1/sessions/{id}/push).
func (c *Client) Push(ctx context.Context, id string, p adminapi.Push) (adminapi.Receipt, error) {
	return post[adminapi.Receipt](ctx, c, sessionPath(id, "push"), p)
}

// Keep stores an event of level keep for the next session. The gateway stores the newest 100
// events, 1 MiB at most. If a session runs already, the event goes to the foreground session
// (docs/admin-api.md, POST /api/v1/push).
func (c *Client) Keep(ctx context.Context, k adminapi.Keep) (adminapi.Receipt, error) {
	return post[adminapi.Receipt](ctx, c, "/push", k)
}

// Broadcast pushes an event to all sessions of all gateways of the cluster. Its stream must be one
// that lasts (docs/admin-api.md, POST /api/v1/cluster/push).
func (c *Client) Broadcast(ctx context.Context, b adminapi.Broadcast) (adminapi.Receipt, error) {
	return post[adminapi.Receipt](ctx, c, "/cluster/push", b)
}

// KeptHistory returns events that the gateways of the cluster keep and that match q, newest first
// (docs/admin-api.md, GET /api/v1/cluster/history).
func (c *Client) KeptHistory(ctx context.Context, q HistoryQuery) (adminapi.KeptHistory, error) {
	return get[adminapi.KeptHistory](ctx, c, "/cluster/history", q.values())
}

// HistoryQuery chooses entries of a session's streams for [Client.History] and
// [Client.FollowHistory]. A stream without a provider matches that stream of every provider.
type HistoryQuery struct {
	Streams []string  // STREAM or STREAM@PROVIDER; empty: all streams
	Last    int       // of each stream; 0: 20
	Since   time.Time // only newer ones; the zero time: all
}

func (q HistoryQuery) values() url.Values {
	v := lastSince(q.Last, q.Since)
	v["stream"] = q.Streams
	return v
}

// History returns entries of a session's streams that match q, newest first (docs/admin-api.md, GET
// /api/v1/sessions/{id}/history). It may be empty.
func (c *Client) History(
	ctx context.Context, id string, q HistoryQuery,
) ([]adminapi.StreamRow, error) {
	return get[[]adminapi.StreamRow](ctx, c, sessionPath(id, "history"), q.values())
}

// FollowHistory yields the entries of [Client.History], but oldest first, and then each new one
// until the session ends or ctx does (docs/admin-api.md, GET /api/v1/sessions/{id}/history).
func (c *Client) FollowHistory(
	ctx context.Context, id string, q HistoryQuery,
) iter.Seq2[adminapi.StreamRow, error] {
	v := q.values()
	v.Set("follow", "1")
	return decoded[adminapi.StreamRow](stream(ctx, c, http.MethodGet, sessionPath(id, "history"), v,
		nil))
}

// Call calls a tool as the session's model would, through gates and limits. A call that failed is
// no error: the result has an ErrorCode. A tool that does not exist is [cli.ExitNotFound]
// (docs/admin-api.md, POST /api/v1/sessions/{id}/tools/{name}/call).
func (c *Client) Call(
	ctx context.Context, id, tool string, call adminapi.Call,
) (adminapi.CallResult, error) {
	return post[adminapi.CallResult](ctx, c, sessionPath(id, "tools/"+url.PathEscape(tool)+"/call"),
		call)
}

// Providers returns the connections of providers, in the order in which they were made. A provider
// with several connections is there several times (docs/admin-api.md, GET /api/v1/providers).
func (c *Client) Providers(ctx context.Context) ([]adminapi.Provider, error) {
	return get[[]adminapi.Provider](ctx, c, "/providers", nil)
}

// Cluster returns the sessions and providers of all gateways that this one has joined, and its view
// of these gateways (docs/admin-api.md, GET /api/v1/cluster).
func (c *Client) Cluster(ctx context.Context) (adminapi.Cluster, error) {
	return get[adminapi.Cluster](ctx, c, "/cluster", nil)
}

// StopProvider stops the processes of a provider that a file names; for any other name it closes
// all connections of that name. It returns how many processes or connections (docs/admin-api.md,
// POST /api/v1/providers/{name}/stop).
func (c *Client) StopProvider(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.Stopped](ctx, c, providerPath(name, "stop"), adminapi.Nothing{})
	return answer.Stopped, err
}

// StartProvider starts a provider that a file names and that was stopped or has failed too often.
// It returns how many processes it started (docs/admin-api.md, POST
// /api/v1/providers/{name}/start).
func (c *Client) StartProvider(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.StartedProvider](ctx, c, providerPath(name, "start"),
		adminapi.Nothing{})
	return answer.Started, err
}

// RestartProvider replaces the running processes of a provider that a file names by new ones, and
// waits for them (docs/admin-api.md, POST /api/v1/providers/{name}/restart).
func (c *Client) RestartProvider(ctx context.Context, name string) (adminapi.Restarted, error) {
	return post[adminapi.Restarted](ctx, c, providerPath(name, "restart"), adminapi.Nothing{})
}

// LoginProvider logs in at the MCP server of a provider that a file names. It yields the link that
// a person opens, and then the end of the login; a login that fails is an error. Leaving the
// sequence ends the login. With file the gateway also writes a page on its own machine that leads
// to the link (POST /api/v1/providers/{name}/login).
func (c *Client) LoginProvider(
	ctx context.Context, name string, file bool,
) iter.Seq2[adminapi.LoginStep, error] {
	body := adminapi.LoginRequest{File: file}
	steps := decoded[adminapi.LoginStep](stream(ctx, c, http.MethodPost,
		providerPath(name, "login"), nil, body))
	return func(yield func(adminapi.LoginStep, error) bool) {
		isDone := false
		for step, err := range steps {
			if step.Error != nil {
				err = loginFailure(*step.Error)
			}
			isDone = isDone || step.Done
			if !yield(step, err) || err != nil {
				return
			}
		}
		if !isDone {
			yield(adminapi.LoginStep{},
				cli.Failed("the gateway ended before the login did; try again"))
		}
	}
}

func loginFailure(f adminapi.Failure) error {
	e := &cli.Error{Exit: cli.ExitFailed, Code: f.Code, Message: f.Message}
	switch protocol.Code(f.Code) {
	case protocol.CodeDenied:
		e.Exit = cli.ExitRefused
	case protocol.CodeTimeout:
		e.Exit = cli.ExitTimedOut
	}
	return e
}

// LogoutProvider forgets the login of a provider, and reports whether there was one
// (docs/admin-api.md, POST /api/v1/providers/{name}/logout).
func (c *Client) LogoutProvider(ctx context.Context, name string) (bool, error) {
	answer, err := post[adminapi.LoggedOut](ctx, c, providerPath(name, "logout"),
		adminapi.Nothing{})
	return answer.LoggedOut, err
}

// Configured returns the providers that config files name, connected or not, in the order of their
// files. Each has a state and its reason (docs/admin-api.md, GET /api/v1/providers/configured).
func (c *Client) Configured(ctx context.Context) ([]adminapi.ConfiguredProvider, error) {
	return get[[]adminapi.ConfiguredProvider](ctx, c, "/providers/configured", nil)
}

// Sources returns the sources of events that config files name, by name and session
// (docs/admin-api.md, GET /api/v1/sources).
func (c *Client) Sources(ctx context.Context) ([]adminapi.Source, error) {
	return get[[]adminapi.Source](ctx, c, "/sources", nil)
}

// Goals returns the goals of a session, or of all for "", oldest first (docs/admin-api.md, GET
// /api/v1/goals).
func (c *Client) Goals(ctx context.Context, session string) ([]adminapi.Goal, error) {
	return get[[]adminapi.Goal](ctx, c, "/goals", values(map[string]string{"session": session}))
}

// Goal returns a goal by its id (docs/admin-api.md, GET /api/v1/goals/{goal}).
func (c *Client) Goal(ctx context.Context, id string) (adminapi.Goal, error) {
	return get[adminapi.Goal](ctx, c, "/goals/"+url.PathEscape(id), nil)
}

// StartGoal starts a goal for a session without a goal (docs/admin-api.md, POST /api/v1/goals).
func (c *Client) StartGoal(ctx context.Context, r adminapi.GoalRequest) (adminapi.Goal, error) {
	return post[adminapi.Goal](ctx, c, "/goals", r)
}

// StopGoal stops an active goal (docs/admin-api.md, POST /api/v1/goals/{goal}/stop).
func (c *Client) StopGoal(ctx context.Context, id, reason string) (adminapi.Goal, error) {
	return post[adminapi.Goal](ctx, c, "/goals/"+url.PathEscape(id)+"/stop",
		adminapi.GoalStop{Reason: reason})
}

// Records finds records, oldest first, also of sessions that have ended (docs/admin-api.md, GET
// /api/v1/records).
func (c *Client) Records(ctx context.Context, q adminapi.RecordQuery) (adminapi.Records, error) {
	return get[adminapi.Records](ctx, c, "/records", values(map[string]string{
		"kind": q.Kind, "session": q.Session, "provider": q.Provider, "tool": q.Tool,
		"outcome": q.Outcome, "trace": q.Trace, "since": stamp(q.Since), "until": stamp(q.Until),
		"last": number(q.Last),
	}))
}

// RunSource makes a source run now, whatever its schedule. It returns the number of sessions for
// which it runs (docs/admin-api.md, POST /api/v1/sources/{name}/run).
func (c *Client) RunSource(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.StartedProvider](
		ctx, c, "/sources/"+url.PathEscape(name)+"/run", adminapi.Nothing{})
	return answer.Started, err
}

// ProviderLog returns lines of a provider that a file names, oldest first: its output, and the
// starts and ends of its processes. The gateway stores only the last lines (docs/admin-api.md, GET
// /api/v1/providers/{name}/log).
func (c *Client) ProviderLog(ctx context.Context, name string, q LogQuery) ([]string, error) {
	return get[[]string](ctx, c, providerPath(name, "log"), q.values())
}

// FollowProviderLog yields the lines of [Client.ProviderLog] and then each new one, with time and
// source, until the provider's file is removed. It sets q.Follow (docs/admin-api.md, GET
// /api/v1/providers/{name}/log).
func (c *Client) FollowProviderLog(
	ctx context.Context, name string, q LogQuery,
) iter.Seq2[adminapi.TimelineLine, error] {
	q.Follow = true
	return decoded[adminapi.TimelineLine](stream(ctx, c, http.MethodGet, providerPath(name, "log"),
		q.values(), nil))
}

// Reload makes the gateway read its config and provider files now. It returns the mistakes in them
// and the settings that need a new start; they are not errors (docs/admin-api.md, POST
// /api/v1/reload).
func (c *Client) Reload(ctx context.Context) ([]adminapi.Fault, error) {
	answer, err := post[adminapi.Faults](ctx, c, "/reload", adminapi.Nothing{})
	return answer.Faults, err
}

// Shutdown makes the gateway end, as SIGTERM does. It returns when the gateway has begun to
// (docs/admin-api.md, POST /api/v1/shutdown).
func (c *Client) Shutdown(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/shutdown", nil, adminapi.Nothing{}, nil)
}

// Tools returns the providers' tools of the session with that id, or with "" the tools of all
// sessions. Each tool names its provider and its session (docs/admin-api.md, GET /api/v1/tools).
func (c *Client) Tools(ctx context.Context, session string) ([]adminapi.Tool, error) {
	return get[[]adminapi.Tool](ctx, c, "/tools", values(map[string]string{"session": session}))
}

// Pairings returns the pairing codes that no user has typed into their provider yet, each with the
// time at which it expires (docs/admin-api.md, GET /api/v1/pairings; docs/protocol.md, Pairing).
func (c *Client) Pairings(ctx context.Context) ([]adminapi.Pairing, error) {
	return get[[]adminapi.Pairing](ctx, c, "/pairings", nil)
}

// Models returns the models that sessions of a kind can use. host is the kind, for example
// "copilot"; "" is the gateway's default (docs/admin-api.md, GET /api/v1/models).
func (c *Client) Models(ctx context.Context, host string) ([]adminapi.Model, error) {
	return get[[]adminapi.Model](ctx, c, "/models", values(map[string]string{"host": host}))
}

// SigninLink makes a link that signs a browser in, once, within two minutes. With file the gateway
// also writes a page on its own machine that leads to the link (docs/admin-api.md, POST
// /api/v1/signin-links).
func (c *Client) SigninLink(ctx context.Context, file bool) (adminapi.SigninLink, error) {
	return post[adminapi.SigninLink](ctx, c, "/signin-links", adminapi.SigninRequest{File: file})
}

// SignOut signs all browsers out, because the request has the admin token and no cookie. Their
// pages need a new sign-in link (docs/admin-api.md, POST /api/v1/signout).
func (c *Client) SignOut(ctx context.Context) error {
	_, err := post[adminapi.Nothing](ctx, c, "/signout", adminapi.Nothing{})
	return err
}

// TerminalHook asks for the answer to the hook of a Copilot CLI in a terminal (docs/admin-api.md,
// POST /api/v1/terminals/hooks).
func (c *Client) TerminalHook(
	ctx context.Context, h adminapi.TerminalHook,
) (json.RawMessage, error) {
	answer, err := post[adminapi.TerminalAnswer](ctx, c, "/terminals/hooks", h)
	return answer.Output, err
}

// Terminals returns the Copilot CLIs in terminals that have joined the gateway, oldest first
// (docs/admin-api.md, GET /api/v1/terminals).
func (c *Client) Terminals(ctx context.Context) ([]adminapi.Terminal, error) {
	return get[[]adminapi.Terminal](ctx, c, "/terminals", nil)
}

// AttachTerminal has the gateway join the terminal with a loopback port, which was started with
// `copilot --ui-server`.
func (c *Client) AttachTerminal(ctx context.Context, port int) (adminapi.TerminalAttached, error) {
	return post[adminapi.TerminalAttached](ctx, c, "/terminals",
		adminapi.TerminalAttach{Port: port})
}
