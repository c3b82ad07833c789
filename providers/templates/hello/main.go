// Hello is a provider in its smallest form: one tool, and an event on request.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"

	"tapgw/providers"
)

type greetArgs struct {
	Name string `json:"name" jsonschema:"who to greet"`
}

func greet(_ context.Context, in greetArgs) (string, error) {
	return "Hello, " + in.Name + "!", nil
}

func main() {
	push := flag.String("push", "", "tell the session this `text` when bound to it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *push)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, push string) error {
	var p *providers.Provider
	p = providers.New("hello", &providers.Options{
		OnBound: func(ctx context.Context, _ providers.Binding) {
			if push == "" {
				return
			}
			if err := p.Inject(ctx, push); err != nil {
				log.Print(err)
			}
		},
	})
	providers.AddTool(p, "greet", "Say hello to someone", greet)
	return p.Run(ctx)
}
