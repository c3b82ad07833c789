package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/adrg/xdg"
	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// serviceProgram is what the service runs.
type serviceProgram struct {
	path string // absolute
	args []string
	env  []string // NAME=value
}

// theServiceProgram is this program, with the flags and the environment that the
// service is to have. They are checked as tapgw serve checks them.
func theServiceProgram(c *ucli.Context) (serviceProgram, error) {
	var p serviceProgram
	dir, err := cli.Workdir(c)
	if err != nil {
		return p, err
	}
	named := c.String("config")
	if named == "" {
		named = os.Getenv(configs.EnvConfig)
	}
	if named != "" && !filepath.IsAbs(named) {
		named = filepath.Join(dir, named)
	}
	p.args = []string{"serve"}
	if c.IsSet("workdir") {
		p.args = append(p.args, "--workdir="+dir)
	} else {
		dir = xdg.Home
	}
	if named != "" {
		p.args = append(p.args, "--config="+named)
	}
	if c.IsSet("listen") {
		p.args = append(p.args, "--listen="+c.String("listen"))
	}
	files, err := configs.Find(dir, named)
	if err != nil {
		return p, err
	}
	config, err := files.Load()
	if err != nil {
		return p, err
	}
	if err := override(c, &config); err != nil {
		return p, err
	}
	if p.path, err = os.Executable(); err != nil {
		return p, fmt.Errorf("finding our own program: %w", err)
	}
	if strings.Contains(p.path, string(filepath.Separator)+"go-build") {
		return p, cli.Failed("service install: %s is gone when go run ends; build one that stays: go install ./cmd/...", p.path)
	}
	p.env = serviceEnviron()
	return p, nil
}

// serviceEnviron is what a service needs to find what this shell finds. Secrets
// are not in it: they have a file of their own.
func serviceEnviron() []string {
	env := []string{}
	for _, name := range []string{configs.EnvHome, "COPILOT_CLI_PATH", "XDG_CONFIG_HOME"} {
		if value := os.Getenv(name); value != "" {
			if abs, err := filepath.Abs(value); err == nil {
				value = abs
			}
			env = append(env, name+"="+value)
		}
	}
	var path []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) { // the service runs elsewhere
			path = append(path, dir)
		}
	}
	return append(env, "PATH="+strings.Join(path, string(filepath.ListSeparator)))
}

// checkServiceWord refuses what no service file can hold.
func checkServiceWord(s string) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return cli.Failed("service install: %q has a control character, which a service cannot be given", s)
	}
	return nil
}
