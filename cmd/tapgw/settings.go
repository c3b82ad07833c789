package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/copilot"
	"tapgw/internal/hooks"
	"tapgw/internal/supervisor"
)

// live reports whether a key is applied while the gateway runs: those of [copilot]
// to sessions that start from then on. The others count at its start only.
func live(key string) bool {
	switch key {
	case "log_level", "hosts", "max_connections", "inject_quiet", "api.auth", "hooks":
		return true
	case "copilot.cli", "copilot.github_host", "copilot.github_token_env":
		return false // the runtime's process has them
	}
	return strings.HasPrefix(key, "copilot.")
}

// followed makes what follows tapgw.toml for this gateway.
func (d *daemon) followed(o daemonOptions) *configs.Follower[configs.Config] {
	var read configs.Files // the last
	return &configs.Follower[configs.Config]{
		Now: o.config,
		Load: func() (configs.Config, configs.Faults, error) {
			if o.load == nil {
				return o.config, nil, nil
			}
			c, files, err := o.load()
			read = files
			if _, ok := errors.AsType[configs.Faults](err); err != nil && !ok {
				err = configs.Faults{files.Where("", err.Error())}
			}
			if err != nil {
				return c, nil, err
			}
			// What the file says now need not go with where this gateway listens.
			here := o.config
			here.API = c.API
			exposed := configs.CheckListen(here) != nil
			notes := append(files.Notes(), files.HookPrograms()...)
			for _, key := range configs.Changed(o.config, c) {
				if !live(key) || key == "api.auth" && exposed {
					notes = append(notes, files.Where(key, key+": has changed; restart to apply it"))
				}
			}
			if exposed {
				c.API = o.config.API
			}
			return c, notes, nil
		},
		Tell: func(f configs.Fault, good bool) {
			if good {
				d.log.Warn("config file", "fault", f.Error())
				return
			}
			d.log.Warn("fault in the config file: what it said before goes on", "fault", f.Error())
		},
		Told: func() { d.gateway.Touch() },
		Apply: func(old, now configs.Config) {
			d.apply(o, old, now)
			keys := slices.DeleteFunc(configs.Changed(old, now), func(key string) bool { return !live(key) })
			d.log.Info("settings applied", "keys", strings.Join(keys, " "))
			d.noteLate(read, keys)
		},
	}
}

// lateKey is a key that changed while sessions ran that go on as they began.
type lateKey struct {
	fault configs.Fault
	at    time.Time
}

// noteLate notes the keys that a running session does not hear of.
func (d *daemon) noteLate(files configs.Files, keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range keys {
		if !strings.HasPrefix(key, "copilot.") {
			continue
		}
		if d.late == nil {
			d.late = map[string]lateKey{}
		}
		d.late[key] = lateKey{files.Where(key, key), time.Now()}
		if n := d.older(d.late[key]); n > 0 {
			d.log.Info("the setting holds for new sessions: those that run go on as they began", "key", key, "running", n)
		}
	}
}

// older is how many sessions have begun before a key changed.
func (d *daemon) older(k lateKey) (n int) {
	for _, s := range d.gateway.Sessions() {
		if s.Host == copilot.Kind && s.CreatedAt.Before(k.at) {
			n++
		}
	}
	return n
}

// lateFaults are the keys that running sessions have not heard of; those are
// forgotten that all have.
func (d *daemon) lateFaults() (faults configs.Faults) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(d.late)) {
		k := d.late[key]
		n := d.older(k)
		if n == 0 {
			delete(d.late, key)
			continue
		}
		running := "1 that runs goes on as it began"
		if n > 1 {
			running = fmt.Sprintf("%d that run go on as they began", n)
		}
		k.fault.Message = fmt.Sprintf("%s: has changed and holds for new sessions; %s", key, running)
		faults = append(faults, k.fault)
	}
	return faults
}

// reloaded is a supervisor whose Reload reads tapgw.toml, too.
type reloaded struct {
	*supervisor.Supervisor
	settings *configs.Follower[configs.Config]
}

// Reload reads all files and acts on them.
func (r reloaded) Reload() {
	r.settings.Reload()
	r.Supervisor.Reload()
}

// apply makes settings those that this gateway goes by, which o started.
func (d *daemon) apply(o daemonOptions, old, c configs.Config) {
	o.config.Hosts, o.config.API, o.config.Copilot = c.Hosts, c.API, c.Copilot
	d.gateway.SetInjectQuiet(c.InjectQuiet)
	_ = o.level.UnmarshalText([]byte(c.LogLevel)) // checked before
	if o.key = ""; c.Copilot.ProviderURL != "" {
		o.key = modelKey(c, d.log)
	}
	if c.API != old.API {
		warnOpen(c, d.log)
	}
	d.server.Configure(o.hosts(), c.API.Auth == configs.AuthNone, c.MaxConnections)
	d.runtime.Configure(d.sessions(o))
	if !reflect.DeepEqual(c.Hooks, old.Hooks) {
		d.gateway.SetHooks(hooks.New(c.Hooks))
	}
}

// modelKey is the key of the model endpoint.
func modelKey(c configs.Config, log *slog.Logger) string {
	key := os.Getenv(c.Copilot.ProviderKeyEnv)
	if key == "" {
		log.Warn("the model endpoint gets no key: the variable is not set", "variable", c.Copilot.ProviderKeyEnv)
	}
	return key
}

// warnOpen says who gets in without a token, if anybody does.
func warnOpen(c configs.Config, log *slog.Logger) {
	if c.API.Auth == configs.AuthNone {
		log.Warn("api.auth is none: every program on this machine can start, prompt and stop sessions under /api/copilot without a token", "auth", c.API.Auth)
	}
}

// hosts are the names of this machine that the user gave: the address that the
// gateway listens on, too.
func (o daemonOptions) hosts() []string {
	if host, _, err := net.SplitHostPort(o.config.Listen); err == nil && !everywhere(host) {
		return append(slices.Clip(o.config.Hosts), host)
	}
	return o.config.Hosts
}

// sources are the directories whose files start programs: the user's, ours, and
// those of tools.
func (o daemonOptions) sources() []string {
	dirs := []string{configs.UserDir(), configs.StateDir()}
	for _, f := range o.files.Providers() {
		if p := f.Provider; p.Dir != "" {
			dirs = append(dirs, supervisor.Run{Workdir: cmp.Or(p.Project, o.files.Workdir)}.Path(p.Dir))
		}
	}
	return dirs
}

// sessionsAt are the options of Copilot sessions in a directory, where a project says
// something of them.
func (d *daemon) sessionsAt(o daemonOptions) func(string) (*copilot.Options, error) {
	if o.loadAt == nil {
		return nil
	}
	return func(dir string) (*copilot.Options, error) {
		c, project, err := o.loadAt(dir)
		if err != nil && project != "" {
			return nil, fmt.Errorf("the project's file has a fault, and nothing starts by half of it: %w", err)
		}
		if err != nil || project == "" {
			return nil, nil // what the user's file said before goes on
		}
		o.config.Copilot = c.Copilot
		at := d.sessions(o)
		return &at, nil
	}
}

// sessions are the options of Copilot sessions.
func (d *daemon) sessions(o daemonOptions) copilot.Options {
	cp := o.config.Copilot
	return copilot.Options{
		CLI:         cp.CLI,
		Home:        o.home,
		ProviderURL: cp.ProviderURL,
		ProviderKey: o.key,
		Models:      cp.Models,
		MaxRounds:   cp.MaxRounds,
		MaxTurnTime: cp.MaxTurnTime, AnswerTimeout: cp.AnswerTimeout, AskUser: cp.AskUser,
		Permissions: cp.Permissions,
		GitHubHost:  cp.GitHubHost,
		Profile:     cp.Profile,
		Profiles:    cp.Profiles,
		At:          d.sessionsAt(o),
		Secrets:     []string{configs.StateDir()},
		Sources:     o.sources,
		Env: func() []string {
			return append([]string{"TAP_GATEWAY_URL=" + d.info.URL}, d.traces.environ...)
		},
		SessionEnv: func(session string) []string {
			return []string{"TAP_PROVIDER_TOKEN=" + d.gateway.IssueSpawnToken(session)}
		},
		Log: d.log,
	}
}
