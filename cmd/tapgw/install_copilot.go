package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/install"
)

func installCopilotCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "copilot",
		Usage: "make Copilot CLIs in terminals sessions of the gateway",
		Description: `It writes up to three things where the Copilot CLI looks for them:
  --hooks      hooks/tapgw.json: the CLI asks the gateway about its prompts and tool calls
  --mcp        an entry tapgw in mcp-config.json: the CLI gets the tools of the providers
  --extension  extensions/tapgw/extension.mjs: tools and prompts come at once, also to an idle
               terminal; the CLI must run with --experimental
Without these flags it writes the first two. The place is ~/.copilot, or COPILOT_HOME; with
--project it is .github and .mcp.json of the git repository (or of the working directory).

It shows what it writes; on a terminal it asks first. What another version of tapgw wrote is
brought up to date. A file that a person has changed stays as it is, and so does everything
else there. tapgw uninstall copilot gives back what was there before. docs/terminals.md says
what each way can do.

Examples:
  tapgw install copilot
  tapgw install copilot --extension
  tapgw install copilot --project --hooks --dry-run`,
		Flags:  append(installFlags(), copilotFlags()...),
		Action: func(c *ucli.Context) error { return changeCopilot(c, true) },
	}
}

func uninstallCopilotCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "copilot",
		Usage: "take away what tapgw install copilot wrote",
		Description: `It removes the files of tapgw install copilot, the directories that were made for them, and the
entry tapgw of the MCP servers. With flags it removes those parts alone. A file that a person
has changed stays.

Examples:
  tapgw uninstall copilot
  tapgw uninstall copilot --project --dry-run`,
		Flags:  append(installFlags(), copilotFlags()...),
		Action: func(c *ucli.Context) error { return changeCopilot(c, false) },
	}
}

func copilotFlags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: install.Hooks, Usage: "the hook file"},
		&ucli.BoolFlag{Name: install.MCP, Usage: "the entry of the MCP servers"},
		&ucli.BoolFlag{Name: install.Extension, Usage: "the extension"},
	}
}
