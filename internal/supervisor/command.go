package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"tapgw/internal/proc"
)

// stopGrace is how long a program has between SIGTERM and SIGKILL. A gateway that ends has little
// time to wait, and its sessions ended before.
const stopGrace = 2 * time.Second

// runCommand runs a program that speaks the protocol.
func runCommand(ctx context.Context, r *Run) error {
	env, err := r.Provider.Variables()
	if err != nil {
		return err
	}
	env["TAP_GATEWAY_URL"], env["TAP_PROVIDER_TOKEN"] = r.URL, r.Token
	dir := r.Path(r.Provider.CWD)
	// the system would say it of the program
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("cwd: there is no directory %s", dir)
	}
	p, err := proc.Start(proc.Command{
		Path: r.Provider.Command[0], Args: r.Provider.Command[1:], Dir: dir, Env: proc.Environ(env),
		OnLine: func(from proc.Stream, line string) { r.Line(string(from), line) },
		Keep:   1, // the lines are kept elsewhere
		Grace:  stopGrace,
	})
	if err != nil {
		return err
	}
	r.Line("tapgw", fmt.Sprintf("started %s as process %d", r.Provider.Command[0], p.PID()))
	select {
	case <-ctx.Done():
		p.Stop()
		return nil
	case <-p.Done():
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("process %d ended: %w", p.PID(), err)
	}
	return fmt.Errorf("process %d ended by itself", p.PID())
}

// Path makes a path of a provider file absolute. Relative paths start at Workdir.
func (r *Run) Path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.Workdir, p)
}
