package workspace

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// StartServer starts the language server with the settings of the configuration, to which the caller
// has added its own. A MaxRounds of 0 becomes the configuration's. The error has an exit code.
func (w *Workspace) StartServer(ctx context.Context, o langserver.Options) (*langserver.Client, error) {
	config := w.Config()
	o.Command, o.Workspace, o.Version, o.Log = config.Server, w.Dir, cli.Version(), w.logger()
	o.MaxRounds = cmp.Or(o.MaxRounds, config.MaxRounds)
	var err error
	if o.Proxy, err = w.proxy(); err != nil {
		return nil, err
	}
	o.Enterprise = config.GitHub.Enterprise
	o.MCP = map[string]langserver.MCPServer{}
	for name, s := range w.MCP() {
		o.MCP[name] = langserver.MCPServer(s.In(w.Dir))
	}
	if o.Trusted, err = configs.Trusted(w.Dir); err != nil {
		return nil, err
	}
	server, err := langserver.Start(ctx, o)
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the language server did not start within --timeout; use a longer one", Err: err}
	case ctx.Err() != nil:
		err = &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return server, ExitError(err)
}

// proxy returns how the server reaches the network: as flags and the configuration say.
func (w *Workspace) proxy() (p langserver.Proxy, err error) {
	config := w.Config().Proxy
	p = langserver.Proxy{URL: config.URL, Insecure: !config.StrictSSL || w.options.NoSSLVerify}
	if flag := w.options.Proxy; flag != nil {
		// The password of the configuration's proxy is not for another one.
		p.URL, config.AuthEnv = *flag, ""
		if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Hostname() == "" {
			return p, cli.Usage("flag --proxy: is not a proxy's URL, such as http://proxy.example:3128")
		}
	}
	if config.AuthEnv != "" {
		if p.Auth = os.Getenv(config.AuthEnv); p.Auth == "" {
			return p, cli.Failed("the proxy's password is missing: set the variable %s "+
				"(proxy.auth_env in lsclient.toml)", config.AuthEnv)
		}
	}
	return p, nil
}

// Texts for a user who is not signed in.
const (
	HowToSignIn  = "lsclient login, or set GH_COPILOT_TOKEN"
	OtherAccount = "https://github.com/settings/copilot, or sign in with another account: " +
		"lsclient logout, then lsclient login"
	NotAuthorized = "this GitHub account may not use Copilot: see " + OtherAccount
)

// ExitError gives errors of the language server their exit codes and texts.
func ExitError(err error) error {
	var unknown *langserver.UnknownModelError
	var effort *langserver.EffortError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, langserver.ErrNotSignedIn):
		message := "not signed in to GitHub; sign in with: " + HowToSignIn
		if strings.Contains(err.Error(), "NotAuthorized") {
			message = NotAuthorized
		}
		return &cli.Error{Exit: cli.ExitRefused, Code: "NOT_SIGNED_IN", Message: message, Err: err}
	case errors.As(err, &effort):
		return cli.Usage("%v; lsclient models lists what each takes", err)
	case errors.As(err, &unknown):
		return &cli.Error{Exit: cli.ExitNotFound, Code: cli.CodeNotFound, Message: err.Error() +
			"; lsclient models lists them", Err: err}
	case errors.Is(err, langserver.ErrCancelled) && errors.Is(err, context.DeadlineExceeded):
		return &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the turn did not end within --timeout; use a longer one", Err: err}
	case errors.Is(err, langserver.ErrCancelled):
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return err
}
