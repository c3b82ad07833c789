// Ci-review tells a session when the checks of its branch fail and when reviewers comment, answers
// questions about both, and stops git push while CI is red. The state comes from GitHub, or from a
// file that a local CI writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"tapgw/providers"
)

const name = "ci-review"

// Values of -gate.
const (
	gateClosed = "closed" // an unknown state denies
	gateOpen   = "open"   // an unknown state allows
	gateOff    = "off"
)

// options are the values of the flags.
type options struct {
	interval          time.Duration
	failures, reviews providers.Level
	gate              string
	fixes             bool
	newSource         func(dir string) source
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		log.Fatalf("%s: %v", name, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o, &providers.Options{})
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, o options, p *providers.Options) error {
	w := newWatcher(o)
	if p.Logger != nil {
		w.logger = p.Logger
	}
	p.OnBound = w.watch
	w.p = providers.New(name, p)
	w.addTools()
	if o.gate != gateOff {
		var opts []func(*providers.Rule)
		if o.gate == gateOpen {
			opts = append(opts, providers.FailOpen)
		}
		push := providers.Match{Tool: "shell", Args: `\bgit\b.*\bpush\b`}
		if _, err := w.p.Gate(ctx, push, w.gate, opts...); err != nil {
			return err
		}
	}
	return w.p.Run(ctx)
}

func parseFlags(args []string) (o options, err error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	api := f.String("api", "https://api.github.com",
		"the `URL` of GitHub's API; https://HOST/api/v3 for an own server")
	repo := f.String("repo", "",
		"the repository, `OWNER/NAME`; without it, that of the remote origin")
	tokenEnv := f.String("token-env", "GITHUB_TOKEN",
		"the `VARIABLE` with the token; if it is empty, gh auth token")
	file := f.String("file", "", "read this `FILE` of a local CI (JUnit or JSON) instead of GitHub")
	f.DurationVar(&o.interval, "interval", 0,
		"how long to wait between two looks (30s; with -file 2s)")
	failures := f.String("failures", "inject",
		"the `LEVEL` of failed checks: keep, surface or inject")
	reviews := f.String("reviews", "inject",
		"the `LEVEL` of review comments: keep, surface or inject")
	f.StringVar(
		&o.gate,
		"gate",
		gateClosed,
		"the `MODE` for git push while the state is unknown: closed denies, open "+
			"allows; off: no gate",
	)
	f.BoolVar(&o.fixes, "fixes", false,
		"while GitHub's checks are red, let pushes of newer commits through")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see -help", f.Arg(0))
	}
	o.failures, o.reviews = providers.Level(*failures), providers.Level(*reviews)
	for flagName, level := range map[string]providers.Level{"-failures": o.failures,
		"-reviews": o.reviews} {
		if level != providers.Keep && level != providers.Surface && level != providers.Inject {
			return o, fmt.Errorf("%s is %q, want keep, surface or inject", flagName, level)
		}
	}
	if o.gate != gateClosed && o.gate != gateOpen && o.gate != gateOff {
		return o, fmt.Errorf("-gate is %q, want closed, open or off", o.gate)
	}
	if *repo != "" && !repoName.MatchString(*repo) {
		return o, fmt.Errorf("-repo is %q, want OWNER/NAME", *repo)
	}
	if o.interval == 0 {
		o.interval = 30 * time.Second
		if *file != "" {
			o.interval = 2 * time.Second
		}
	}
	if o.interval < 100*time.Millisecond {
		return o, fmt.Errorf("-interval is %v, want at least 100ms", o.interval)
	}
	if *file != "" {
		o.newSource = func(dir string) source { return &local{dir: dir, file: *file} }
		return o, nil
	}
	if _, err := newClient(*api, *tokenEnv); err != nil {
		return o, err
	}
	o.newSource = func(dir string) source {
		c, _ := newClient(*api, *tokenEnv) // was checked
		return &github{client: c, dir: dir, repo: *repo}
	}
	return o, nil
}
