package main

import (
	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/install"
)

func installSkillsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "skills",
		Usage: "teach agents the tap_* tools: loops, monitors, goals, several sessions, providers",
		Description: `It writes the skills tap-loop, tap-monitor, tap-goal, tap-orchestrate and
tap-create-provider where the Copilot CLI and Claude Code look for skills: in ~/.copilot/skills
and ~/.claude/skills, or with --project in .github/skills and .claude/skills. COPILOT_HOME and
CLAUDE_CONFIG_DIR count.

It shows what it writes; on a terminal it asks first. Skills that another version of tapgw
wrote are brought up to date. A file that a person has changed or written stays as it is, and
so does everything else there. tapgw uninstall skills takes away what tapgw wrote.

Examples:
  tapgw install skills
  tapgw install skills --project --dry-run
  tapgw install skills --yes --json`,
		Flags:  installFlags(),
		Action: func(c *ucli.Context) error { return inProject(c, install.Dialog.InstallSkills) },
	}
}

func uninstallSkillsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "skills",
		Usage: "take away the skills that tapgw wrote",
		Description: `It removes the files of tapgw install skills, and the directories that are empty then. A file
that a person has changed or written stays.

Examples:
  tapgw uninstall skills
  tapgw uninstall skills --project --dry-run`,
		Flags:  installFlags(),
		Action: func(c *ucli.Context) error { return inProject(c, install.Dialog.UninstallSkills) },
	}
}
