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
)

// Status returns the gateway's state.
func (c *Client) Status(ctx context.Context) (adminapi.Status, error) {
	return get[adminapi.Status](ctx, c, "/status", nil)
}

// Sessions lists the sessions.
func (c *Client) Sessions(ctx context.Context) ([]adminapi.Session, error) {
	return get[[]adminapi.Session](ctx, c, "/sessions", nil)
}

// Session returns one session.
func (c *Client) Session(ctx context.Context, id string) (adminapi.Session, error) {
	return get[adminapi.Session](ctx, c, sessionPath(id, ""), nil)
}

// Start starts a session and returns its id.
func (c *Client) Start(ctx context.Context, r adminapi.StartRequest) (id string, err error) {
	started, err := post[adminapi.Started](ctx, c, "/sessions", r)
	return started.ID, err
}

// PersistedFilter chooses sessions on disk. An empty field chooses all.
type PersistedFilter struct {
	CWD, Repository, Branch string
	Last                    int // at most so many
}

// Persisted lists the sessions on disk, the last used first.
func (c *Client) Persisted(ctx context.Context, f PersistedFilter) ([]adminapi.Persisted, error) {
	q := url.Values{}
	for name, value := range map[string]string{"cwd": f.CWD, "repository": f.Repository, "branch": f.Branch} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Last > 0 {
		q.Set("last", strconv.Itoa(f.Last))
	}
	return get[[]adminapi.Persisted](ctx, c, "/persisted", q)
}

// Resume makes a session on disk one of the gateway's again.
func (c *Client) Resume(ctx context.Context, id string, r adminapi.ResumeRequest) error {
	_, err := post[adminapi.Started](ctx, c, "/persisted/"+url.PathEscape(id)+"/resume", r)
	return err
}

// Delete removes a session from the disk.
func (c *Client) Delete(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/persisted/"+url.PathEscape(id), nil, nil, nil)
}

// SetModel changes the model of a running session.
func (c *Client) SetModel(ctx context.Context, id string, r adminapi.ModelRequest) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "model"), r)
	return err
}

// Stop ends a session.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, sessionPath(id, ""), nil, nil, nil)
}

// Send gives a session a prompt and does not wait for the turn.
func (c *Client) Send(ctx context.Context, id string, q adminapi.Query) error {
	q.Detach = true
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "query"), q)
	return err
}

// Query gives a session a prompt and follows its turn. The last line has the End, with the
// turn's error if it failed.
func (c *Client) Query(ctx context.Context, id string, q adminapi.Query) iter.Seq2[LiveLine, error] {
	q.Detach = false
	return decoded[LiveLine](stream(ctx, c, http.MethodPost, sessionPath(id, "query"), nil, q))
}

// LiveLine is a line of [Client.Live] or [Client.Query]: a callback, or the end of a turn.
type LiveLine struct {
	adminapi.Callback
	End *adminapi.TurnEnd // of the last line of a query; nil in any other line
	Raw json.RawMessage   // the line as it came
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *LiveLine) UnmarshalJSON(data []byte) error {
	*l = LiveLine{Raw: append(json.RawMessage{}, data...)}
	var end adminapi.TurnEnd
	if err := json.Unmarshal(data, &end); err == nil && end.Done {
		l.End = &end
		return nil
	}
	return json.Unmarshal(data, &l.Callback)
}

// Questions lists the questions of all sessions that wait for a person, oldest first.
func (c *Client) Questions(ctx context.Context) ([]adminapi.Question, error) {
	return get[[]adminapi.Question](ctx, c, "/questions", nil)
}

// Answer answers a question of a session.
func (c *Client) Answer(ctx context.Context, id string, a adminapi.Answer) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "answer"), a)
	return err
}

// Live follows a session's callbacks until it ends.
func (c *Client) Live(ctx context.Context, id string) iter.Seq2[LiveLine, error] {
	return decoded[LiveLine](stream(ctx, c, http.MethodGet, sessionPath(id, "live"), nil, nil))
}

// Interrupt ends a session's turn. It returns the beginnings of the prompts that were queued
// behind the turn and are dropped with it.
func (c *Client) Interrupt(ctx context.Context, id, reason string) (dropped []string, err error) {
	answer, err := post[adminapi.Interrupted](ctx, c, sessionPath(id, "interrupt"), adminapi.Interrupt{Reason: reason})
	return answer.Dropped, err
}

// Foreground makes a session the foreground session.
func (c *Client) Foreground(ctx context.Context, id string) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "foreground"), adminapi.Nothing{})
	return err
}

// Rename gives a session another label.
func (c *Client) Rename(ctx context.Context, id, label string) error {
	_, err := post[adminapi.Nothing](ctx, c, sessionPath(id, "rename"), adminapi.RenameRequest{Label: label})
	return err
}

// LogQuery chooses lines of a log.
type LogQuery struct {
	Follow bool      // the coming ones, too
	Last   int       // of those that there are; 0: all
	Since  time.Time // none that is older; the zero time: all
}

func (q LogQuery) values() url.Values {
	v := lastSince(q.Last, q.Since)
	if q.Follow {
		v.Set("follow", "1")
	}
	return v
}

func lastSince(last int, since time.Time) url.Values {
	v := url.Values{}
	if last > 0 {
		v.Set("last", strconv.Itoa(last))
	}
	if !since.IsZero() {
		v.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	return v
}

// Timeline returns a session's timeline. With q.Follow it goes on until the session ends.
func (c *Client) Timeline(ctx context.Context, id string, q LogQuery) iter.Seq2[adminapi.TimelineLine, error] {
	return decoded[adminapi.TimelineLine](stream(ctx, c, http.MethodGet, sessionPath(id, "log"), q.values(), nil))
}

// RuntimeEvents returns the buffered events of a session's runtime, each as the gateway sent
// it: an [adminapi.RuntimeEvent]. With q.Follow it goes on until the session ends.
func (c *Client) RuntimeEvents(ctx context.Context, id string, q LogQuery) iter.Seq2[json.RawMessage, error] {
	v := q.values()
	v.Set("events", "1")
	return decoded[json.RawMessage](stream(ctx, c, http.MethodGet, sessionPath(id, "log"), v, nil))
}

// Usage returns what a session's models read, wrote and cost.
func (c *Client) Usage(ctx context.Context, id string) (adminapi.Usage, error) {
	return get[adminapi.Usage](ctx, c, sessionPath(id, "usage"), nil)
}

// Push pushes an event or a prompt to a session. With p.Wait it returns when the turn that
// the push started has ended.
func (c *Client) Push(ctx context.Context, id string, p adminapi.Push) (adminapi.Receipt, error) {
	return post[adminapi.Receipt](ctx, c, sessionPath(id, "push"), p)
}

// Keep stores an event of level keep for the next session, while there is none.
func (c *Client) Keep(ctx context.Context, k adminapi.Keep) (adminapi.Receipt, error) {
	return post[adminapi.Receipt](ctx, c, "/push", k)
}

// HistoryQuery chooses entries of streams.
type HistoryQuery struct {
	Streams []string  // STREAM or STREAM@PROVIDER; none: all streams
	Last    int       // of each stream; 0: 20
	Since   time.Time // none that is older; the zero time: all
}

func (q HistoryQuery) values() url.Values {
	v := lastSince(q.Last, q.Since)
	v["stream"] = q.Streams
	return v
}

// History returns entries of streams, newest first.
func (c *Client) History(ctx context.Context, id string, q HistoryQuery) ([]adminapi.StreamRow, error) {
	return get[[]adminapi.StreamRow](ctx, c, sessionPath(id, "history"), q.values())
}

// FollowHistory returns the same entries, oldest first, and the coming ones.
func (c *Client) FollowHistory(ctx context.Context, id string, q HistoryQuery) iter.Seq2[adminapi.StreamRow, error] {
	v := q.values()
	v.Set("follow", "1")
	return decoded[adminapi.StreamRow](stream(ctx, c, http.MethodGet, sessionPath(id, "history"), v, nil))
}

// Call calls a tool as the session's model would. A call that failed is no error: the result
// has an ErrorCode.
func (c *Client) Call(ctx context.Context, id, tool string, call adminapi.Call) (adminapi.CallResult, error) {
	return post[adminapi.CallResult](ctx, c, sessionPath(id, "tools/"+url.PathEscape(tool)+"/call"), call)
}

// Providers lists the providers' connections.
func (c *Client) Providers(ctx context.Context) ([]adminapi.Provider, error) {
	return get[[]adminapi.Provider](ctx, c, "/providers", nil)
}

// StopProvider stops the processes of a provider that a file names, or closes all connections
// of that name, and returns how many.
func (c *Client) StopProvider(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.Stopped](ctx, c, providerPath(name, "stop"), adminapi.Nothing{})
	return answer.Stopped, err
}

// StartProvider starts a provider that a file names and that was stopped or has failed. It
// returns how many processes it started.
func (c *Client) StartProvider(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.StartedProvider](ctx, c, providerPath(name, "start"), adminapi.Nothing{})
	return answer.Started, err
}

// RestartProvider stops the processes of a provider that a file names and starts it again. It
// returns how many processes it started.
func (c *Client) RestartProvider(ctx context.Context, name string) (int, error) {
	answer, err := post[adminapi.Restarted](ctx, c, providerPath(name, "restart"), adminapi.Nothing{})
	return answer.Restarted, err
}

// Configured lists the providers that files name, connected or not.
func (c *Client) Configured(ctx context.Context) ([]adminapi.ConfiguredProvider, error) {
	return get[[]adminapi.ConfiguredProvider](ctx, c, "/providers/configured", nil)
}

// ProviderLog returns the last lines of a provider that a file names, oldest first.
func (c *Client) ProviderLog(ctx context.Context, name string, q LogQuery) ([]string, error) {
	return get[[]string](ctx, c, providerPath(name, "log"), q.values())
}

// FollowProviderLog returns the same lines, and the coming ones.
func (c *Client) FollowProviderLog(
	ctx context.Context, name string, q LogQuery,
) iter.Seq2[adminapi.TimelineLine, error] {
	q.Follow = true
	return decoded[adminapi.TimelineLine](stream(ctx, c, http.MethodGet, providerPath(name, "log"), q.values(), nil))
}

// Reload makes the gateway read its files now, and returns the faults in them.
func (c *Client) Reload(ctx context.Context) ([]adminapi.Fault, error) {
	answer, err := post[adminapi.Faults](ctx, c, "/reload", adminapi.Nothing{})
	return answer.Faults, err
}

// Tools lists the tools of a session, "" for those of all sessions.
func (c *Client) Tools(ctx context.Context, session string) ([]adminapi.Tool, error) {
	return get[[]adminapi.Tool](ctx, c, "/tools", optional("session", session))
}

// Pairings lists the pairing codes that nobody has typed yet.
func (c *Client) Pairings(ctx context.Context) ([]adminapi.Pairing, error) {
	return get[[]adminapi.Pairing](ctx, c, "/pairings", nil)
}

// Models lists the models of a kind of session, "" for the default kind.
func (c *Client) Models(ctx context.Context, host string) ([]adminapi.Model, error) {
	return get[[]adminapi.Model](ctx, c, "/models", optional("host", host))
}

// SigninLink makes a link that signs a browser in. With file it also writes a page, on the
// gateway's machine, that leads to the link.
func (c *Client) SigninLink(ctx context.Context, file bool) (adminapi.SigninLink, error) {
	return post[adminapi.SigninLink](ctx, c, "/signin-links", adminapi.SigninRequest{File: file})
}

// SignOut signs all browsers out.
func (c *Client) SignOut(ctx context.Context) error {
	_, err := post[adminapi.Nothing](ctx, c, "/signout", adminapi.Nothing{})
	return err
}
