package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"
)

// EnvConfig is the environment variable with the path of the config file. The flag --config comes
// before it.
const EnvConfig = "TAPGW_CONFIG"

// WorkdirFlag returns the flag -w or --workdir, which names the directory to work in. [Workdir]
// reads and checks its value.
func WorkdirFlag() ucli.Flag {
	return &ucli.StringFlag{
		Name:    "workdir",
		Aliases: []string{"w"},
		Usage:   "work in `DIR` (default: the current directory)",
	}
}

// VerboseFlag returns the flag -v or --verbose, which sets [Output].Verbose. Commands then report
// their steps on stderr.
func VerboseFlag() ucli.Flag {
	return &ucli.BoolFlag{Name: "verbose", Aliases: []string{"v"},
		Usage: "tell on stderr what is done"}
}

// ConfigFlag returns the flag --config, which names the config file to read in place of all others.
// Its value is a path, "" if the flag is not set.
func ConfigFlag() ucli.Flag {
	return &ucli.StringFlag{
		Name: "config",
		Usage: "read `FILE` (default: $" + EnvConfig +
			", else the user's own and, over it, the trusted working directory's)",
	}
}

// Workdir returns the directory that -w names as an absolute path, or the current directory without
// -w. A path that does not exist or is no directory is a usage error.
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

// Absolute returns a path that the user named, which may be relative to [Workdir].
func Absolute(c *ucli.Context, path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	dir, err := Workdir(c)
	return filepath.Join(dir, path), err
}

// MaxArgs returns a usage error if the command has more than n arguments, else nil. The error shows
// the first argument that is too many, which is often part of a text without quotes.
func MaxArgs(c *ucli.Context, n int) error {
	if c.NArg() > n {
		return Usage("%s: unexpected argument %q (quote a text of several words)",
			strings.TrimPrefix(c.Command.HelpName, c.App.Name+" "), c.Args().Get(n))
	}
	return nil
}

// Limited returns a context that ends at the flag --timeout, else after the standard time; 0 is no
// limit.
func Limited(c *ucli.Context, standard time.Duration) (context.Context, context.CancelFunc, error) {
	if c.IsSet("timeout") {
		if standard = c.Duration("timeout"); standard <= 0 {
			return nil, nil, Usage("flag --timeout: must be more than 0")
		}
	}
	if standard == 0 {
		return c.Context, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(c.Context, standard)
	return ctx, cancel, nil
}

// OneOf returns a flag's value, which must be one of the allowed words, or "" if the flag is not
// set. Any other value is a usage error that lists the words and proposes the nearest.
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

// Text returns an argument, or for "-" all of stdin without its last line end. Stdin with more than
// 2 MiB is a usage error, because the admin API accepts no more.
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
