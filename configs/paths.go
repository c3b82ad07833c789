package configs

import (
	"path/filepath"

	"github.com/adrg/xdg"

	"tapgw/internal/statedir"
)

// EnvConfig is the environment variable that names tapgw.toml where --config does not; [Find] reads
// it. The named file and the provider files beside it then count alone.
const EnvConfig = "TAPGW_CONFIG"

// Home is [statedir.Home] for programs that go on without a home directory: it then returns
// .copilot below the home that package xdg assumes.
func Home() string {
	home, err := statedir.Home()
	if err != nil {
		return filepath.Join(xdg.Home, ".copilot")
	}
	return home
}

// StateDir is where a gateway keeps its token files and gateway.json: a directory below [Home]. It
// need not exist.
func StateDir() string { return statedir.Of(Home()) }
