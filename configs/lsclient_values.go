package configs

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"tapgw/internal/shellrule"
)

// isArgument accepts the words of a command behind those before.
func isArgument(before []string, arg string) error {
	if arg == "" && len(before) == 0 {
		return errors.New("must be the name of a program")
	}
	return noNUL(arg)
}

func isPath(s string) error {
	if s == "" {
		return errors.New("must be a directory")
	}
	return noNUL(s)
}

// isEnvOrPrefix accepts the name of an environment variable, or its beginning and a *. Its error does not repeat the
// value, which may be a secret in the wrong place.
func isEnvOrPrefix(s string) error {
	return CheckKeyEnv(strings.TrimSuffix(s, "*"))
}

func isModelOrNone(s string) error {
	if s == "" {
		return nil
	}
	return isModel(s)
}

func notEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("must not be empty")
	}
	return nil
}

func isHTTP(s string) error {
	if u, err := url.Parse(s); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errors.New(`is not an http or https URL, such as "https://tools.example/mcp"`)
	}
	return nil
}

func isProxyURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New(`is not a proxy's URL, such as "http://proxy.example:3128"`)
	case u.User != nil:
		return errors.New(
			"must not hold a user name or password: put user:password into a variable and its name into auth_env",
		)
	}
	return nil
}

func isEnterpriseURL(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return errors.New(`is not the https URL of a GitHub Enterprise server, such as "https://github.example"`)
	}
	return nil
}

// isTerminalRule accepts a rule for commands, which may also be a whole line of the shell.
func isTerminalRule(s string) error {
	if err := cmp.Or(notEmpty(s), foreignNotation(s, forCommands)); err != nil {
		return err
	}
	if shellrule.Exactly(s).IsVoid() {
		return fmt.Errorf("%q allows nothing: with a * it must be plain words of commands", s)
	}
	return nil
}
