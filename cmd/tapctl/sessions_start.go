package main

import (
	"os"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// defaultKeyEnv is the variable that holds the key of the user's own model endpoint.
const defaultKeyEnv = "TAP_MODEL_KEY"

func startCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "start",
		Usage: "start a session and print its id",
		Description: `A local session has no model: a prompt "call:NAME {json}" calls that tool, which is enough
to try a provider. The settings of a Copilot session are in tapgw.toml, in [copilot] or a
profile; flags override them. The key of your own model endpoint, and a GitHub token, are
read from the environment and sent to the gateway; they are never an argument.

Examples:
  tapctl sessions start --host local
  tapctl sessions start --model gpt-5-mini --effort high --cwd ~/project
  tapctl sessions start --profile review
  tapctl sessions start --provider-url http://127.0.0.1:11434/v1 --model qwen3`,
		Flags: append([]ucli.Flag{
			&ucli.StringFlag{Name: "host", Usage: "`local|copilot`: what runs the session",
				Value: "copilot"},
			&ucli.StringFlag{Name: "cwd",
				Usage: "the session's working `DIR` (default: where tapctl runs)"},
			&ucli.StringFlag{
				Name: "label",
				Usage: "the session's `NAME` for people (default: its repository and branch, " +
					"else its directory)",
			},
		}, settingsFlags()...),
		Action: shortAction(0, startSession),
	}
}

func startSession(c *command) error {
	host, err := cli.OneOf(c.Context, "host", "local", "copilot")
	if err != nil {
		return err
	}
	dir, err := c.existingDirectory()
	if err != nil {
		return err
	}
	settings, err := c.modelSettings()
	if err != nil {
		return err
	}
	id, err := c.gw.Start(c.ctx, adminapi.StartRequest{
		Host: host, CWD: dir, Label: c.String("label"), ModelSettings: settings,
	})
	if err != nil {
		return err
	}
	return c.out.Result(map[string]string{"id": id}, "%s\n", id)
}

// settingsFlags are the flags of a new or resumed session's model.
func settingsFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "profile",
			Usage: "the `PROFILE` of tapgw.toml to use, [copilot.profile.NAME]"},
		&ucli.StringFlag{Name: "model", Usage: "the `MODEL` (see tapctl models)"},
		&ucli.StringFlag{Name: "effort", Usage: effortUsage},
		&ucli.StringFlag{Name: "provider-url",
			Usage: "`URL` of a model endpoint of your own (OpenAI wire)"},
		&ucli.StringFlag{
			Name: "provider-key-env", Usage: "the environment `VARIABLE` that holds its key",
			Value: defaultKeyEnv,
		},
		&ucli.StringFlag{
			Name:  "github-token-env",
			Usage: "the environment `VARIABLE` that holds the GitHub token to use the models with",
		},
	}
}

// modelSettings reads the flags of settingsFlags, and the secrets from the environment.
func (c *command) modelSettings() (adminapi.ModelSettings, error) {
	r := adminapi.ModelSettings{
		Profile: c.String("profile"), Model: c.String("model"), Effort: c.String("effort"),
		ProviderURL: c.String("provider-url"),
	}
	var err error
	if r.ProviderKey, err = providerKey(c.Context); err != nil {
		return r, err
	}
	if name := c.String("github-token-env"); name != "" {
		if r.GitHubToken = os.Getenv(name); r.GitHubToken == "" {
			return r, cli.Usage("flag --github-token-env: the environment variable %q is not set",
				name)
		}
	}
	return r, nil
}

// providerKey reads the key of the endpoint that --provider-url names. An endpoint may need no
// key, but a variable that the user names must be set.
func providerKey(flags *ucli.Context) (string, error) {
	name, isNamed := flags.String("provider-key-env"), flags.IsSet("provider-key-env")
	if flags.String("provider-url") == "" {
		if isNamed {
			return "",
				cli.Usage("flag --provider-key-env: goes with --provider-url; give that, too")
		}
		return "", nil
	}
	key := os.Getenv(name)
	if key == "" && isNamed {
		return "", cli.Usage("flag --provider-key-env: the environment variable %q is not set",
			name)
	}
	return key, nil
}
