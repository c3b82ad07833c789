package copilot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
)

// sessionOptions are the options of a new session, from the config and the request together.
type sessionOptions struct {
	options  *Options
	cwd      string
	profile  configs.Profile
	provider *sdk.ProviderConfig // nil: GitHub's models
	token    string              // for GitHub; "": the runtime's
}

// checkRequest returns the options of the session that a request starts. Errors are INVALID_JSON
// for a fault of the request and INVALID_STATE for a fault of the config.
func (r *Runtime) checkRequest(
	ctx context.Context, req gateway.StartRequest,
) (so sessionOptions, err error) {
	if so.cwd = req.CWD; so.cwd == "" {
		if so.cwd, err = os.Getwd(); err != nil {
			return so, internalError(fmt.Errorf("finding the working directory: %w", err))
		}
	}
	if so.options, err = r.optionsAt(so.cwd); err != nil {
		return so, err
	}
	if so.profile, err = so.options.profileFor(req); err != nil {
		return so, err
	}
	if so.profile.Model, err = so.options.defaultModel(ctx, so.profile, req); err != nil {
		return so, err
	}
	if so.provider, err = so.options.endpointFor(so.profile, req); err != nil {
		return so, err
	}
	if so.provider != nil {
		if err := checkEndpoint(so.provider, so.profile.Model,
			so.profile.Provider.Models); err != nil {
			return so, err
		}
	}
	if so.token, err = so.options.githubToken(so.profile, req); err != nil {
		return so, err
	}
	return so, checkEffort(so.profile.Effort, configs.Efforts)
}

// newSession checks a request and makes a session of it, in no process yet.
func (r *Runtime) newSession(
	ctx context.Context, id string, req gateway.StartRequest,
) (*session, error) {
	so, err := r.checkRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	dir, err := r.privateDir()
	if err != nil {
		return nil, internalError(err)
	}
	s := &session{
		r: r, o: so.options, log: r.log.With("session", id), id: id, cwd: so.cwd,
		provider: so.provider, offeredModels: so.profile.Provider.Models,
		requestURL: req.ProviderURL, githubToken: so.token, hasRequestToken: req.GitHubToken != "",
		profile: req.Profile, firstModel: so.profile.Model, model: so.profile.Model,
		effort: so.profile.Effort, outputDir: filepath.Join(dir, id),
	}
	s.makeQueues()
	if s.baseConfig, err = newBaseConfig(so.profile, so.cwd, s.outputDir); err != nil {
		return nil, err
	}
	home, err := s.runtimeHome()
	if err != nil {
		return nil, internalError(err)
	}
	s.faults = append(
		s.o.limitProject(s.baseConfig, home),
		instruct(s.baseConfig, so.profile.Instructions, home,
			append([]string{dir}, s.o.Secrets...))...,
	)
	if s.o.ProjectHooks != nil {
		hooks, faults := s.o.ProjectHooks(so.cwd)
		s.projectHooks, s.faults = hooks, append(s.faults, faults...)
	}
	p, stricter := s.tighten()
	if stricter != "" {
		s.faults = append(s.faults, stricter)
	}
	s.skipsTools = p.CustomTool == configs.Allow
	s.hasLSP = !slices.Contains(s.baseConfig.ExcludedTools, lspTool)
	if err := os.MkdirAll(s.outputDir, 0o700); err != nil {
		return nil, internalError(fmt.Errorf("making a directory for large results: %w", err))
	}
	if r.o.SessionEnv != nil {
		s.shellFile = shellFile(s.outputDir)
		if err := os.WriteFile(s.shellFile, nil, 0o600); err != nil {
			return nil, internalError(fmt.Errorf("making a file for the shell's environment: %w",
				err))
		}
	}
	return s, nil
}

// makeQueues makes the queues, locks and channels that every session needs to run.
func (s *session) makeQueues() {
	s.ready, s.logged = make(chan struct{}), make(chan struct{})
	s.items, s.lines = newQueue[item](), newQueue[line]()
	s.sendLock, s.configLock = chans.NewLock(), chans.NewLock()
	s.up, s.toolsChanged = make(chan struct{}), make(chan struct{})
	s.everSet, s.inFlight = map[string]bool{}, map[string]context.CancelFunc{}
	s.sections.original = map[string]string{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
}
