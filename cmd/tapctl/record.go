package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/recording"
)

func recordCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "record",
		Usage: "record what a session's providers and the gateway say to each other",
		Description: `Prints JSON: a line for the session and its providers, then one for each message, until the
session ends or Ctrl-C. tapctl replay plays the file again, and the gateway's page shows it.

Tokens, pairing codes, providers' answers to questions, the directories that providers store
files in, your home directory, and the names of other sessions are replaced: the same text by
the same placeholder, such as <token-1>. No program knows what else is a secret in the
arguments and results of tools: read the file before you give it away, and use --redact.

Examples:
  tapctl record > bug.jsonl
  tapctl record --session review --redact 'ACME-[0-9]+' --redact '(?i)internal\.example' > bug.jsonl
  tapctl record | jq -c 'select(.message.type == "tool.call").message'`,
		Flags: []ucli.Flag{
			sessionFlag(),
			&ucli.StringSliceFlag{Name: "redact",
				Usage: "also replace what matches `PATTERN`, a regular expression " +
					"(may be repeated)"},
		},
		BashComplete: completeSessionFlag(),
		Action:       longAction(0, record),
	}
}

func record(c *command) error {
	rules, err := redactRules(c.StringSlice("redact"))
	if err != nil {
		return err
	}
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return err
	}
	redactor, isFirst := recording.NewRuleRedactor(rules...), true
	return follow(c, c.gw.Record(c.ctx, id), func(line json.RawMessage) error {
		if isFirst {
			c.out.Notef("recording session %s; Ctrl-C ends it", id)
			isFirst = false
		}
		return c.out.Line(json.RawMessage(redactor.Message(line)))
	})
}

// redactRules are the rules for secrets that only this user knows: the home directory, and the
// patterns of --redact.
func redactRules(patterns []string) ([]recording.Rule, error) {
	var rules []recording.Rule
	if home, err := os.UserHomeDir(); err == nil && len(filepath.Clean(home)) > 1 {
		rules = append(rules, recording.Home(home))
	}
	for _, text := range patterns {
		pattern, err := regexp.Compile(text)
		if err != nil {
			return nil, cli.Usage("flag --redact: %q is not a regular expression: %v", text, err)
		}
		if pattern.MatchString("") {
			return nil,
				cli.Usage("flag --redact: %q also matches nothing at all; say what to replace",
					text)
		}
		rules = append(rules, recording.Rule{Pattern: pattern, Kind: "redacted"})
	}
	return rules, nil
}
