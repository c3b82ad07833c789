package assembly

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/sources"
	"tapgw/internal/supervisor"
)

// Sources of provider files run in this gateway, with their state on disk.

// launchSource returns a launcher that runs the sources of provider files. dir keeps their state.
func launchSource(
	g *gateway.Gateway, set *sources.Set, record func(adminapi.Record), dir string,
) supervisor.Launcher {
	return func(ctx context.Context, r *supervisor.Run) error {
		env, err := r.Provider.Variables()
		if err != nil {
			return err
		}
		state := sourceState(dir, r.Provider, r.Session)
		o := &sources.Options{
			Provider: r.Provider, Gateway: sourceGateway{g}, Token: r.Token,
			Session: r.Session, Dir: r.Path(r.Provider.CWD),
			Env: func() []string { return proc.Environ(env) }, State: state,
			Line: r.Line, Faults: r.LineFaults, Record: record,
		}
		if r.Provider.Project != "" { // the program may change between two runs
			o.Check = func() error { return configs.Unchanged(r.Provider.Project, r.Provider.File) }
		}
		if r.Provider.Source.Webhook {
			o.Taken = sourceState(dir, r.Provider, "")
		}
		err = set.Start(ctx, o, func(err error) {
			if _, gone := os.Lstat(r.Provider.File); ctx.Err() != nil &&
				errors.Is(gone, fs.ErrNotExist) {
				_ = os.Remove(state) // for another source of this name
			}
			r.Ended(err)
		})
		return cmp.Or(err, supervisor.ErrDetached)
	}
}

// sourceGateway is the gateway for sources.
type sourceGateway struct{ *gateway.Gateway }

// Connect implements [sources.Gateway].
func (g sourceGateway) Connect(p sources.Peer) sources.Conn {
	return g.Gateway.Connect(p, gateway.ConnOptions{})
}

// sourceState is the file with a source's state: one file for each provider file, and one for each
// session that has a source of its own. Without a session, it is the file of the requests that the
// source's webhooks took.
func sourceState(dir string, p *configs.Provider, session string) string {
	name := p.Name
	if p.Project != "" {
		sum := sha256.Sum256([]byte(p.Project))
		name += "-" + hex.EncodeToString(sum[:4])
	}
	if session != protocol.AllSessions {
		name += "@" + sessionFile(session)
	}
	return filepath.Join(dir, name+".json")
}

// sessionFile is a session's id as a part of a file's name. A session host chooses its ids, which
// may have slashes.
func sessionFile(id string) string {
	if escaped := url.PathEscape(id); len(escaped) <= maxSessionFile {
		return escaped
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

const maxSessionFile = 100 // bytes; the whole name may have 255

// forgottenAfter is how long the state of a source is kept after its file or its session has gone.
const forgottenAfter = 90 * 24 * time.Hour

// forgetSources removes state files of sources that were not written for long. It keeps the state
// of sources that files name now, because a source may run once a year.
func forgetSources(dir string, files func() []configs.ProviderFile, now time.Time) {
	entries, _ := os.ReadDir(dir) // the directory may be missing
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) < forgottenAfter {
			continue
		}
		isNamed := func(f configs.ProviderFile) bool {
			return filepath.Base(sourceState(dir, f.Provider, protocol.AllSessions)) == e.Name() ||
				filepath.Base(sourceState(dir, f.Provider, "")) == e.Name()
		}
		if !slices.ContainsFunc(files(), isNamed) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Sources lists the sources that provider files name, by name and session.
func (r reloader) Sources() []adminapi.Source {
	list := r.sources.List()
	type key struct{ file, name string } // a tap.config.json has several sources
	runs := map[key]bool{}
	for _, s := range list {
		runs[key{s.File, s.Name}] = true
	}
	for _, p := range r.Configured() {
		if p.Kind != configs.KindSource || runs[key{p.File, p.Name}] &&
			p.State == adminapi.ConfiguredRunning {
			continue
		}
		list = slices.DeleteFunc(list, func(s adminapi.Source) bool {
			return s.File == p.File && s.Name == p.Name
		})
		s := adminapi.Source{Name: p.Name, File: p.File, State: p.State, Reason: p.Reason}
		if file, err := r.Provider(p.Name); err == nil && file.Source != nil {
			s.Kind, s.Stream = file.Source.Kind(), file.Source.Stream
			if file.Sessions.Mode == configs.SessionsAll {
				s.Session = protocol.AllSessions
				s.LastRunAt, s.Runs = sources.Past(sourceState(r.sourceDir, &file, s.Session))
			}
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b adminapi.Source) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Session, b.Session))
	})
	return list
}

// Hook takes a request for the webhooks of a name, of all files that have it.
func (r reloader) Hook(
	ctx context.Context, name string, h http.Header, body []byte,
) (status int, message string) {
	named := r.Usable(name, configs.KindSource)
	status, message = r.sources.Hook(ctx, named, h, body)
	if len(named) > 0 && message != sources.HookTaken { // else it is recorded as a run
		r.webhooks.add(named[0].Name, status, message)
	}
	return status, message
}

// RunSource makes a source run now, whatever its schedule, and returns the number of sessions for
// which it runs.
func (r reloader) RunSource(name string) (int, error) {
	if n := r.sources.Trigger(name); n > 0 {
		return n, nil
	}
	for _, s := range r.Sources() {
		if s.Name == name {
			reason := strings.TrimSuffix(": "+s.Reason, ": ")
			return 0, protocol.Errorf(protocol.CodeInvalidState, "source %q is %s%s", name, s.State,
				reason)
		}
	}
	return 0, protocol.Errorf(protocol.CodeNotFound,
		"no file names a source %q: tapctl sources lists them", name)
}
