package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tapgw/internal/client"
	"tapgw/internal/proc"
)

// stateDir is the directory in which a gateway leaves its tokens and where it
// is. Its lock says whether one runs: the files of one that was killed stay.
type stateDir string

func (d stateDir) file(name string) string { return filepath.Join(string(d), name) }

func (d stateDir) lock() string          { return d.file("gateway.lock") }
func (d stateDir) starting() string      { return d.file("ensure.lock") }
func (d stateDir) gateway() string       { return d.file("gateway.json") }
func (d stateDir) log() string           { return d.file("gateway.log") }
func (d stateDir) providerToken() string { return d.file(".provider-token") }
func (d stateDir) adminToken() string    { return d.file(".admin-token") }

// tokens is the directory of the tokens of providers that start themselves.
func (d stateDir) tokens() string { return d.file("providers") }

// gatewayInfo is gateway.json.
type gatewayInfo struct {
	URL       string    `json:"url"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	// Args are those that tapgw ensure started it with, for tapgw restart; none of
	// another one.
	Args []string `json:"args,omitempty"`
}

func (d stateDir) info() (gatewayInfo, error) {
	var g gatewayInfo
	data, err := os.ReadFile(d.gateway())
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return g, fmt.Errorf("reading %s: %w", d.gateway(), err)
	}
	return g, nil
}

// locked reports whether a gateway runs here, ready or not.
func (d stateDir) locked() (bool, error) {
	held, err := proc.Locked(d.lock())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return held, err
}

// statusTimeout bounds a question to a gateway on this machine.
const statusTimeout = 3 * time.Second

// running finds the gateway that runs here and is ready. It asks the gateway
// itself: the file may be a killed one's, and its pid another program's by now.
func (d stateDir) running(ctx context.Context) (gatewayInfo, bool) {
	held, err := d.locked()
	if err != nil || !held {
		return gatewayInfo{}, false
	}
	g, err := d.info()
	if err != nil {
		return gatewayInfo{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return g, d.answers(ctx, g)
}

// answers reports whether a gateway is the one at its URL.
func (d stateDir) answers(ctx context.Context, g gatewayInfo) bool {
	if u, err := url.Parse(g.URL); err == nil && u.Scheme == "wss" {
		// Its certificate need not be one that we trust.
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	token, err := os.ReadFile(d.adminToken())
	if err != nil {
		return false
	}
	c, err := client.New(client.Options{URL: g.URL, Token: strings.TrimSpace(string(token))})
	if err != nil {
		return false
	}
	defer c.Close()
	s, err := c.Status(ctx)
	return err == nil && s.PID == g.PID
}

// poll asks again and again until done says so or ctx ends.
func poll(ctx context.Context, done func() bool) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
