package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/mcpclients"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// The gateway's entry in the config files of MCP clients.

// EnvToken is the variable of a client's environment that has the token for /mcp.
const EnvToken = "TAP_MCP_TOKEN" //nolint:gosec // a name

// Command returns the gateway as a client starts it: tapgw mcp with some flags.
func Command(flags ...string) (s mcpclients.Server, err error) {
	program, err := ownProgram()
	if err == nil {
		err = checkProgram("mcp install", program)
	}
	if err != nil {
		return s, err
	}
	return stdioServer(program, flags...)
}

// stdioServer is tapgw mcp with some flags. Most clients start servers with few of their own
// variables.
func stdioServer(program string, args ...string) (s mcpclients.Server, err error) {
	s.Command = append([]string{program, "mcp"}, args...)
	if os.Getenv(statedir.EnvHome) != "" {
		home, err := statedir.Home()
		if err != nil {
			return s, err
		}
		s.Env = map[string]string{statedir.EnvHome: home}
	}
	return s, nil
}

// ownProgram returns the absolute path of this program: as PATH has it if it is the same file,
// because such a path stays when a new version is installed elsewhere and linked.
func ownProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	named, err := exec.LookPath(filepath.Base(os.Args[0]))
	if err != nil {
		return self, nil //nolint:nilerr // it is not on PATH
	}
	a, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	if b, err := os.Stat(named); err != nil || !os.SameFile(a, b) {
		return self, nil //nolint:nilerr // another program's name
	}
	return filepath.Abs(named)
}

// URL returns the gateway that runs, or that the config makes, as a client reaches it over HTTP.
// session is "" for the foreground session.
func URL(
	ctx context.Context, client mcpclients.Client, session string,
	load func() (configs.Config, error),
) (s mcpclients.Server, err error) {
	if !client.HasVariables() {
		return s, cli.Usage(
			"flag --http: %s can't read a token from a variable, and a token does not belong "+
				"in its file; "+
				"leave --http out",
			client.Name,
		)
	}
	base := ""
	if g, runs := daemon.Dir(configs.StateDir()).Running(ctx); runs {
		base = "http" + strings.TrimPrefix(g.URL, "ws")
	} else {
		config, err := load()
		if err != nil {
			return s, err
		}
		scheme := "http"
		if config.TLSCert != "" {
			scheme = "https"
		}
		base = scheme + "://" + config.Listen
		if strings.HasSuffix(config.Listen, ":0") {
			return s,
				cli.Failed(
					"mcp install --http: the gateway takes another port at each start; set listen")
		}
	}
	s.URL, s.TokenEnv = base+"/mcp", EnvToken
	if session != "" {
		s.URL += "/s/" + url.PathEscape(session)
	}
	return s, nil
}

// changeResult is the result of tapgw mcp install and uninstall, as JSON.
type changeResult struct {
	Client  string `json:"client"`
	File    string `json:"file"`
	Change  string `json:"change"` // none, added, updated, removed
	Written bool   `json:"written"`
	Diff    string `json:"diff,omitempty"`
}

// InstallClient adds the gateway to the config file of an MCP client: the user's, or a project's if
// project is not "".
func (d Dialog) InstallClient(
	ctx context.Context, client mcpclients.Client, s mcpclients.Server, project string,
) error {
	change, err := client.Install(s, project)
	if err != nil {
		return err
	}
	if err := errors.Join(d.applyChange(ctx, "install", client, change),
		d.noteProject(project)); err != nil {
		return err
	}
	if s.URL != "" && change.Kind != mcpclients.None {
		d.Out.Notef("%s needs the token in %s of its environment; tapctl mcp token prints one",
			client.Name, EnvToken)
	}
	return nil
}

// UninstallClient takes the gateway out of the config file of an MCP client.
func (d Dialog) UninstallClient(
	ctx context.Context, client mcpclients.Client, project string,
) error {
	change, err := client.Uninstall(project)
	if err != nil {
		return err
	}
	return errors.Join(d.applyChange(ctx, "uninstall", client, change), d.noteProject(project))
}

// applyChange shows a change and writes it, unless the user says no. verb is the word of the
// command.
func (d Dialog) applyChange(
	ctx context.Context, verb string, client mcpclients.Client, change *mcpclients.Change,
) error {
	if change.Kind != mcpclients.None && !d.Yes && !d.DryRun && d.Ask == nil {
		return cli.Usage(
			"mcp %s: there is no terminal to ask on: give --yes to write %s, or --dry-run to "+
				"see the change",
			verb,
			visible.Line(change.File),
		)
	}
	out, difference := d.Out, change.Diff()
	r := changeResult{Client: client.Name, File: change.File, Change: change.Kind,
		Diff: difference.String()}
	if change.Kind == mcpclients.None {
		return out.Result(r, "%s: nothing changes\n", visible.Line(change.File))
	}
	if !out.JSON {
		if err := printDiff(out, &difference); err != nil {
			return err
		}
	}
	if r.Written = !d.DryRun; r.Written {
		if err := d.confirm(ctx, "Write it?"); err != nil {
			return err
		}
		if err := change.Write(); err != nil {
			return err
		}
	}
	if out.JSON {
		return out.Document(r)
	}
	if !r.Written {
		return nil
	}
	return out.Printf("%s: %s %s\n", client.Name, change.Kind, visible.Line(change.File))
}
