package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/git"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

func (a *api) start(r *http.Request, body adminapi.StartRequest) (any, error) {
	if err := checkDirectory("cwd", body.CWD); err != nil {
		return nil, err
	}
	request, err := startRequest(body.ModelSettings)
	if err != nil {
		return nil, err
	}
	request.Host = cmp.Or(body.Host, apiHostCopilot)
	request.CWD = filepath.Clean(body.CWD)
	if request.Label = body.Label; request.Label == "" {
		request.Label = git.Label(request.CWD)
	}
	s, err := a.gateway.Start(r.Context(), request)
	return a.started(r.Context(), s, err)
}

// started answers a request that started or resumed a session. It waits until the session has the
// gateway's own providers, so that its first prompt finds them.
func (a *api) started(ctx context.Context, s *gateway.Session, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	if a.o.Supervisor != nil {
		a.o.Supervisor.Settle(ctx, s.ID())
	}
	return created{adminapi.Started{ID: s.ID()}}, nil
}

// checkDirectory checks that a path is an absolute one of a directory. The error names the
// field.
func checkDirectory(field, path string) error {
	if path == "" {
		return fieldError(field, "is required: the session's working directory")
	}
	info, err := statPath(field, path)
	if err == nil && !info.IsDir() {
		return fieldError(field, "%q is not a directory", path)
	}
	return err
}

// statPath looks at the file or directory of an absolute path. The error names the field.
func statPath(field, path string) (os.FileInfo, error) {
	if !filepath.IsAbs(path) {
		return nil, fieldError(field, "%q must be an absolute path", path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fieldError(field, "%q does not exist", path)
	case err != nil:
		return nil, fieldError(field, "%v", err)
	}
	return info, nil
}

func (a *api) view(_ *http.Request, s *gateway.Session) (any, error) { return s.View(), nil }

func (a *api) stop(r *http.Request, s *gateway.Session) (any, error) {
	// The session ends even if the client goes away before.
	return adminapi.Nothing{}, s.Stop(context.WithoutCancel(r.Context()), "stopped by the user")
}

func (a *api) interrupt(r *http.Request, s *gateway.Session, body adminapi.Interrupt) (any, error) {
	dropped, err := s.Interrupt(r.Context(), cmp.Or(body.Reason, "interrupted by the user"))
	return adminapi.Interrupted{Dropped: dropped}, err
}

func (a *api) foreground(_ *http.Request, s *gateway.Session, _ adminapi.Nothing) (any, error) {
	return adminapi.Nothing{}, a.gateway.SetForeground(s.ID())
}

// mcpToken answers with the session's token for MCP clients.
func (a *api) mcpToken(_ *http.Request, s *gateway.Session, _ adminapi.Nothing) (any, error) {
	token, err := s.MCPToken()
	return adminapi.MCPToken{Token: token}, err
}

// providerToken answers with a new token for a provider of the session.
func (a *api) providerToken(_ *http.Request, s *gateway.Session, _ adminapi.Nothing) (any, error) {
	token, err := s.ProviderToken()
	return adminapi.ProviderToken{Token: token}, err
}

func (a *api) rename(r *http.Request, s *gateway.Session, b adminapi.RenameRequest) (any, error) {
	return adminapi.Nothing{}, s.Rename(r.Context(), b.Label)
}

// keep stores an event for the next session, while no session runs.
func (a *api) keep(r *http.Request, body adminapi.Keep) (any, error) {
	m, err := toPush(adminapi.Push{Stream: body.Stream, Event: body.Event, Metadata: body.Metadata},
		protocol.LevelKeep)
	if err != nil {
		return nil, err
	}
	return answerReceipt(a.gateway.StoreEvent(r.Context(), cmp.Or(body.Provider, apiPusher), m))
}

func (a *api) push(r *http.Request, s *gateway.Session, body adminapi.Push) (any, error) {
	pusher := cmp.Or(body.Provider, apiPusher)
	if !protocol.ValidName(pusher) {
		return nil, fieldError("provider",
			"must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
	m, err := toPush(body, cmp.Or(protocol.Level(body.Level), protocol.LevelSurface))
	if err != nil {
		return nil, err
	}
	m.Traceparent = spans.FromHeader(r.Header)
	push := s.Push
	if body.Wait {
		push = s.PushAndWait
	}
	return answerReceipt(push(r.Context(), pusher, m))
}

// toPush makes a message of a request and checks it. The error names the field.
func toPush(p adminapi.Push, level protocol.Level) (*protocol.Push, error) {
	m := &protocol.Push{
		Stream: cmp.Or(p.Stream, apiPusher), Event: p.Event, Prompt: p.Prompt,
		Level: level, Metadata: protocol.Raw(p.Metadata),
	}
	if err := protocol.Validate(m); err != nil {
		err.Message = strings.TrimPrefix(err.Message, "push.")
		return nil, err
	}
	return m, nil
}

func answerReceipt(r gateway.Receipt, err error) (any, error) {
	return adminapi.Receipt{Seq: r.Seq, Fate: r.Fate, Reason: r.Reason}, err
}

// usage answers with the usage of the session's models.
func (a *api) usage(r *http.Request, s *gateway.Session) (any, error) {
	p, err := readParams(r, "calls")
	if err != nil {
		return nil, err
	}
	withCalls, err := readFlag(p, "calls")
	u := s.Usage()
	if withCalls {
		u.ModelCalls = s.ModelCalls()
	}
	return u, err
}

// answer answers a question of a session: the named one, or its only one.
func (a *api) answer(_ *http.Request, s *gateway.Session, body adminapi.Answer) (any, error) {
	if body.Content != nil && kind(body.Content) != '{' {
		return nil, fieldError("content", "must be an object")
	}
	answer := gateway.Answer{Decision: body.Decision, Text: body.Text,
		Content: protocol.Raw(body.Content)}
	return adminapi.Nothing{}, s.Answer(body.Question, answer)
}

// kind is the first byte of a JSON value: '{' of an object, 'n' of null.
func kind(v json.RawMessage) byte { return byte(protocol.Raw(v).Kind()) }

func (a *api) editQueued(r *http.Request, s *gateway.Session, b adminapi.EditQueued) (any, error) {
	if strings.TrimSpace(b.Prompt) == "" {
		return nil, fieldError("prompt", "is required and must not be empty")
	}
	return adminapi.Nothing{}, s.EditQueued(r.PathValue("prompt"), b.Prompt)
}

func (a *api) cancelQueued(r *http.Request, s *gateway.Session) (any, error) {
	return adminapi.Nothing{}, s.CancelQueued(r.PathValue("prompt"))
}

func (a *api) sendQueued(r *http.Request, s *gateway.Session, _ adminapi.Nothing) (any, error) {
	return adminapi.Nothing{}, s.SendQueued(r.Context(), r.PathValue("prompt"))
}
