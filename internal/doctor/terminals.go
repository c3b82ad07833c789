package doctor

import (
	"context"
	"errors"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/install"
	"tapgw/internal/ownfile"
	"tapgw/internal/statedir"
)

// checkTerminals checks the files that tapgw install copilot wrote.
func (d *Doctor) checkTerminals(context.Context) cli.Result {
	rows, faults, err := install.CopilotStatus(d.files.Workdir)
	if err != nil {
		return cli.Fail("set HOME or "+statedir.EnvHome, "%v", err)
	}
	if len(faults) > 0 {
		return cli.Warn("correct the file, or move it away", "%v", errors.Join(faults...))
	}
	var installed []string
	hooks := map[string]string{} // by scope
	for _, r := range rows {
		switch r.State {
		case ownfile.Absent:
			continue
		case ownfile.Outdated:
			return cli.Warn("run tapgw install copilot --"+r.Scope+" --"+r.What,
				"%s is of another version", r.Path)
		}
		installed = append(installed, r.What+" ("+r.Scope+")")
		if r.What == install.Hooks {
			hooks[r.Scope] = r.Path
		}
	}
	off, err := install.DisabledHooks(d.files.Workdir)
	if err != nil {
		return cli.Fail("set HOME or "+statedir.EnvHome, "%v", err)
	}
	switch {
	case len(installed) == 0:
		return cli.OK("not installed; tapgw install copilot makes Copilot CLIs sessions")
	case len(hooks) > 1:
		return cli.Warn("run tapgw uninstall copilot --hooks --user, or --project",
			"each hook runs twice: %s and %s", hooks["user"], hooks["project"])
	case len(hooks) > 0 && len(off) > 0:
		return cli.Warn("remove disableAllHooks from it if gates must hold here",
			"%s turns the CLI's hooks off in this project", off[0])
	}
	return cli.OK("%s", strings.Join(installed, ", "))
}
