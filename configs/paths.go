package configs

import (
	"os"
	"path/filepath"

	"github.com/adrg/xdg"
)

// Environment variables that name the home and the config file.
const (
	EnvHome   = "COPILOT_HOME"
	EnvConfig = "TAPGW_CONFIG"
)

// Home is the directory of the Copilot runtime's files: COPILOT_HOME, else
// ~/.copilot.
func Home() string {
	if home := os.Getenv(EnvHome); home != "" {
		if abs, err := filepath.Abs(home); err == nil {
			return abs
		}
		return home
	}
	return filepath.Join(xdg.Home, ".copilot")
}

// StateDir is where a gateway keeps its token files and gateway.json.
func StateDir() string { return filepath.Join(Home(), "extensions", "tap") }
