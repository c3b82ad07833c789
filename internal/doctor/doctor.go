// Package doctor checks that a gateway can work on this machine: its files, its disk, the Copilot
// runtime, the model endpoints, and the parts that are installed for terminals.
package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/daemon"
	"tapgw/internal/server"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// minRuntime is the first version of the Copilot CLI whose sessions take tools
// while they run.
const minRuntime = "1.0.81"

// minNode is the oldest Node that can install the runtime's packages.
const minNode = 20

// Doctor has the data that the checks share. [New] makes one.
type Doctor struct {
	config    configs.Config // the defaults when configErr is set
	files     configs.Files
	configErr error
	state     daemon.Dir
	probe     func() (copilot.Status, error)
	disk      disk
}

// New returns a doctor for a gateway with these files; configErr is the error of reading them. The
// checks start the Copilot runtime once, and end it before ctx ends.
func New(ctx context.Context, config configs.Config, files configs.Files, configErr error) *Doctor {
	d := &Doctor{
		config: config, files: files, configErr: configErr, state: daemon.Dir(configs.StateDir()),
		disk: realDisk,
	}
	if configErr != nil {
		d.config = configs.Default()
	}
	d.probe = sync.OnceValues(func() (copilot.Status, error) {
		r := copilot.New(d.runtime(d.config.Copilot.Profile))
		defer func() { _ = r.Close(ctx) }()
		return r.Probe(ctx)
	})
	return d
}

// Checks returns all checks, in the order in which people read them.
func (d *Doctor) Checks() []cli.Check {
	return []cli.Check{
		{Name: "config", Run: d.checkConfig},
		{Name: "state directory", Run: d.checkState},
		{Name: "disk", Run: d.checkDisk},
		{Name: "token files", Run: d.checkTokens},
		{Name: "gateway", Run: d.checkGateway},
		{Name: "copilot runtime", Run: d.checkRuntime},
		{Name: "sign-in", Run: d.checkSignIn},
		{Name: "model endpoint", Run: d.checkEndpoints},
		{Name: "hooks", Run: d.checkHooks},
		{Name: "terminals", Run: d.checkTerminals},
		{Name: "traces", Run: d.checkTraces},
		{Name: "node and npm", Run: d.checkNode},
		{Name: "clock", Run: d.checkClock},
	}
}

func (d *Doctor) checkConfig(context.Context) cli.Result {
	const cure = "correct the file; tapgw config check names every fault"
	if d.configErr != nil {
		return cli.Fail(cure, "%v", d.configErr)
	}
	if d.config.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(d.config.TLSCert, d.config.TLSKey); err != nil {
			return cli.Fail(
				"write the paths of a certificate and its key, both PEM files, into "+
					"tls_cert and tls_key",
				"%s: tls_cert, tls_key: %v", d.files.User, err)
		}
	}
	found := "no file: the defaults apply"
	if d.files.User != "" {
		found = d.files.User
	}
	if d.files.Trusted {
		if _, _, err := d.files.LoadAt(d.files.Workdir); err != nil {
			return cli.Fail(cure, "%v", err)
		}
		found += "; for sessions here " + d.files.Project
	}
	leftOut := d.files.Notes()
	n := 0
	for _, f := range d.files.Providers() {
		switch {
		case f.LeftOut:
			leftOut = append(leftOut, f.Faults...)
			continue
		case len(f.Faults) > 0:
			return cli.Fail(cure, "%v", f.Faults)
		}
		n++
	}
	if len(leftOut) > 0 {
		return cli.Warn(
			"read the files; if you trust the project, run tapgw trust with its directory", "%v",
			leftOut)
	}
	if dead := d.files.DeadRules(); len(dead) > 0 {
		return cli.Warn("correct the rules, or remove them", "rules that never hold: %v", dead)
	}
	if n > 0 {
		return cli.OK("%s, and %s", found, visible.Count(n, "provider file"))
	}
	return cli.OK("%s", found)
}

func (d *Doctor) checkState(context.Context) cli.Result {
	dir := string(d.state)
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		parent := existingParent(dir)
		if err := checkWritable(parent); err != nil {
			return cli.Fail("make "+parent+" writable, or set "+statedir.EnvHome+
				" to another directory",
				"%s can't be created: %v", dir, err)
		}
		return cli.OK("the gateway creates %s at its first start", dir)
	case err != nil:
		return cli.Fail("make its parents accessible, or set "+statedir.EnvHome+
			" to another directory", "%v", err)
	case !info.IsDir():
		return cli.Fail("remove the file, or set "+statedir.EnvHome+" to a directory",
			"%s is not a directory", dir)
	}
	if owner := foreignOwner(info); owner != "" {
		return cli.Fail("change its owner with chown, or set "+statedir.EnvHome+
			" to a directory of your own",
			"%s %s", dir, owner)
	}
	if err := checkWritable(dir); err != nil {
		return cli.Fail("chmod 700 "+dir, "%v", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return cli.Warn("chmod 700 "+dir+" (the next gateway does it, too)",
			"%s is open to other users (mode %04o)", dir, info.Mode().Perm())
	}
	return cli.OK("%s", dir)
}

// existingParent is the nearest directory above a path that exists.
func existingParent(path string) string {
	for {
		parent := filepath.Dir(path)
		if _, err := os.Stat(parent); err == nil || parent == path {
			return parent
		}
		path = parent
	}
}

// checkWritable creates a file in a directory and removes it.
func checkWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".tapgw-doctor-")
	if err != nil {
		return err
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// foreignOwner names the owner of a file, "" for this user.
func foreignOwner(info fs.FileInfo) string {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, not to you (%d)", st.Uid, os.Geteuid())
	}
	return ""
}

func (d *Doctor) checkTokens(context.Context) cli.Result {
	var found []string
	for _, file := range []string{d.state.ProviderToken(), d.state.AdminToken()} {
		info, err := os.Lstat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return cli.Fail("make "+string(d.state)+" accessible", "%v", err)
		case !info.Mode().IsRegular():
			return cli.Fail("remove it and restart the gateway", "%s is not a regular file", file)
		case info.Mode().Perm()&0o077 != 0:
			return cli.Fail("restart the gateway: other users may have read its token",
				"%s is open to other users (mode %04o)", file, info.Mode().Perm())
		}
		if owner := foreignOwner(info); owner != "" {
			return cli.Fail("remove it and restart the gateway", "%s %s", file, owner)
		}
		found = append(found, filepath.Base(file))
	}
	isRunning, err := d.state.Locked()
	switch {
	case err != nil:
		return cli.Fail("make "+string(d.state)+" accessible", "%v", err)
	case isRunning && len(found) < 2:
		return cli.Warn("restart the gateway", "a gateway runs, but a token file is missing")
	case !isRunning && len(found) > 0:
		return cli.Warn("nothing: the next gateway replaces them",
			"a gateway that was killed left %s", strings.Join(found, " and "))
	case !isRunning:
		return cli.OK("none while no gateway runs")
	}
	return cli.OK("only you can read them")
}

func (d *Doctor) checkGateway(ctx context.Context) cli.Result {
	if g, ok := d.state.Running(ctx); ok {
		return cli.OK("process %d at %s, version %s", g.PID, g.URL, g.Version)
	}
	if isRunning, _ := d.state.Locked(); isRunning {
		pid := d.state.LockPID()
		return cli.Fail(
			fmt.Sprintf("wait a moment; then run tapgw stop, or kill -9 %d, and start it again",
				pid),
			"process %d runs but does not answer", pid)
	}
	addr := d.config.Listen
	if err := server.CanListen(addr); err != nil {
		return cli.Fail(
			"stop that process, or set listen in tapgw.toml, or use tapgw serve "+
				"--listen 127.0.0.1:0",
			"no gateway runs, and none can start: %v", server.NameUser(err))
	}
	return cli.OK("none runs; %s is free", addr)
}

func (d *Doctor) checkRuntime(context.Context) cli.Result {
	const install = "run `make runtime` where tapgw was built, or: npm install -g @github/copilot"
	st, err := d.probe()
	switch {
	case err != nil && st.Path == "" && d.config.Copilot.CLI == "" &&
		os.Getenv("COPILOT_CLI_PATH") == "":
		return cli.Warn(install, "not found: only local sessions can run")
	case err != nil && st.Path == "":
		return cli.Fail("correct or remove copilot.cli in tapgw.toml and COPILOT_CLI_PATH", "%v",
			err)
	case err != nil:
		return cli.Fail("install it again: "+install, "%s does not run: %v", st.Path, err)
	}
	detail := fmt.Sprintf("version %s, protocol %d, %s (from %s)", st.Version, st.Protocol, st.Path,
		st.Source)
	if isOlder(st.Version, minRuntime) {
		return cli.Warn(install, "%s: tools of a running session can change from version %s on",
			detail, minRuntime)
	}
	return cli.OK("%s", detail)
}

// isOlder reports whether a version is older than another one, by their numbers. A version
// that is not made of numbers is not older.
func isOlder(version, other string) bool {
	version, _, _ = strings.Cut(strings.TrimPrefix(version, "v"), "-")
	a, b := strings.Split(version, "."), strings.Split(other, ".")
	for i := range b {
		if i >= len(a) {
			return true
		}
		m, errM := strconv.Atoi(a[i])
		n, errN := strconv.Atoi(b[i])
		if errM != nil || errN != nil || m != n {
			return errM == nil && errN == nil && m < n
		}
	}
	return false
}

func (d *Doctor) checkSignIn(context.Context) cli.Result {
	if d.config.Copilot.Provider.URL != "" {
		return cli.OK("not needed: a model endpoint of your own is set")
	}
	st, err := d.probe()
	switch {
	case err != nil:
		return cli.Warn("see copilot runtime", "not known without a runtime")
	case !st.SignedIn:
		return cli.Warn(copilot.HowToSignIn, "not signed in to GitHub Copilot")
	case st.Login == "":
		return cli.OK("signed in")
	}
	return cli.OK("signed in as %s", st.Login)
}

func (d *Doctor) checkNode(ctx context.Context) cli.Result {
	const cure = "install Node.js 20 or newer with npm; only make runtime and the tests need it"
	var found []string
	for _, name := range []string{"node", "npm"} {
		out, err := exec.CommandContext(ctx, name, "--version").Output()
		if err != nil {
			return cli.Warn(cure, "%s: %v", name, err)
		}
		version := strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
		if name == "node" && isOlder(version, strconv.Itoa(minNode)) {
			return cli.Warn(cure, "node %s is too old", version)
		}
		found = append(found, name+" "+version)
	}
	return cli.OK("%s", strings.Join(found, ", "))
}

// checkClock finds a clock that is behind. With such a clock, certificates look as if they
// were not valid yet.
func (d *Doctor) checkClock(context.Context) cli.Result {
	now := time.Now()
	if built := buildTime(); now.Before(built) {
		return cli.Fail(
			"set the clock, or run timedatectl set-ntp true",
			"the clock is at %s, before this program was built (%s)",
			now.UTC().Format(time.RFC3339),
			built.UTC().Format(time.RFC3339),
		)
	}
	return cli.OK("%s", now.UTC().Format(time.RFC3339))
}

// buildTime is the time of the commit that this program was built from, or else the time of the
// program's file.
func buildTime() time.Time {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if t, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return t
			}
		}
	}
	if self, err := os.Executable(); err == nil {
		if info, err := os.Stat(self); err == nil {
			return info.ModTime()
		}
	}
	return time.Time{}
}
