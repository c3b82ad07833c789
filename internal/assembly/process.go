// Package assembly makes one running gateway of the domain and its adapters: it connects them,
// keeps the gateway's files in the state directory, follows the config files, and ends everything
// in order.
package assembly

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/adrg/xdg"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/cluster"
	"tapgw/internal/copilot"
	"tapgw/internal/daemon"
	"tapgw/internal/dashboard"
	"tapgw/internal/gateway"
	"tapgw/internal/goals"
	"tapgw/internal/hooks"
	"tapgw/internal/link"
	"tapgw/internal/mcpbridge"
	"tapgw/internal/mcpserver"
	"tapgw/internal/proc"
	"tapgw/internal/records"
	"tapgw/internal/server"
	"tapgw/internal/sources"
	"tapgw/internal/statedir"
	"tapgw/internal/supervisor"
	"tapgw/internal/terminals"
)

// Times that the end of a gateway may take: together less than 15 s.
const (
	shutdownTimeout = 12 * time.Second // providers have 10 s to answer
	runtimeTimeout  = 2 * time.Second
)

// Process is a gateway that runs in this process, with its server, its runtime, and
// its files and lock in the state directory. [Start] makes one.
type Process struct {
	// Fixed at start.
	log        *slog.Logger
	state      daemon.Dir
	lock       *proc.Lock
	gateway    *gateway.Gateway
	server     *server.Server
	runtime    *copilot.Runtime
	supervisor *supervisor.Supervisor
	logins     *mcpbridge.Logins
	sources    *sources.Set
	webhooks   webhookRecords
	records    *records.Log
	goals      *goals.Set
	mcp        *mcpserver.Handler
	terminals  *terminals.Registry
	cluster    *cluster.Joined // nil without a cluster
	members    *clusterOf      // the same for the server, which has it before the gateway joins
	keeper     *cluster.Keeper // nil: no stream lasts
	ports      *attachedPorts
	traces     traces
	settings   *configs.Follower[configs.Config]
	info       statedir.Info
	emitters   *emitters     // the emitters that the models of sessions start
	served     chan error    // gets the one result of the server
	asked      chan struct{} // closed when the admin API has asked for the end
	following  sync.WaitGroup
	unfollow   context.CancelFunc // ends following; nil without it

	mu       sync.Mutex // guards the fields that follow
	files    []ownFile
	isClosed bool
	newKeys  map[string]changedKey // by key: changes that running sessions don't use yet
}

// ownFile is a file that the gateway removes at its end unless another program has
// changed it.
type ownFile struct {
	path string
	data []byte
}

// Options choose the gateway to run.
type Options struct {
	Config configs.Config
	Home   string        // COPILOT_HOME
	Files  configs.Files // provider files among them
	Key    string        // of the model endpoint
	Log    *slog.Logger
	Args   []string // of this program if tapgw ensure started it

	// Load reads the config files again, with the flags over them. With a nil Load, the gateway
	// follows no files.
	Load func() (configs.Config, configs.Files, error)
	// LoadAt returns the config for sessions in a directory, with the flags over it, and the
	// project's file that is part of it, or "". With a nil LoadAt, projects' files do not count.
	LoadAt func(dir string) (configs.Config, string, error)
	Level  *slog.LevelVar // of Log; set with Load
}

// Start starts a gateway. When it returns, the gateway is ready and has written its
// files.
func Start(ctx context.Context, o Options) (*Process, error) {
	p := &Process{
		log:    o.Log,
		state:  daemon.Dir(statedir.Of(o.Home)),
		served: make(chan error, 1), asked: make(chan struct{}),
		info: statedir.Info{
			PID: os.Getpid(), Version: cli.Version(), Args: o.Args,
			StartedAt: time.Now().UTC().Truncate(time.Millisecond),
		},
	}
	var cert *tls.Config
	if o.Config.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(o.Config.TLSCert, o.Config.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("reading tls_cert and tls_key: %w", err)
		}
		cert = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if err := proc.PrivateDir(string(p.state)); err != nil {
		return nil, err
	}
	lock, err := p.state.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	p.lock = lock
	if err := p.open(o, cert); err != nil {
		p.leaveCluster()
		p.cleanUp()
		return nil, err
	}
	go func() { p.served <- p.server.Serve() }()
	return p, nil
}

// open makes the gateway listen and writes its files. The caller holds the lock.
func (p *Process) open(o Options, cert *tls.Config) error {
	// A killed gateway leaves its files. No program may read the old address as ours.
	for _, stale := range []string{p.state.InfoFile(), p.state.ProviderToken(),
		p.state.AdminToken()} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing a stale file: %w", err)
		}
	}
	if err := server.RemoveSigninFiles(string(p.state)); err != nil {
		return fmt.Errorf("removing stale files: %w", err)
	}
	p.assemble(o, cert)
	if err := p.joinCluster(o.Config.Cluster, o.Home); err != nil {
		return err
	}
	listeners, heritage := p.state.TakeSockets()
	if err := p.server.ListenWith(o.Config.Listen, listeners, heritage); err != nil {
		return server.NameUser(err)
	}
	if at := o.Config.Webhooks.Listen; at != "" {
		addr, err := p.server.ListenWebhooks(at)
		if err != nil {
			return fmt.Errorf("webhooks.listen: %w", err)
		}
		p.log.Info("webhooks have an address of their own", "address", addr.String())
	}
	p.info.URL = localURL(p.server.URL())
	p.supervisor.Open(p.info.URL)
	p.goals.Open()
	if o.Load != nil {
		p.settings.Reload()
		ctx, cancel := context.WithCancel(context.Background())
		p.following.Go(func() { p.settings.Follow(ctx, o.Files.ConfigDirs, o.Files.IsConfigFile) })
		p.unfollow = cancel
	}
	if err := p.writeFiles(); err != nil {
		p.quiesce()
		p.goals.Close()
		p.supervisor.Close()
		return err
	}
	p.ports.restore(p.terminalWays().attachAgain)
	return nil
}

func (p *Process) terminalWays() terminalWays {
	return terminalWays{p.terminals, p.runtime, p.ports}
}

// assemble makes the parts of the gateway without starting them.
func (p *Process) assemble(o Options, cert *tls.Config) {
	p.traces = startTraces(p.log)
	p.runtime = copilot.New(p.sessions(o))
	persist := server.Persist{Dir: filepath.Join(o.Home, "providers")}
	p.records = records.New(p.recordOptions(o.Config))
	p.webhooks.record = p.records.Record
	// A gateway that was killed leaves its uploads behind.
	if err := os.RemoveAll(p.state.Uploads()); err != nil {
		p.log.Warn("removing the files of prompts", "error", err)
	}
	p.keeper = keeperOf(o.Config.Cluster)
	options := gateway.Options{
		PersistDir:   persist.Make,
		ReadFile:     persist.Read,
		Log:          p.log,
		Tracer:       p.traces.tracer,
		TraceContent: p.traces.content,
		Recorder:     p.records,
		UploadDir:    p.state.Uploads(),
		Private:      p.privateDirs,
		Starters: map[string]gateway.Starter{copilot.Kind: p.runtime,
			gateway.HostLocal: gateway.LocalStarter{}},
	}
	if p.keeper != nil { // else the interface would hold a nil pointer
		options.Keeper = p.keeper
	}
	p.gateway = gateway.New(options)
	p.gateway.SetHooks(hooks.New(o.Config.Hooks))
	p.gateway.SetInjectQuiet(o.Config.InjectQuiet)
	p.logins = mcpbridge.NewLogins(p.state.Logins())
	p.sources = sources.NewSet()
	forgetSources(p.state.Sources(), o.Files.Providers, time.Now())
	p.emitters = &emitters{
		gateway: p.gateway, set: p.sources, record: p.records.Record, files: o.Files,
		listed: func() []adminapi.Source { return p.reloader().Sources() },
	}
	p.supervisor = supervisor.New(supervisor.Options{
		Gateway:      p.gateway,
		Files:        o.Files,
		Own:          ownProviders(o.Config),
		TokenDir:     p.state.Tokens(),
		Launch:       p.launchers(),
		Dial:         func() (*link.Conn, error) { return p.server.Dial() },
		Log:          p.log,
		Elsewhere:    p.sessionsElsewhere,
		MaxElsewhere: o.Config.Cluster.MaxEach,
	})
	p.goals = p.newGoals()
	p.terminals = terminals.New(terminals.Options{Gateway: p.gateway, Log: p.log})
	p.ports = newAttachedPorts(p.state.Ports(), p.log)
	p.settings = p.newFollower(o)
	p.mcp = mcpserver.New(mcpserver.Options{Gateway: p.gateway, Log: p.log, Version: p.info.Version,
		ToolThreshold: o.Config.MCPToolThreshold, Terminals: mcpTerminals{p.terminals}})
	var others server.Cluster
	if o.Config.Cluster.Enabled() {
		p.members = &clusterOf{}
		others = p.members
	}
	p.server = server.New(server.Options{
		Gateway:        p.gateway,
		Log:            p.log,
		Version:        p.info.Version,
		Hosts:          o.hosts(),
		MaxConnections: o.Config.MaxConnections,
		TLS:            cert,

		Supervisor: p.reloader(),
		Records:    p.records,
		Goals:      p.goals,
		Terminals:  p.terminalWays(),
		Cluster:    others,
		Webhooks:   p.reloader().Hook,
		Page:       dashboard.Handler(),
		MCP:        p.mcp,
		SigninDir:  string(p.state),
		OpenREST:   o.Config.API.Auth == configs.AuthNone,
		Status:     func() adminapi.Status { return p.status(o.Files) },
		End:        sync.OnceFunc(func() { close(p.asked) }),
	})
}

// launchers are the functions that run a provider, by its kind. The supervisor itself runs those
// that speak docs/protocol.md, and kind http.
func (p *Process) launchers() map[string]supervisor.Launcher {
	return map[string]supervisor.Launcher{
		configs.KindTools:  launchTools,
		configs.KindMCP:    launchMCP(p.gateway, p.logins, p.info.Version),
		configs.KindSource: launchSource(p.gateway, p.sources, p.records.Record, p.state.Sources()),
		configs.KindTap:    p.launchTap,
	}
}

// status returns the status of this process for tapctl status. Its faults are the faults of all
// files, and a limit that the gateway has reached.
func (p *Process) status(files configs.Files) adminapi.Status {
	i := adminapi.Status{URL: p.info.URL, PID: p.info.PID, Version: p.info.Version,
		StartedAt: p.info.StartedAt}
	faults := slices.Concat(p.settings.Faults(), p.newKeyFaults(), p.supervisor.Faults(),
		p.runtime.Faults())
	for _, f := range faults {
		i.Faults = append(i.Faults, adminapi.Fault(f))
	}
	if full := p.server.ConnectionFault(); full != "" {
		i.Faults = append(i.Faults, adminapi.Fault(files.Where("max_connections", full)))
	}
	if p.cluster != nil {
		if fault := p.cluster.Fault(); fault != "" {
			i.Faults = append(i.Faults,
				adminapi.Fault(files.Where("cluster.urls", "cluster: "+fault)))
		}
	}
	if fault := p.records.Faults(); fault != "" {
		i.Faults = append(i.Faults, adminapi.Fault(files.Where("records", "records: "+fault)))
	}
	for _, renamed := range p.mcp.Faults() {
		i.Faults = append(i.Faults, adminapi.Fault(files.Where("mcp_tool_threshold", renamed)))
	}
	return i
}

// writeFiles writes the tokens and then gateway.json, which means that the gateway is
// ready.
func (p *Process) writeFiles() error {
	info, err := json.Marshal(p.info)
	if err != nil {
		return fmt.Errorf("encoding gateway.json: %w", err)
	}
	for _, f := range []ownFile{
		{p.state.ProviderToken(), []byte(p.gateway.InstanceToken())},
		{p.state.AdminToken(), []byte(p.gateway.AdminToken())},
		{p.state.InfoFile(), append(info, '\n')},
	} {
		if err := proc.WritePrivate(f.path, f.data); err != nil {
			return err
		}
		p.mu.Lock()
		p.files = append(p.files, f)
		p.mu.Unlock()
	}
	return nil
}

// removeFile removes one of our files unless another program has changed it.
func (p *Process) removeFile(path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.files {
		if f.path == path {
			proc.RemoveOwn(f.path, f.data)
		}
	}
}

// cleanUp removes our files and releases the lock. It may be called twice.
func (p *Process) cleanUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isClosed {
		return
	}
	p.isClosed = true
	for _, f := range p.files {
		proc.RemoveOwn(f.path, f.data)
	}
	_ = server.RemoveSigninFiles(string(p.state))
	p.lock.Unlock()
}

// Info returns the gateway's entry in gateway.json.
func (p *Process) Info() statedir.Info { return p.info }

// Gateway returns the gateway itself, for callers in this process.
func (p *Process) Gateway() *gateway.Gateway { return p.gateway }

// Runtime returns the Copilot runtime, which starts with its first session.
func (p *Process) Runtime() *copilot.Runtime { return p.runtime }

// Served delivers the error with which the server ended unasked.
func (p *Process) Served() <-chan error { return p.served }

// Stop ends sessions, providers, the server and the runtime, in this order, and waits for
// them. It takes less than 15 s, even when some of them do not end.
func (p *Process) Stop() {
	p.removeFile(p.state.InfoFile()) // so that no program looks for this gateway
	p.quiesce()
	p.goals.Close() // goals go on with the next gateway
	p.ports.close() // ports are attached again by the next gateway
	handing := p.state.HandSockets(p.server.Listeners())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if err := p.server.Shutdown(ctx); err != nil {
			p.log.Warn("not everything ended in time", "error", err)
		}
		handing.Finish(p.server.Heritage())
		p.leaveCluster()
		p.mcp.Close()
		p.terminals.Close()
		var providers sync.WaitGroup
		defer providers.Wait()
		providers.Go(p.supervisor.Close)
		ctx, cancel = context.WithTimeout(context.Background(), runtimeTimeout)
		defer cancel()
		if err := p.runtime.Close(ctx); err != nil {
			p.log.Warn("stopping the Copilot runtime", "error", err)
		}
		p.traces.close()
		providers.Wait() // sources have records
		if err := p.records.Close(); err != nil {
			p.log.Warn("closing the records", "error", err)
		}
	}()
	select {
	case <-done:
	case <-time.After(shutdownTimeout + runtimeTimeout + 500*time.Millisecond):
		p.log.Error("leaving although not everything has ended")
	}
	p.cleanUp()
}

// quiesce stops the reaction to changed files.
func (p *Process) quiesce() {
	p.supervisor.Quiesce()
	if p.unfollow != nil {
		p.unfollow()
		p.following.Wait()
	}
}

func (p *Process) reloader() reloader {
	return reloader{p.supervisor, p.settings, p.logins, p.sources, p.state.Sources(), &p.webhooks}
}

// reload reads all files now and applies them.
func (p *Process) reload() { p.reloader().Reload() }

// localURL replaces the address of a server that listens on all addresses by an address at which
// this machine reaches it.
func localURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	if isUnspecified(u.Hostname()) {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}

// isUnspecified reports whether a host to listen on means all addresses.
func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// privateDirs are the directories in which this program, lsclient and the Copilot runtime keep
// tokens and conversations.
func (p *Process) privateDirs() []string {
	dirs := []string{configs.Home(), filepath.Join(xdg.StateHome, "tapgw")}
	if dir := p.runtime.PrivateDir(); dir != "" {
		dirs = append(dirs, dir)
	}
	return dirs
}
