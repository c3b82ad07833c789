package main

import (
	"context"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/conversations"
)

// A resumed chat shows so much of its last turns.
const (
	shownTurns  = 3
	shownPrompt = 200
	shownAnswer = 400
)

// showEarlier shows how a resumed conversation ended, on stderr.
func (c *chat) showEarlier() {
	if n := c.v.kept.turns - len(c.v.kept.last); n > 0 {
		c.cmd.out.Notef("(%d earlier turns)", n)
	}
	dim := func(text string) string { return cli.Dim.On(c.cmd.App.ErrWriter, text) }
	for _, t := range c.v.kept.last {
		c.cmd.out.Notef("> %s", cli.Shorten(cli.Clean(t.Prompt), shownPrompt))
		answer := cli.OneLine(t.Text())
		if t.Outcome != conversations.Completed {
			answer += " (" + string(t.Outcome) + ")"
		}
		c.cmd.out.Notef("%s", dim(cli.Shorten(answer, shownAnswer)))
	}
}

// beginAnew is /new.
func (c *chat) beginAnew(ctx context.Context, _ string) error {
	if err := c.changeTo(ctx, c.cmd.newKept()); err != nil {
		return err
	}
	c.cmd.out.Notef("a new conversation")
	return nil
}

// resume is /resume: it goes on with another conversation, or lists those of the workspace.
func (c *chat) resume(ctx context.Context, word string) error {
	if word == "" {
		list, err := c.cmd.listedKept()
		if err != nil {
			return err
		}
		for _, i := range list {
			if i.Workspace == c.cmd.workspace.Dir {
				c.cmd.out.Notef("%s  %s  %s", beginning(i.ID), clock(i.UpdatedAt), cli.Shorten(i.Title, 60))
			}
		}
		return nil
	}
	kept, err := c.cmd.resumeKept(word)
	if err != nil {
		return err
	}
	if err := c.changeTo(ctx, kept); err != nil {
		return err
	}
	c.showEarlier()
	return nil
}

// changeTo ends the conversation and goes on with another one.
func (c *chat) changeTo(ctx context.Context, kept *keptConversation) error {
	if err := c.v.Close(ctx); err != nil {
		kept.close()
		return workspace.ExitError(err)
	}
	c.v.policy.ForgetSession()
	c.v.kept.close()
	c.v.kept = kept
	c.v.begin(c.mode)
	return nil
}
