package copilot

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/git"
	"tapgw/internal/lazyregexp"
)

// Sessions on the runtime's disk: their metadata, their list, and how they are resumed.

// The keys of a session's metadata in the runtime, from which the next gateway resumes the session.
// Secrets are not stored.
const (
	metaHost     = "tapgw/host"
	metaLabel    = "tapgw/label"
	metaProfile  = "tapgw/profile"
	metaModel    = "tapgw/model"
	metaEffort   = "tapgw/effort"
	metaEndpoint = "tapgw/endpoint" // the URL of its endpoint if the request named it
	metaToken    = "tapgw/token"    // tokenOwn: the request had a GitHub token

	metaRepository = "tapgw/repository" // of its directory, when it started
	metaBranch     = "tapgw/branch"
)

const tokenOwn = "own"

// metadata returns the facts about a session that are stored when it starts.
func (s *session) metadata() map[string]string {
	model, effort := s.chosenModel()
	s.mu.Lock()
	label := s.label
	s.mu.Unlock()
	at, _ := git.Of(s.cwd)
	return map[string]string{
		metaHost: Kind, metaLabel: label, metaProfile: s.profile, metaModel: model,
		metaEffort:     effort,
		metaEndpoint:   s.requestURL,
		metaRepository: at.Repository, metaBranch: at.Branch,
		metaToken: map[bool]string{true: tokenOwn}[s.hasRequestToken],
	}
}

// storeMetadata stores values in the session's metadata. Runtimes without metadata keep a session
// all the same.
func (s *session) storeMetadata(ctx context.Context, c *conn, set map[string]string) error {
	err := execute(ctx, c.process, askTimeout, func(ctx context.Context) error {
		_, err := c.sdk.RPC.Metadata.UpdateClientMetadata(ctx,
			&rpc.MetadataUpdateClientMetadataRequest{Set: set})
		return err
	})
	if err != nil && !methodNotFound(err) {
		return fmt.Errorf("noting what the session is: %w", err)
	}
	return nil
}

// SetLabel is [gateway.HostInfo].SetLabel.
func (s *session) SetLabel(ctx context.Context, label string) error {
	s.mu.Lock()
	s.label = label // a session that is resumed from now on gets this label
	s.mu.Unlock()
	c, err := s.waitConn(ctx)
	if err != nil {
		return err
	}
	return s.storeMetadata(ctx, c, map[string]string{metaLabel: label})
}

// Persisted implements [gateway.PersistentStarter].
func (r *Runtime) Persisted(
	ctx context.Context, f gateway.PersistedFilter,
) ([]adminapi.Persisted, error) {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return nil, internalError(err)
	}
	// The runtime knows the repository only of sessions in a terminal, so the filter by repository
	// is ours.
	list, err := askClient(ctx, p, askTimeout, func(ctx context.Context) ([]sdk.SessionMetadata,
		error) {
		return p.client.ListSessions(ctx, &sdk.SessionListFilter{WorkingDirectory: f.CWD})
	})
	if err != nil {
		return nil, internalError(fmt.Errorf("listing the sessions on disk: %w", err))
	}
	var views []adminapi.Persisted
	var ids []string
	for _, m := range list {
		v := r.persistedView(m)
		if !m.IsRemote && (f.Repository == "" || v.Repository == f.Repository) &&
			(f.Branch == "" || v.Branch == f.Branch) {
			views, ids = append(views, v), append(ids, v.ID)
		}
	}
	used, err := r.inUse(ctx, p, ids)
	if err != nil {
		return nil, internalError(err)
	}
	for i := range views {
		if slices.Contains(used, views[i].ID) {
			views[i].State = adminapi.PersistedInUse
		}
	}
	slices.SortStableFunc(views, func(a, b adminapi.Persisted) int {
		return b.UsedAt.Compare(a.UsedAt)
	})
	if f.Last > 0 && len(views) > f.Last {
		views = views[:f.Last]
	}
	return views, nil
}

// persistedView describes a session on disk, from the runtime's list and the gateway's metadata.
func (r *Runtime) persistedView(m sdk.SessionMetadata) adminapi.Persisted {
	noted := r.metadataOf(m.SessionID)
	v := adminapi.Persisted{
		ID: m.SessionID, Label: noted[metaLabel], Host: noted[metaHost], Model: noted[metaModel],
		Profile:    noted[metaProfile],
		Repository: noted[metaRepository], Branch: noted[metaBranch], Summary: deref(m.Summary),
		State:     adminapi.PersistedStored,
		StartedAt: m.StartTime.UTC().Truncate(time.Millisecond),
		UsedAt:    m.ModifiedTime.UTC().Truncate(time.Millisecond),
	}
	if c := m.Context; c != nil {
		v.CWD = c.WorkingDirectory
		v.Repository, v.Branch = cmp.Or(c.Repository, v.Repository), cmp.Or(c.Branch, v.Branch)
	}
	return v
}

// Where the runtime stores a session's metadata, below its home. The SDK's call that reads it for
// sessions that are not open can't decode the answer.
const (
	sessionsDir  = "session-state"
	metadataFile = "client-metadata.json"
)

func (r *Runtime) sessionDir(id string) string {
	return filepath.Join(cmp.Or(r.o.Home, configs.Home()), sessionsDir, filepath.Base(id))
}

// metadataOf reads a session's metadata from the disk. It returns nil if there is no metadata in a
// known format.
func (r *Runtime) metadataOf(id string) map[string]string {
	data, err := os.ReadFile(filepath.Join(r.sessionDir(id), metadataFile))
	if err != nil {
		return nil // the session is another program's, or an older runtime's
	}
	var kept struct {
		Version  int               `json:"version"`
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(data, &kept) != nil || kept.Version != 1 {
		return nil
	}
	return kept.Metadata
}

// inUse returns those of the sessions that another process uses.
func (r *Runtime) inUse(ctx context.Context, p *process, ids []string) ([]string, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	got, err := askClient(ctx, p, askTimeout,
		func(ctx context.Context) (*rpc.SessionsCheckInUseResult, error) {
			return p.client.RPC.Sessions.CheckInUse(ctx,
				&rpc.SessionsCheckInUseRequest{SessionIDs: ids})
		})
	switch {
	case err != nil && methodNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("asking who uses the sessions on disk: %w", err)
	}
	return slices.DeleteFunc(got.InUse, func(id string) bool {
		pids := r.usingProcesses(id)
		return len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool {
			return !isZombie(pid)
		})
	}), nil
}

// usingProcesses returns the processes whose lock files say that they use a session.
func (r *Runtime) usingProcesses(id string) (pids []int) {
	files, _ := filepath.Glob(filepath.Join(r.sessionDir(id), "inuse.*.lock"))
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "inuse."), ".lock")
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isZombie reports whether a process has ended without being waited for. The runtime takes such a
// process for a running one. The runtime of a killed gateway becomes a zombie in a container whose
// first process does not wait for orphans.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// sessionID matches the session ids that the runtime accepts.
var sessionID = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// findStored returns a session on disk that no process uses. Errors are NOT_FOUND, and
// INVALID_STATE if one uses it.
func (r *Runtime) findStored(
	ctx context.Context, p *process, id string,
) (*sdk.SessionMetadata, error) {
	if !sessionID.MatchString(id) {
		return nil, gateway.NotPersisted(id)
	}
	m, err := askClient(ctx, p, askTimeout, func(ctx context.Context) (*sdk.SessionMetadata,
		error) {
		return p.client.GetSessionMetadata(ctx, id)
	})
	switch {
	case err != nil:
		return nil, internalError(fmt.Errorf("looking for session %s on disk: %w", id, err))
	case m == nil:
		return nil, gateway.NotPersisted(id)
	}
	used, err := r.inUse(ctx, p, []string{id})
	if err != nil {
		return nil, internalError(err)
	}
	if len(used) > 0 {
		who := "another process"
		if pids := r.usingProcesses(id); len(pids) > 0 {
			who = fmt.Sprintf("process %d", pids[0])
		}
		return nil,
			invalidState(
				"session %q is in use by %s, a terminal's or another gateway's: end it there first",
				id, who)
	}
	return m, nil
}

// Resume implements [gateway.PersistentStarter].
func (r *Runtime) Resume(
	ctx context.Context, g *gateway.Gateway, id string, req gateway.ResumeRequest,
) (*gateway.Session, error) {
	return registerWith(g, func(reg register) error { return r.restore(ctx, id, req, reg) })
}

func (r *Runtime) restore(
	ctx context.Context, id string, req gateway.ResumeRequest, reg register,
) error {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return fmt.Errorf("looking for session %q on disk: %w", id, internalError(err))
	}
	m, err := r.findStored(ctx, p, id)
	if err != nil {
		return err
	}
	start, err := resumeRequest(req.StartRequest, m, r.metadataOf(id))
	if err != nil {
		return err
	}
	s, err := r.newSession(ctx, id, start)
	if err != nil {
		return err
	}
	s.returns = true
	return r.open(
		ctx, s, start.Label, func(ctx context.Context, p *process) error {
			return s.reopen(ctx, p, req.Continue)
		}, reg,
	)
}

// resumeRequest completes a request to resume with the options that the session was started with.
// The request's own options win.
func resumeRequest(
	req gateway.StartRequest, m *sdk.SessionMetadata, noted map[string]string,
) (gateway.StartRequest, error) {
	req.Host = Kind
	if m.Context != nil {
		req.CWD = cmp.Or(req.CWD, m.Context.WorkingDirectory)
	}
	if info, err := os.Stat(req.CWD); req.CWD != "" && (err != nil || !info.IsDir()) {
		return req, invalidRequest("cwd: the session's directory %q is no more; name another",
			req.CWD)
	}
	if own := noted[metaEndpoint]; own != "" && req.ProviderURL == "" && req.Profile == "" {
		return req, invalidRequest("providerUrl: missing; "+
			"the session was started on the endpoint %s, of which no key is kept: name it again",
			own)
	}
	if noted[metaToken] == tokenOwn && req.GitHubToken == "" && req.Profile == "" {
		return req, invalidRequest("githubToken: missing; " +
			"the session was started with a GitHub token of its own, which is not kept: " +
			"name it again")
	}
	// The model of one profile may not exist in another.
	if req.Profile == "" || req.Profile == noted[metaProfile] {
		req.Profile = noted[metaProfile]
		req.Model, req.Effort = cmp.Or(req.Model, noted[metaModel]),
			cmp.Or(req.Effort, noted[metaEffort])
	}
	req.Label = cmp.Or(req.Label, noted[metaLabel], git.Label(req.CWD))
	return req, nil
}

// reopen resumes the session from the disk.
func (s *session) reopen(ctx context.Context, p *process, carryOn bool) error {
	gen := s.nextGen()
	// A turn that continues may call tools before the gateway knows whether the session needs
	// hooks.
	withHooks := carryOn || !p.canEnableHooksLater || s.needsHooks()
	cfg := s.resumeConfig(gen, withHooks)
	cfg.ContinuePendingWork = &carryOn
	resumed, err := askClient(ctx, p, createTimeout, func(ctx context.Context) (*sdk.Session,
		error) {
		return p.client.ResumeSession(ctx, s.id, cfg)
	})
	if err != nil {
		return err
	}
	c := &conn{process: p, sdk: resumed, gen: gen, hooksEnabled: withHooks}
	if err := s.storeMetadata(ctx, c, s.metadata()); err != nil {
		return err
	}
	if err := s.prepare(ctx, c); err != nil {
		return err
	}
	return s.readHistory(ctx, c, carryOn)
}

// Delete implements [gateway.PersistentStarter].
func (r *Runtime) Delete(ctx context.Context, id string) error {
	ctx, cancel := r.untilClosed(ctx)
	defer cancel()
	p, err := r.process(ctx)
	if err != nil {
		return fmt.Errorf("looking for session %q on disk: %w", id, internalError(err))
	}
	if _, err := r.findStored(ctx, p, id); err != nil {
		return err
	}
	_, err = askClient(ctx, p, askTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.client.DeleteSession(ctx, id)
	})
	if err != nil {
		return internalError(fmt.Errorf("deleting the session: %w", err))
	}
	return nil
}
