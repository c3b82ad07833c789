package main

import (
	"os"
	"path/filepath"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

// defaultKeyEnv is the variable that holds the key of a model endpoint of one's own.
const defaultKeyEnv = "TAP_MODEL_KEY"

func startCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "start",
		Usage: "start a session and print its id",
		Description: `A local session has no model: a prompt "call:NAME {json}" calls that tool, which
is enough to try a provider. The key of a model endpoint of one's own is read from
the environment and sent to the gateway; it is never an argument.

Examples:
  tapctl sessions start --host local
  tapctl sessions start --model gpt-5-mini --cwd ~/project
  tapctl sessions start --provider-url http://127.0.0.1:11434/v1 --model qwen3`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "host", Usage: "`local|copilot`: what runs the session", Value: "copilot"},
			&ucli.StringFlag{Name: "model", Usage: "the `MODEL` (see tapctl models)"},
			&ucli.StringFlag{Name: "cwd", Usage: "the session's working `DIR` (default: where tapctl runs)"},
			&ucli.StringFlag{Name: "label", Usage: "the session's `NAME` for people (default: that of its directory)"},
			&ucli.StringFlag{Name: "provider-url", Usage: "`URL` of a model endpoint of your own (OpenAI wire)"},
			&ucli.StringFlag{Name: "provider-key-env", Usage: "the environment `VARIABLE` that holds its key", Value: defaultKeyEnv},
		},
		Action: short(0, startSession),
	}
}

func startSession(k *call) error {
	host, err := cli.OneOf(k.Context, "host", "local", "copilot")
	if err != nil {
		return err
	}
	dir, err := cli.Workdir(k.Context)
	if err != nil {
		return err
	}
	if cwd := k.String("cwd"); filepath.IsAbs(cwd) {
		dir = cwd
	} else {
		dir = filepath.Join(dir, cwd)
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return cli.Usage("flag --cwd: %s is not a directory", dir)
	}
	r := client.StartRequest{Host: host, Model: k.String("model"), CWD: dir, Label: k.String("label"), ProviderURL: k.String("provider-url")}
	if r.ProviderKey, err = providerKey(k.Context); err != nil {
		return err
	}
	id, err := k.gw.Start(k.ctx, r)
	if err != nil {
		return err
	}
	if k.out.JSON {
		return k.out.Document(map[string]string{"id": id})
	}
	return k.out.Printf("%s\n", id)
}

// providerKey reads the key of the endpoint that --provider-url names. An
// endpoint may want none, but a variable that was named must be set.
func providerKey(c *ucli.Context) (string, error) {
	name, named := c.String("provider-key-env"), c.IsSet("provider-key-env")
	if c.String("provider-url") == "" {
		if named {
			return "", cli.Usage("flag --provider-key-env: is about the endpoint that --provider-url names; give that too")
		}
		return "", nil
	}
	key := os.Getenv(name)
	if key == "" && named {
		return "", cli.Usage("flag --provider-key-env: the environment variable %q is not set", name)
	}
	return key, nil
}
