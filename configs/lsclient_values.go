package configs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"tapgw/internal/shellrule"
)

func isPath(s string) error {
	if s == "" {
		return errors.New("must be a directory")
	}
	return noNUL(s)
}

// isEnvOrPrefix accepts the name of an environment variable, or its beginning and a *. Its error
// does not repeat the value, which may be a secret in the wrong place.
func isEnvOrPrefix(s string) error {
	return CheckKeyEnv(strings.TrimSuffix(s, "*"))
}

// isTerminalRule accepts a rule for commands, which may also be a whole line of the shell.
func isTerminalRule(s string) error {
	if err := cmp.Or(isText(s), foreignNotation(s, forCommands)); err != nil {
		return err
	}
	if shellrule.Exactly(s).IsVoid() {
		return fmt.Errorf("%q allows nothing: with a * it must be plain words of commands", s)
	}
	return nil
}
