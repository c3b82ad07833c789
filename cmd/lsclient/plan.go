package main

import (
	"context"
	"errors"
)

// errPlan is why a tool that does more than read is refused with --plan.
var errPlan = errors.New("this run only plans (--plan): nothing may be changed, run or fetched. " +
	"Describe what you would do")

// planInstructions tells the model that it plans.
const planInstructions = `You are planning. You can read and search the workspace; nothing may be changed, no command
may run, and no tool does so. Find out what you need, then answer the request: with the facts for a question, else with
a plan. A plan names the steps in order, the files that each touches, how the result is checked, and what is still open.
Do not say that you have done any of it.`

// prepare makes the server ready for turns: with --plan it hides the server's own tools that do more than read, else it
// waits for the MCP servers.
func (v *conversation) prepare(ctx context.Context) error {
	if v.cmd.Bool("plan") {
		return v.server.HideOwnTools(ctx)
	}
	return v.cmd.workspace.WaitForMCP(ctx, v.server)
}
