package main

import (
	"log/slog"
	"testing"

	"tapgw/configs"
)

// A gateway that others can reach does not let them in because the file now says
// that it should listen elsewhere, too.
func TestOpenAPIWaitsForItsAddress(t *testing.T) {
	d := &daemon{log: slog.New(slog.DiscardHandler)}
	next := configs.Default()
	next.API.Auth = configs.AuthNone
	for listen, opens := range map[string]bool{"127.0.0.1:1": true, "0.0.0.0:1": false} {
		o := daemonOptions{config: configs.Default()}
		o.config.Listen, o.config.Insecure = listen, true
		o.load = func() (configs.Config, configs.Files, error) { return next, configs.Files{User: "tapgw.toml"}, nil }
		c, notes, err := d.followed(o).Load()
		if err != nil {
			t.Fatal(err)
		}
		waits := false
		for _, n := range notes {
			waits = waits || n.Message == "api.auth: has changed; restart to apply it"
		}
		if (c.API.Auth == configs.AuthNone) != opens || waits == opens {
			t.Errorf("at %s api.auth is %s, %v", listen, c.API.Auth, notes)
		}
	}
}
