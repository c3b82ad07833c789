package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

// EnvConfig names the config file where --config does not.
const EnvConfig = "TAPGW_CONFIG"

// WorkdirFlag is -w: the directory to work in, as [Workdir] returns it.
func WorkdirFlag() ucli.Flag {
	return &ucli.StringFlag{
		Name:    "workdir",
		Aliases: []string{"w"},
		Usage:   "work in `DIR` (default: the current directory)",
	}
}

// VerboseFlag is -v.
func VerboseFlag() ucli.Flag {
	return &ucli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell on stderr what is done"}
}

// ConfigFlag is --config.
func ConfigFlag() ucli.Flag {
	return &ucli.StringFlag{
		Name: "config",
		Usage: "read `FILE` (default: $" + EnvConfig +
			", else the user's own and, over it, the trusted working directory's)",
	}
}

// Workdir returns the directory that -w names, absolute, else the current one.
func Workdir(c *ucli.Context) (string, error) {
	named := c.String("workdir")
	dir, err := filepath.Abs(named)
	if err != nil {
		return "", fmt.Errorf("finding the current directory: %w", err)
	}
	if named == "" {
		return dir, nil
	}
	switch info, err := os.Stat(dir); {
	case err != nil:
		return "", Usage("flag --workdir: %s: no such directory", dir)
	case !info.IsDir():
		return "", Usage("flag --workdir: %s: is not a directory", dir)
	}
	return dir, nil
}

// MaxArgs returns a usage error when there are more than n arguments.
func MaxArgs(c *ucli.Context, n int) error {
	if c.NArg() > n {
		return Usage("%s: unexpected argument %q (quote a text of several words)",
			strings.TrimPrefix(c.Command.HelpName, c.App.Name+" "), c.Args().Get(n))
	}
	return nil
}

// OneOf returns a flag's value, which must be one of the allowed words. It returns "" for a
// flag that is not set.
func OneOf(c *ucli.Context, flag string, allowed ...string) (string, error) {
	value := c.String(flag)
	if slices.Contains(allowed, value) {
		return value, nil
	}
	if value == "" && !c.IsSet(flag) {
		return "", nil
	}
	return "", Usage("flag --%s: %q is none of %s%s",
		flag, value, strings.Join(allowed, ", "), didYouMean(value, allowed))
}

// maxInput is the most that [Text] reads, in bytes. The admin API accepts no more.
const maxInput = 2 << 20

// Text returns an argument, or for "-" all of stdin without its last line end.
func Text(c *ucli.Context, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	data, err := io.ReadAll(io.LimitReader(c.App.Reader, maxInput+1))
	if err != nil {
		return "", fmt.Errorf("reading stdin: %w", err)
	}
	if len(data) > maxInput {
		return "", Usage("stdin: more than %d bytes", maxInput)
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}
