package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/copilot"
	"tapgw/internal/gateway"
	"tapgw/internal/hooks"
	"tapgw/internal/mcpbridge"
	"tapgw/internal/sources"
	"tapgw/internal/supervisor"
)

// Changes of the config files apply while the gateway runs, or for new sessions.

// appliesAtOnce reports whether a changed key takes effect while the gateway runs: keys of
// [copilot] for new sessions. The other keys take effect at the gateway's next start.
func appliesAtOnce(key string) bool {
	switch key {
	case "log_level", "hosts", "max_connections", "mcp_tool_threshold", "copilot_tool_threshold",
		"inject_quiet", "api.auth", "records.enabled", "records.max_age", "records.max_bytes",
		"hooks",
		"terminals.without_gateway": // which tapgw hook reads

		return true
	case "copilot.cli", "copilot.github_host", "copilot.github_token_env":
		return false // the runtime's process has read them
	}
	return strings.HasPrefix(key, "copilot.")
}

// newFollower makes the follower of tapgw.toml for this gateway.
func (p *Process) newFollower(o Options) *configs.Follower[configs.Config] {
	var latest configs.Files
	return &configs.Follower[configs.Config]{
		Current: o.Config,
		Load: func() (configs.Config, configs.Faults, error) {
			if o.Load == nil {
				return o.Config, nil, nil
			}
			c, files, err := o.Load()
			latest = files
			if _, ok := errors.AsType[configs.Faults](err); err != nil && !ok {
				err = configs.Faults{files.Where("", err.Error())}
			}
			if err != nil {
				return c, nil, err
			}
			// The new api.auth may be too open for the address at which this gateway listens.
			withAPI := o.Config
			withAPI.API = c.API
			isTooOpen := configs.CheckListen(withAPI) != nil
			notes := append(files.Notes(), files.HookPrograms()...)
			for _, key := range configs.Changed(o.Config, c) {
				if !appliesAtOnce(key) || key == "api.auth" && isTooOpen {
					notes = append(notes,
						files.Where(key, key+": has changed; restart to apply it"))
				}
			}
			if isTooOpen {
				c.API = o.Config.API
			}
			return c, notes, nil
		},
		Report: func(f configs.Fault, isNote bool) {
			if isNote {
				p.log.Warn("config file", "fault", f.Error())
				return
			}
			p.log.Warn("fault in the config file: the settings from before stay", "fault",
				f.Error())
		},
		FaultsChanged: func() { p.gateway.Touch() },
		Apply: func(old, now configs.Config) {
			p.apply(o, old, now)
			keys := slices.DeleteFunc(configs.Changed(old, now), func(key string) bool {
				return !appliesAtOnce(key)
			})
			p.log.Info("settings applied", "keys", strings.Join(keys, " "))
			p.noteNewKeys(latest, keys)
		},
	}
}

// changedKey is a key of [copilot] that changed while sessions ran.
type changedKey struct {
	fault     configs.Fault // at the key's place
	changedAt time.Time
}

// noteNewKeys remembers changed keys that running sessions don't use.
func (p *Process) noteNewKeys(files configs.Files, keys []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range keys {
		if !strings.HasPrefix(key, "copilot.") {
			continue
		}
		if p.newKeys == nil {
			p.newKeys = map[string]changedKey{}
		}
		p.newKeys[key] = changedKey{files.Where(key, key), time.Now()}
		if n := p.sessionsBefore(p.newKeys[key].changedAt); n > 0 {
			p.log.Info("the setting holds for new sessions: running sessions keep the old one",
				"key", key, "running", n)
		}
	}
}

// sessionsBefore counts the running Copilot sessions that started before a time.
func (p *Process) sessionsBefore(t time.Time) (n int) {
	for _, s := range p.gateway.Sessions() {
		if s.Host == copilot.Kind && s.CreatedAt.Before(t) {
			n++
		}
	}
	return n
}

// newKeyFaults returns a fault for each changed key that running sessions don't use. It
// forgets the keys that all running sessions use.
func (p *Process) newKeyFaults() (faults configs.Faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(p.newKeys)) {
		k := p.newKeys[key]
		n := p.sessionsBefore(k.changedAt)
		if n == 0 {
			delete(p.newKeys, key)
			continue
		}
		running := "1 running session keeps the old value"
		if n > 1 {
			running = fmt.Sprintf("%d running sessions keep the old value", n)
		}
		k.fault.Message = fmt.Sprintf("%s: has changed and holds for new sessions; %s", key,
			running)
		faults = append(faults, k.fault)
	}
	return faults
}

// reloader is a supervisor whose Reload also reads tapgw.toml, and that logs in for its providers.
type reloader struct {
	*supervisor.Supervisor
	settings *configs.Follower[configs.Config]
	logins   *mcpbridge.Logins
	sources  *sources.Set
	// sourceDir is the directory with the state of the sources.
	sourceDir string
	webhooks  *webhookRecords
}

// Login logs in at the MCP server of a provider.
func (r reloader) Login(ctx context.Context, name string, show func(link string) error) error {
	p, err := r.Provider(name)
	if err != nil {
		return err
	}
	return r.logins.Login(ctx, p, show)
}

// Logout forgets the login of a provider, also of one that no file of the user's names any more.
func (r reloader) Logout(ctx context.Context, name string) (bool, error) {
	p, err := r.Provider(name)
	if err == nil {
		return r.logins.Logout(ctx, p)
	}
	had := false
	if configs.IsProviderName(name) {
		had, _ = r.logins.Logout(ctx, configs.Provider{Name: name})
	}
	if !had {
		return false, err
	}
	return true, nil
}

// Reload reads all files and applies them.
func (r reloader) Reload() {
	r.settings.Reload()
	r.Supervisor.Reload()
}

// apply makes this gateway use new settings; o are the options that it started with.
func (p *Process) apply(o Options, old, c configs.Config) {
	o.Config.Hosts, o.Config.API, o.Config.Copilot = c.Hosts, c.API, c.Copilot
	p.gateway.SetInjectQuiet(c.InjectQuiet)
	_ = o.Level.UnmarshalText([]byte(c.LogLevel)) // load has checked it
	if o.Key = ""; c.Copilot.ProviderURL != "" {
		o.Key = modelKey(c, p.log)
	}
	if c.API != old.API {
		warnOpenAPI(c, p.log)
	}
	p.server.Configure(o.hosts(), c.API.Auth == configs.AuthNone, c.MaxConnections)
	p.mcp.Configure(c.MCPToolThreshold)
	p.records.Configure(p.recordOptions(c))
	p.runtime.Configure(p.sessions(o))
	if !reflect.DeepEqual(c.Hooks, old.Hooks) {
		p.gateway.SetHooks(hooks.New(c.Hooks))
	}
}

// modelKey reads the key of the model endpoint from the environment.
func modelKey(c configs.Config, log *slog.Logger) string {
	key := os.Getenv(c.Copilot.ProviderKeyEnv)
	if key == "" {
		log.Warn("the model endpoint gets no key because its variable is not set", "variable",
			c.Copilot.ProviderKeyEnv)
	}
	return key
}

// warnOpenAPI logs that the session API needs no token, if that is so.
func warnOpenAPI(c configs.Config, log *slog.Logger) {
	if c.API.Auth == configs.AuthNone {
		log.Warn(
			"api.auth is none: every program on this machine can start, prompt and stop sessions "+
				"under /api/copilot without a token", "auth", c.API.Auth)
	}
}

// hosts returns the names of this machine that requests, also those of the page, may use: the names
// of the config, and the address at which the gateway listens, unless that is a loopback, where the
// page has a name of its own.
func (o Options) hosts() []string {
	host, _, err := net.SplitHostPort(o.Config.Listen)
	ip, ipErr := netip.ParseAddr(host)
	if err != nil || host == "localhost" || ipErr == nil && ip.IsLoopback() || isUnspecified(host) {
		return o.Config.Hosts
	}
	return append(slices.Clip(o.Config.Hosts), host)
}

// sources returns the directories whose files start programs: the config and state directories, and
// the directories of drop-in tools.
func (o Options) sources() []string {
	dirs := []string{configs.UserDir(), configs.StateDir()}
	for _, f := range o.Files.Providers() {
		if p := f.Provider; p.Dir != "" {
			dirs = append(dirs,
				(&supervisor.Run{Workdir: cmp.Or(p.Project, o.Files.Workdir)}).Path(p.Dir))
		}
	}
	return dirs
}

// sessionsAt returns a function that gives the options of Copilot sessions in a directory,
// nil where no project's file changes them.
func (p *Process) sessionsAt(o Options) func(string) (*copilot.Options, error) {
	if o.LoadAt == nil {
		return nil
	}
	return func(dir string) (*copilot.Options, error) {
		c, project, err := o.LoadAt(dir)
		if err != nil && project != "" {
			return nil, fmt.Errorf("the project's file has a fault, so no session starts there: %w",
				err)
		}
		if err != nil || project == "" {
			return nil, nil // the settings of the user's file stay
		}
		o.Config.Copilot = c.Copilot
		options := p.sessions(o)
		return &options, nil
	}
}

// sessions returns the options of Copilot sessions.
func (p *Process) sessions(o Options) copilot.Options {
	cp := o.Config.Copilot
	var toolThreshold *int
	if n := o.Config.CopilotToolThreshold; n >= 0 {
		toolThreshold = &n
	}
	return copilot.Options{
		ToolThreshold: toolThreshold,

		CLI:         cp.CLI,
		Home:        o.Home,
		ProviderURL: cp.ProviderURL,
		ProviderKey: o.Key,
		Models:      cp.Models,
		MaxRounds:   cp.MaxRounds,
		MaxTurnTime: cp.MaxTurnTime, AnswerTimeout: cp.AnswerTimeout, AskUser: cp.AskUser,
		Permissions: cp.Permissions,
		GitHubHost:  cp.GitHubHost,
		Profile:     cp.Profile,
		Profiles:    cp.Profiles,
		At:          p.sessionsAt(o),
		Trusts:      o.Files.TrustsAt,
		ProjectHooks: func(dir string) ([]gateway.Hook, []string) {
			list, err := o.Files.CopilotHooks(dir)
			return hooks.Copilot(list, err)
		},
		Secrets: []string{configs.StateDir()},
		Sources: o.sources,
		Env: func() []string {
			return append([]string{"TAP_GATEWAY_URL=" + p.info.URL}, p.traces.environ...)
		},
		SessionEnv: func(session string) []string {
			return []string{"TAP_PROVIDER_TOKEN=" + p.gateway.IssueSpawnToken(session)}
		},
		Log: p.log,
	}
}
