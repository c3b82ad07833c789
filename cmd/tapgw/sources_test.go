package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tapgw/configs"
)

// What sources did is forgotten after a time, but not that of a source that may run once a year.
func TestForgetSources(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	age := map[string]time.Duration{
		"yearly.json": 2 * forgottenAfter, "gone.json": 2 * forgottenAfter, "loop@session.json": 2 * forgottenAfter,
		"recent.json": time.Hour,
	}
	for name, d := range age {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now.Add(-d), now.Add(-d)); err != nil {
			t.Fatal(err)
		}
	}
	forgetSources(dir, func() []configs.ProviderFile {
		return []configs.ProviderFile{{Provider: configs.Provider{Name: "yearly"}}}
	}, now)
	for name, want := range map[string]bool{
		"yearly.json": true, "gone.json": false, "loop@session.json": false, "recent.json": true,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: got %v, want %v", name, err == nil, want)
		}
	}
}
