package langserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"tapgw/internal/langserver"
	"tapgw/tools"
	"tapgw/tools/builtin"
)

// A turn with the built-in tools of a workspace and one of the caller's own.
func Example() {
	ctx := context.Background()
	dir, err := os.Getwd()
	if err != nil {
		log.Fatal(err)
	}
	c, err := langserver.Start(ctx, langserver.Options{
		Workspace: dir,
		Confirm: func(_ context.Context, q langserver.Confirmation) error {
			if q.Ours { // its Call decides
				return nil
			}
			return errors.New("only what stays in the workspace")
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	list := []langserver.Tool{{
		Name: "greet", Description: "Says hello to somebody.",
		Parameters: json.RawMessage(
			`{"type":"object","properties":{"name":{"type":"string","description":"who"}},"required":["name"]}`,
		),
		Call: func(_ context.Context, call langserver.Invocation) langserver.Outcome {
			var in struct{ Name string }
			if err := json.Unmarshal(call.Input, &in); err != nil {
				return langserver.FailedWith(err)
			}
			return langserver.Succeeded("Hello, " + in.Name + "!")
		},
	}}
	for _, t := range builtin.All() {
		list = append(list, c.WorkspaceTool(t, tools.Env{Root: dir}))
	}
	faults, err := c.SetTools(ctx, list)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range faults {
		log.Print(f)
	}

	conversation := c.NewConversation(langserver.ConversationOptions{})
	_, err = conversation.Turn(ctx, "greet Ada", func(e langserver.Event) {
		switch e := e.(type) {
		case langserver.Text:
			fmt.Print(e.Delta)
		case langserver.ToolCall:
			fmt.Fprintln(os.Stderr, e.Name, e.State)
		}
	})
	switch {
	case errors.Is(err, langserver.ErrNotSignedIn):
		log.Print("sign in first")
	case errors.Is(err, langserver.ErrCancelled):
		log.Print("cancelled")
	case err != nil:
		log.Print(err)
	}
}
