package assembly

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/mcpbridge"
	"tapgw/internal/proc"
	"tapgw/internal/supervisor"
	"tapgw/tools"
	"tapgw/tools/provide"
)

// launchTools offers the drop-in tools of a directory, and follows its changes until ctx
// ends.
func launchTools(ctx context.Context, r *supervisor.Run) error {
	x := &tools.External{Log: func(file, line string) { r.Line(filepath.Base(file), line) }}
	if r.Provider.Project != "" {
		x.Check = func(string) error {
			return configs.Unchanged(r.Provider.Project, r.Provider.File)
		}
	}
	defer x.Close()
	dir, permit := r.Path(r.Provider.Dir), r.Provider.Permit
	p := provide.New(provide.Options{
		Name: r.Provider.Name, Provider: *r.Options(),
		Env: tools.Env{
			Home:    configs.UserDir(),
			Sources: []string{dir, configs.UserDir(), configs.Home()},
			Secrets: []string{configs.StateDir()},
		},
		Allow: provide.Allow{
			Tools: permit.Tools, Outside: permit.Outside, NoKind: true,
			Where: "permit.%s in " + filepath.Base(r.Provider.File),
		},
	})
	faults := &toolFaults{run: r}
	watch := func(ctx context.Context, offer func([]*tools.Tool)) {
		x.Watch(ctx, []string{dir}, func(list []*tools.Tool, leftOut []tools.Fault) {
			faults.setLeftOut(leftOut)
			offer(list)
		})
	}
	return p.RunWith(ctx, watch, func(_ []*tools.Tool, err error) { faults.setRefusal(err) })
}

// launchMCP returns a launcher that offers the tools of an MCP server until ctx ends.
func launchMCP(g *gateway.Gateway, logins *mcpbridge.Logins, version string) supervisor.Launcher {
	return func(ctx context.Context, r *supervisor.Run) error {
		env, err := r.Provider.Variables()
		if err != nil {
			return err
		}
		o := mcpbridge.Options{
			Provider: *r.Provider, Gateway: *r.Options(), Dir: r.Path(r.Provider.CWD),
			Env: proc.Environ(env), Version: version, Logins: logins, Spans: g.Spans(),
			Metrics: g.Metrics(), Line: r.Line,
			Trouble: func(err error) {
				if r.Away(err); err != nil {
					r.Trouble(err)
				}
			},
			Ask: func(ctx context.Context, session string, q gateway.Question) (gateway.Answer,
				error) {
				s, ok := g.Session(session)
				if !ok {
					return gateway.Answer{}, gateway.ErrSessionEnded
				}
				return s.Ask(ctx, q)
			},
			Faults: r.LineFaults,
		}
		if s, ok := g.Session(r.Session); ok {
			o.Root = s.View().CWD
		}
		return mcpbridge.Run(ctx, o)
	}
}

// toolFaults reports the faults of a directory of tools to the supervisor, and each new
// fault to the provider's log.
type toolFaults struct {
	run *supervisor.Run

	mu      sync.Mutex    // guards the fields that follow
	leftOut []tools.Fault // tools that can't be used
	refusal error         // of the whole list by the gateway
}

func (f *toolFaults) setLeftOut(leftOut []tools.Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range leftOut {
		if !slices.Contains(f.leftOut, fault) {
			f.run.Line("tapgw", "tool left out: "+fault.String())
		}
	}
	f.leftOut = leftOut
	f.report()
}

func (f *toolFaults) setRefusal(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.run.Line("tapgw", err.Error())
	}
	f.refusal = err
	f.report()
}

// report gives the supervisor all faults. Call it with mu held.
func (f *toolFaults) report() {
	var faults []configs.Fault
	for _, t := range f.leftOut {
		faults = append(faults, configs.Fault{
			File: t.File, Line: max(t.Line, 1), Column: 1, Message: "tool left out: " + t.Reason,
		})
	}
	if f.refusal != nil {
		faults = append(faults, configs.Fault{
			File: f.run.Provider.File, Line: 1, Column: 1, Message: f.refusal.Error(),
		})
	}
	f.run.Faults(faults)
}
