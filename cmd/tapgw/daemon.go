package main

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
	"syscall"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/dashboard"
	"tapgw/internal/gateway"
	"tapgw/internal/hooks"
	"tapgw/internal/proc"
	"tapgw/internal/server"
	"tapgw/internal/supervisor"
)

// How long the end of a gateway may take, all in all less than 15 s.
const (
	drainTime   = 12 * time.Second // providers have 10 s to answer
	runtimeTime = 2 * time.Second
)

// daemon is a gateway that runs in this process: its server, its runtime, its
// files in the state directory and the lock on that.
type daemon struct {
	// Fixed at start.
	log        *slog.Logger
	state      stateDir
	lock       *proc.Lock
	gateway    *gateway.Gateway
	server     *server.Server
	runtime    *copilot.Runtime
	supervisor *supervisor.Supervisor
	traces     traces
	settings   *configs.Follower[configs.Config]
	info       gatewayInfo
	served     chan error // gets the one result of the server
	following  sync.WaitGroup
	unfollow   context.CancelFunc // ends following; nil: nothing is followed

	mu     sync.Mutex // guards the fields that follow
	files  []ownFile
	closed bool
	late   map[string]lateKey // by key
}

// ownFile is a file that is removed at the end, if it is still ours.
type ownFile struct {
	path string
	data []byte
}

// daemonOptions say what gateway to run.
type daemonOptions struct {
	config configs.Config
	home   string        // of the Copilot runtime, and of our state
	files  configs.Files // of providers to run
	key    string        // of the model endpoint
	log    *slog.Logger
	args   []string // of this program, where tapgw ensure started it

	// load reads the files again, with the flags over them; nil: nobody does.
	load func() (configs.Config, configs.Files, error)
	// loadAt reads what counts for a session in a directory, with the flags over it,
	// and the project's file that says some of it, "" for none; nil: no project does.
	loadAt func(dir string) (configs.Config, string, error)
	level  *slog.LevelVar // of log, with load
}

// startDaemon starts a gateway: it is ready, and its files are written, when
// this returns.
func startDaemon(ctx context.Context, o daemonOptions) (*daemon, error) {
	d := &daemon{log: o.log, state: stateDir(filepath.Join(o.home, "extensions", "tap")), served: make(chan error, 1)}
	d.info = gatewayInfo{PID: os.Getpid(), Version: cli.Version(), StartedAt: time.Now().UTC().Truncate(time.Millisecond), Args: o.args}
	var cert *tls.Config
	if o.config.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(o.config.TLSCert, o.config.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("reading tls_cert and tls_key: %w", err)
		}
		cert = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if err := proc.PrivateDir(string(d.state)); err != nil {
		return nil, err
	}
	lock, err := d.state.acquire(ctx)
	if err != nil {
		return nil, err
	}
	d.lock = lock
	if err := d.open(o, cert); err != nil {
		d.cleanUp()
		return nil, err
	}
	go func() { d.served <- d.server.Serve() }()
	return d, nil
}

// open makes the gateway ready: it listens, and its files say so. Call it with
// the lock held.
func (d *daemon) open(o daemonOptions, cert *tls.Config) error {
	// Of one that was killed. Nobody is to take its address for ours.
	for _, stale := range []string{d.state.gateway(), d.state.providerToken(), d.state.adminToken()} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing a stale file: %w", err)
		}
	}
	if err := server.RemoveSigninFiles(string(d.state)); err != nil {
		return fmt.Errorf("removing stale files: %w", err)
	}
	d.assemble(o, cert)
	if err := d.server.Listen(o.config.Listen); err != nil {
		return listenError(err)
	}
	d.info.URL = localURL(d.server.URL())
	d.supervisor.Open(d.info.URL)
	if o.load != nil {
		d.settings.Reload()
		ctx, cancel := context.WithCancel(context.Background())
		d.following.Go(func() { d.settings.Follow(ctx, o.files.ConfigDirs, o.files.IsConfigFile) })
		d.unfollow = cancel
	}
	if err := d.writeFiles(); err != nil {
		d.quiesce()
		d.supervisor.Close()
		return err
	}
	return nil
}

// assemble puts the parts together; nothing runs yet.
func (d *daemon) assemble(o daemonOptions, cert *tls.Config) {
	d.traces = startTraces(d.log)
	d.runtime = copilot.New(d.sessions(o))
	persist := server.Persist{Dir: filepath.Join(o.home, "providers")}
	d.gateway = gateway.New(gateway.Options{
		PersistDir: persist.Make,
		ReadFile:   persist.Read,
		Log:        d.log,
		Tracer:     d.traces.tracer,
		Starters:   map[string]gateway.Starter{copilot.Kind: d.runtime, gateway.HostLocal: gateway.LocalStarter{}},
	})
	d.gateway.SetHooks(hooks.New(o.config.Hooks))
	d.gateway.SetInjectQuiet(o.config.InjectQuiet)
	d.supervisor = supervisor.New(supervisor.Options{
		Gateway:    d.gateway,
		Files:      o.files,
		TokenDir:   d.state.tokens(),
		Launch:     map[string]supervisor.Launcher{configs.KindTools: launchTools},
		HTTPClient: clientOf(cert),
		Log:        d.log,
	})
	d.settings = d.followed(o)
	d.server = server.New(server.Options{
		Gateway:        d.gateway,
		Log:            d.log,
		Version:        d.info.Version,
		Hosts:          o.hosts(),
		MaxConnections: o.config.MaxConnections,
		TLS:            cert,

		Supervisor: reloaded{d.supervisor, d.settings},
		Page:       dashboard.Handler(),
		SigninDir:  string(d.state),
		OpenREST:   o.config.API.Auth == configs.AuthNone,
		Status: func() server.StatusInfo {
			i := server.StatusInfo{URL: d.info.URL, PID: d.info.PID, Version: d.info.Version, StartedAt: d.info.StartedAt}
			for _, f := range slices.Concat(d.settings.Faults(), d.lateFaults(), d.supervisor.Faults(), d.runtime.Faults()) {
				i.Faults = append(i.Faults, server.StatusFault(f))
			}
			if full := d.server.ConnectionFault(); full != "" {
				i.Faults = append(i.Faults, server.StatusFault(o.files.Where("max_connections", full)))
			}
			return i
		},
	})
}

// writeFiles tells who may know where we are and how to get in: gateway.json
// last, since it says that we are ready.
func (d *daemon) writeFiles() error {
	info, err := json.Marshal(d.info)
	if err != nil {
		return fmt.Errorf("encoding gateway.json: %w", err)
	}
	for _, f := range []ownFile{
		{d.state.providerToken(), []byte(d.gateway.InstanceToken())},
		{d.state.adminToken(), []byte(d.gateway.AdminToken())},
		{d.state.gateway(), append(info, '\n')},
	} {
		if err := proc.WritePrivate(f.path, f.data); err != nil {
			return err
		}
		d.mu.Lock()
		d.files = append(d.files, f)
		d.mu.Unlock()
	}
	return nil
}

// remove removes those of our files that are still ours: one, or all ("").
func (d *daemon) remove(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		if path == "" || f.path == path {
			proc.RemoveOwn(f.path, f.data)
		}
	}
}

// cleanUp removes our files and lets the next gateway in. It may be called twice.
func (d *daemon) cleanUp() {
	d.remove("")
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		_ = server.RemoveSigninFiles(string(d.state))
		d.lock.Unlock()
	}
}

// stop ends sessions, providers, the server and the runtime, in this order, and
// returns when all is gone. It takes less than 15 s, whatever the others do.
func (d *daemon) stop() {
	// Nobody new is to come.
	d.remove(d.state.gateway())
	d.quiesce()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		if err := d.server.Shutdown(ctx); err != nil {
			d.log.Warn("not everything ended in time", "error", err)
		}
		var providers sync.WaitGroup
		defer providers.Wait()
		providers.Go(d.supervisor.Close)
		ctx, cancel = context.WithTimeout(context.Background(), runtimeTime)
		defer cancel()
		if err := d.runtime.Close(ctx); err != nil {
			d.log.Warn("stopping the Copilot runtime", "error", err)
		}
		d.traces.close()
	}()
	select {
	case <-done:
	case <-time.After(drainTime + runtimeTime + 500*time.Millisecond):
		d.log.Error("leaving although not everything has ended")
	}
	d.cleanUp()
}

// quiesce lets nothing change any more.
func (d *daemon) quiesce() {
	d.supervisor.Quiesce()
	if d.unfollow != nil {
		d.unfollow()
		d.following.Wait()
	}
}

// reload reads all files now and acts on them.
func (d *daemon) reload() { reloaded{d.supervisor, d.settings}.Reload() }

// localURL is a URL at which this machine reaches a server that listens on all
// of its addresses.
func localURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	if everywhere(u.Hostname()) {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}

// everywhere reports whether a host to listen on stands for all addresses.
func everywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// lockWait is how long a gateway waits for one that starts or ends just now.
const lockWait = 3 * time.Second

// acquire takes the lock of the state directory, or says who has it.
func (d stateDir) acquire(ctx context.Context) (*proc.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	var lock *proc.Lock
	var failed error
	_ = poll(wait, func() bool {
		if lock, failed = proc.TryLock(d.lock()); lock != nil || failed != nil {
			return true
		}
		g, err := d.info()
		if err != nil || !d.answers(wait, g) {
			return false // it starts, ends, or somebody just looked at the lock
		}
		failed = fmt.Errorf("a gateway runs already: process %d at %s; use that one, or end it: tapgw stop", g.PID, g.URL)
		return true
	})
	switch {
	case lock != nil || failed != nil:
		return lock, failed
	case ctx.Err() != nil:
		return nil, fmt.Errorf("waiting for the lock %s: %w", d.lock(), ctx.Err())
	}
	return nil, fmt.Errorf("a gateway that does not answer runs already: process %d has %s; end it: tapgw stop", proc.LockHolder(d.lock()), d.lock())
}

// listenError says who has the port that we want.
func listenError(err error) error {
	at, ok := errors.AsType[*server.ListenError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	who := "another process"
	if tcp, err := net.ResolveTCPAddr("tcp", at.Addr); err == nil {
		owner, _ := proc.OwnerOf(tcp.AddrPort())
		who = owner.String()
	}
	return fmt.Errorf("listening on %s: the port is taken by %s at %s; stop it, or take another: --listen 127.0.0.1:0 picks a free one",
		at.Addr, who, localURL("ws://"+at.Addr))
}
