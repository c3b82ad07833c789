package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/otlp"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// reachTimeout bounds each check that uses the network.
const reachTimeout = 10 * time.Second

// runtime returns the options of a runtime that the checks start with a profile.
func (d *Doctor) runtime(p configs.Profile) copilot.Options {
	cp := d.config.Copilot
	return copilot.Options{CLI: cp.CLI, Home: configs.Home(), GitHubHost: cp.GitHubHost, Profile: p}
}

// endpoints returns the profiles with a model endpoint of the user's own: under "" the endpoint of
// [copilot], and by name each profile with another endpoint.
func (d *Doctor) endpoints() map[string]configs.Profile {
	cp := d.config.Copilot
	found := map[string]configs.Profile{}
	if cp.Provider.URL != "" {
		found[""] = cp.Profile
	}
	for name, p := range cp.Profiles {
		if p.Provider.URL != "" && !reflect.DeepEqual(p.Provider, cp.Provider) {
			found[name] = p
		}
	}
	return found
}

// checkEndpoints asks each model endpoint of the user's own for its models.
func (d *Doctor) checkEndpoints(ctx context.Context) cli.Result {
	all := d.endpoints()
	if len(all) == 0 {
		return cli.OK("GitHub's own")
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	var details []string
	worst := cli.OK("")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		r := d.checkEndpoint(ctx, p)
		if name != "" {
			r.Detail = "profile " + name + ": " + r.Detail
		}
		details = append(details, r.Detail)
		if r.Status == cli.StatusFail || worst.Status == cli.StatusOK {
			worst = r
		}
	}
	worst.Detail = strings.Join(details, "; ")
	return worst
}

// checkEndpoint asks the endpoint of a profile for its models. An endpoint that answers
// with a list accepts the key, too.
func (d *Doctor) checkEndpoint(ctx context.Context, p configs.Profile) cli.Result {
	e := p.Provider
	variable := cmp.Or(e.BearerTokenEnv, e.KeyEnv)
	key := cmp.Or(variable, "its key")
	if e.Kind == configs.EndpointAzure { // the key of a deployment sees no list there
		return checkURL(ctx, e.URL)
	}
	offered := e.Models
	p.Provider.Models = nil
	models, err := copilot.New(d.runtime(p)).Models(ctx)
	if coded, ok := errors.AsType[*protocol.Error](err); ok {
		err = errors.New(coded.Message)
	}
	switch {
	case err == nil:
		return cli.OK("%s has %s", e.URL, visible.Count(len(models), "model"))
	case variable != "" && os.Getenv(variable) == "":
		return cli.Fail("set "+key+" to the endpoint's key, or correct its URL",
			"%s: %v (no key: %s is not set)", e.URL, err, variable)
	case len(offered) > 0:
		return cli.Warn("nothing if the endpoint can't list models; else correct its URL", "%s: %v",
			e.URL, err)
	}
	return cli.Fail("correct its URL and "+key+", or list the endpoint's models in models",
		"%s: %v", e.URL, err)
}

// checkURL checks that a URL answers, with whatever status.
func checkURL(ctx context.Context, url string) cli.Result {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return cli.Fail("correct its URL", "%s: %v", url, err)
	}
	w, err := (&http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment,
		DisableKeepAlives: true}}).Do(
		r,
	)
	if err != nil {
		return cli.Fail("correct its URL, or make it reachable from here", "%s does not answer: %v",
			url, err)
	}
	_ = w.Body.Close()
	return cli.OK("%s answers (%s)", url, w.Status)
}

// checkHooks finds hooks whose program can't run. Such a hook denies.
func (d *Doctor) checkHooks(context.Context) cli.Result {
	for i, h := range d.config.Hooks {
		if len(h.Command) == 0 {
			continue
		}
		if _, err := exec.LookPath(h.Command[0]); err != nil {
			return cli.Fail(fmt.Sprintf("correct command of hooks[%d] in %s, or make it executable",
				i, d.files.User),
				"hooks[%d] (%s): %v", i, h.On, err)
		}
	}
	if n := len(d.config.Hooks); n > 0 {
		return cli.OK("%d", n)
	}
	return cli.OK("none")
}

// checkTraces asks the collector for traces, if OTEL_ variables name one.
func (d *Doctor) checkTraces(ctx context.Context) cli.Result {
	s, err := otlp.FromEnv(os.Getenv)
	switch {
	case err != nil:
		return cli.Warn("correct the variable, or unset it", "not sent: %v", err)
	case s.URL == "":
		return cli.OK("off: no OTEL_ variable turns them on")
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := otlp.Check(ctx, s); err != nil {
		return cli.Warn(
			"start the collector, or correct OTEL_EXPORTER_OTLP_ENDPOINT and "+
				"OTEL_EXPORTER_OTLP_HEADERS",
			"%v", err)
	}
	return cli.OK("sent to %s", s.URL)
}
