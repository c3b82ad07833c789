package providers_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"tapgw/providers"
)

// A whole provider.
func Example() {
	type Args struct {
		Name string `json:"name" jsonschema:"who to greet"`
	}
	p := providers.New("hello", nil)
	providers.AddTool(p, "greet", "Say hello to someone", func(_ context.Context, in Args) (string,
		error) {
		if in.Name == "" {
			return "", providers.NotFound("nobody to greet")
		}
		return "Hello, " + in.Name + "!", nil
	})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The session sees a name, a description and a schema of a tool; the schema is inferred from its
// function.
func ExampleNewTool() {
	type Args struct {
		Branch string `json:"branch" jsonschema:"the branch to build"`
		Clean  bool   `json:"clean,omitempty"`
	}
	tool, err := providers.NewTool("build", "Build a branch",
		func(_ context.Context, in Args) (string, error) {
			return "built " + in.Branch, nil
		})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(tool.Parameters))
	out, err := tool.Handler(context.Background(), []byte(`{"branch":"main"}`))
	fmt.Println(out, err)
	// Output:
	// {"type":"object","properties":{"branch":{"type":"string","description":"the branch to build"},"clean":{"type":"boolean"}},"required":["branch"],"additionalProperties":false}
	// built main <nil>
}

// A slow tool heeds its context, says how far it is, and has a timeout.
func ExampleAddTool() {
	p := providers.New("builder", nil)
	providers.AddTool(p, "build", "Build the project",
		func(ctx context.Context, _ struct{}) (string, error) {
			for percent := 0; percent < 100; percent += 10 {
				providers.Progress(ctx, fmt.Sprintf("%d%%", percent))
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
			return "built", nil
		}, providers.Timeout(10*time.Minute))
}

// A provider that pushes events does so for as long as it is bound.
func ExampleProvider_Push() {
	var p *providers.Provider
	p = providers.New("ci", &providers.Options{
		OnBound: func(ctx context.Context, _ providers.Binding) {
			for {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
					return
				}
				receipt, err := p.Push(ctx, providers.Event{
					Text: "CI failed on main", Level: providers.Inject, Stream: "ci-watch",
					Metadata: map[string]any{"run": 12345},
				})
				if err != nil {
					log.Print(err)
					continue
				}
				log.Printf("event %d: %s", receipt.Seq, receipt.Fate)
			}
		},
	})
	_ = p.Run(context.Background())
}

// A gate decides about calls before they run, also those of the session's own
// tools.
func ExampleProvider_Gate() {
	p := providers.New("guard", nil)
	_, err := p.Gate(context.Background(), providers.Match{Tool: "shell", Args: `git\s+push`},
		func(_ context.Context, call providers.GateCall) (providers.Decision, error) {
			switch text, err := os.ReadFile(".ci-status"); {
			case err != nil:
				return providers.Decision{}, err // denies
			case string(text) == "red":
				return providers.Deny("CI is red. Fix the tests first."), nil
			}
			return providers.Allow(), nil
		})
	if err != nil {
		log.Fatal(err)
	}
	_ = p.Run(context.Background())
}

// The context of every prompt changes while the provider runs.
func ExampleProvider_SetContext() {
	p := providers.New("ci", &providers.Options{Context: "CI is green."})
	go func() { _ = p.Run(context.Background()) }()
	revision, err := p.SetContext(context.Background(), "CI is red since 12:04.")
	log.Print(revision, err)
}

// A section of the system prompt is made anew for each prompt.
func ExampleProvider_Transform() {
	p := providers.New("clock", nil)
	_, err := p.Transform(context.Background(), "custom_instructions",
		func(_ context.Context, s providers.Section) (string, error) {
			return s.Current + "\n\nIt is " + time.Now().Format("15:04") + ".", nil
		})
	if err != nil {
		log.Fatal(err)
	}
	_ = p.Run(context.Background())
}

// A noisy stream is filtered by the gateway.
func ExampleProvider_SetFilter() {
	p := providers.New("guardian", nil)
	_, err := p.SetFilter(context.Background(), "git-watch",
		providers.FilterRule{Match: `behind=0`, Outcome: providers.Drop},
		providers.FilterRule{Match: `conflicts=[1-9]`, Outcome: providers.Inject},
		providers.FilterRule{Match: `.*`, Outcome: providers.Keep})
	if err != nil {
		log.Fatal(err)
	}
	_ = p.Run(context.Background())
}

// The type of the function's argument chooses the events.
func ExampleSubscribe() {
	p := providers.New("listener", nil)
	providers.Subscribe(p, func(_ context.Context, e providers.ToolExecution) {
		log.Printf("%s took %v", e.Tool, e.Duration)
	})
	_ = p.Run(context.Background())
}

// A provider without a token asks the user for a code, as often as a session
// ends.
func ExampleProvider_Pair() {
	ctx := context.Background()
	p := providers.New("standalone", nil)
	for {
		_, err := p.Pair(ctx, func(_ context.Context, prompt string) (code string, err error) {
			fmt.Print(prompt + ": ")
			_, err = fmt.Scanln(&code)
			return code, err
		})
		if err != nil {
			log.Fatal(err)
		}
		if err := p.Run(ctx); !errors.Is(err, providers.ErrNotPaired) {
			log.Fatal(err)
		}
	}
}
