package main

import (
	"net/url"
	"strings"

	ucli "github.com/urfave/cli/v2"
)

func mcpTokenCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "token",
		Usage: "print the token with which MCP clients use a session",
		Description: `The token opens one session at /mcp of the gateway, and nothing else: an MCP client can use
the session's tools and streams, and push. It is void when the session ends. A session
has one token, so the command prints the same again. --json also prints the URL.

Examples:
  export TAP_MCP_TOKEN=$(tapctl mcp token --session review)
  tapctl mcp token --json`,
		Flags:        []ucli.Flag{sessionFlag()},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(0, mcpToken),
	}
}

func mcpToken(c *command) error {
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return err
	}
	token, err := c.gw.MCPToken(c.ctx, id)
	if err != nil {
		return err
	}
	if !c.out.JSON {
		return c.out.Printf("%s\n", token)
	}
	return c.out.Line(struct {
		Session string `json:"session"`
		Token   string `json:"token"`
		URL     string `json:"url"`
	}{id, token, "http" + strings.TrimPrefix(c.gw.URL(), "ws") + "/mcp/s/" + url.PathEscape(id)})
}
