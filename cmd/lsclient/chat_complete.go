package main

import (
	"context"
	"strings"

	"tapgw/internal/terminal"
)

// candidates returns the ways to complete a word of a prompt: a command, or @ and the path of a file.
func (c *chat) candidates(word string) (found []terminal.Candidate) {
	for _, command := range slashCommands() {
		if strings.HasPrefix(command.name, word) {
			found = append(found, terminal.Candidate{Text: command.name, Help: command.help})
		}
	}
	return found
}

// toggleReasoning is /reasoning.
func (c *chat) toggleReasoning(context.Context, string) error {
	c.cmd.reasoning = !c.cmd.reasoning
	if c.cmd.showsReasoning() {
		c.cmd.out.Notef("the model's reasoning is shown")
	} else {
		c.cmd.out.Notef("the model's reasoning is hidden")
	}
	return nil
}
