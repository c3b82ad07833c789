package server

import (
	"cmp"
	"context"
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

func (a *api) sessions(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, orEmpty(a.gateway.Sessions()))
}

func (a *api) start(w http.ResponseWriter, r *http.Request) error {
	var body adminapi.StartRequest
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	if err := checkDirectory("cwd", body.CWD); err != nil {
		return err
	}
	request, err := startRequest(body.ModelSettings)
	if err != nil {
		return err
	}
	request.Host = cmp.Or(body.Host, apiHostCopilot)
	request.CWD = filepath.Clean(body.CWD)
	if request.Label = body.Label; request.Label == "" {
		request.Label = git.Label(request.CWD)
	}
	s, err := a.gateway.Start(r.Context(), request)
	if err != nil {
		return err
	}
	a.settle(r.Context(), s)
	return writeJSON(w, http.StatusCreated, adminapi.Started{ID: s.ID()})
}

// settle waits until a session that has started has the gateway's own providers, so that its first prompt finds them.
func (a *api) settle(ctx context.Context, s *gateway.Session) {
	if a.supervisor != nil {
		a.supervisor.Settle(ctx, s.ID())
	}
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

func (a *api) view(w http.ResponseWriter, _ *http.Request, s *gateway.Session) error {
	return writeJSON(w, http.StatusOK, s.View())
}

func (a *api) stop(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	// The session ends even if the client goes away before.
	return done(w, s.Stop(context.WithoutCancel(r.Context()), "stopped by the user"))
}

func (a *api) interrupt(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.Interrupt
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	dropped, err := s.Interrupt(r.Context(), cmp.Or(body.Reason, "interrupted by the user"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, adminapi.Interrupted{Dropped: dropped})
}

func (a *api) foreground(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := readBody(w, r, &adminapi.Nothing{}); err != nil {
		return err
	}
	return done(w, a.gateway.SetForeground(s.ID()))
}

// mcpToken answers with the session's token for MCP clients.
func (a *api) mcpToken(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := readBody(w, r, &adminapi.Nothing{}); err != nil {
		return err
	}
	token, err := s.MCPToken()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, adminapi.MCPToken{Token: token})
}

// providerToken answers with a new token for a provider of the session.
func (a *api) providerToken(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	if err := readBody(w, r, &adminapi.Nothing{}); err != nil {
		return err
	}
	token, err := s.ProviderToken()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, adminapi.ProviderToken{Token: token})
}

func (a *api) rename(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.RenameRequest
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	return done(w, s.Rename(r.Context(), body.Label))
}

// keep stores an event for the next session, while no session runs.
func (a *api) keep(w http.ResponseWriter, r *http.Request) error {
	var body adminapi.Keep
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	m, err := toPush(adminapi.Push{Stream: body.Stream, Event: body.Event, Metadata: body.Metadata}, protocol.LevelKeep)
	if err != nil {
		return err
	}
	receipt, err := a.gateway.StoreEvent(r.Context(), cmp.Or(body.Provider, apiPusher), m)
	return answerReceipt(w, receipt, err)
}

func (a *api) push(w http.ResponseWriter, r *http.Request, s *gateway.Session) error {
	var body adminapi.Push
	if err := readBody(w, r, &body); err != nil {
		return err
	}
	pusher := cmp.Or(body.Provider, apiPusher)
	if !protocol.ValidName(pusher) {
		return fieldError("provider",
			"must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit")
	}
	m, err := toPush(body, cmp.Or(protocol.Level(body.Level), protocol.LevelSurface))
	if err != nil {
		return err
	}
	m.Traceparent = spans.FromHeader(r.Header)
	push := s.Push
	if body.Wait {
		push = s.PushAndWait
	}
	receipt, err := push(r.Context(), pusher, m)
	return answerReceipt(w, receipt, err)
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

func answerReceipt(w http.ResponseWriter, r gateway.Receipt, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, adminapi.Receipt{Seq: r.Seq, Fate: r.Fate, Reason: r.Reason})
}
