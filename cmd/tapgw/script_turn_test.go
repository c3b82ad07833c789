package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/scriptmodel"
)

// turn NAME PROMPT prompts the gateway's Copilot session, starting one in proj if
// there is none, and prints what the model said last.
func cmdTurn(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, ts.Getenv(args[0]+"_URL"))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sessions, err := c.Sessions(ctx)
	ts.Check(err)
	var id string
	if len(sessions) > 0 {
		id = sessions[0].ID
	} else {
		id, err = c.Start(ctx, adminapi.StartRequest{
			CWD:           ts.MkAbs("proj"),
			ModelSettings: adminapi.ModelSettings{Model: scriptmodel.ModelID},
		})
		ts.Check(err)
	}
	said := ""
	for line, err := range c.Query(ctx, id, adminapi.Query{Prompt: args[1]}) {
		ts.Check(err)
		if line.Name == "onEndMessage" {
			said = *line.CompleteContent
		}
	}
	_, _ = fmt.Fprintln(ts.Stdout(), said)
}

// timeline NAME TEXT waits until a line of the first session's timeline has a text.
func cmdTimeline(ts *testscript.TestScript, _ bool, args []string) {
	c := gatewayClient(ts, ts.Getenv(args[0]+"_URL"))
	defer c.Close()
	ctx := context.Background()
	sessions, err := c.Sessions(ctx)
	ts.Check(err)
	wait(ts, func() string {
		all := ""
		for line, err := range c.Timeline(ctx, sessions[0].ID, client.LogQuery{}) {
			ts.Check(err)
			all += string(line.Level) + " " + line.Message + "\n"
		}
		if strings.Contains(all, args[1]) {
			return ""
		}
		return fmt.Sprintf("the timeline does not say %q:\n%s", args[1], all)
	})
}
