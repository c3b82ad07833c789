// Hello is a provider in its smallest form: one tool.
package main

import (
	"cmp"
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"

	"tapgw/providers"
)

type greetArgs struct {
	Name string `json:"name,omitempty" jsonschema:"who to greet"`
}

func greet(_ context.Context, in greetArgs) (string, error) {
	return "Hello, " + cmp.Or(in.Name, "world") + "!", nil
}

func newProvider(o *providers.Options) *providers.Provider {
	p := providers.New("hello", o)
	providers.AddTool(p, "greet_hello", "Greet someone by name", greet)
	return p
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newProvider(nil).Run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
