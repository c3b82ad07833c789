package assembly

import (
	"errors"
	"log/slog"
	"testing"

	"tapgw/configs"
)

// A gateway that others can reach does not let them in because the file now says
// that it should listen elsewhere, too.
func TestOpenAPIWaitsForItsAddress(t *testing.T) {
	d := &Process{log: slog.New(slog.DiscardHandler)}
	next := configs.Default()
	next.API.Auth = configs.AuthNone
	for listen, opens := range map[string]bool{"127.0.0.1:1": true, "0.0.0.0:1": false} {
		o := Options{Config: configs.Default()}
		o.Config.Listen, o.Config.Insecure = listen, true
		o.Load = func() (configs.Config, configs.Files, error) {
			return next, configs.Files{User: "tapgw.toml"}, nil
		}
		c, notes, err := d.newFollower(o).Load()
		if err != nil {
			t.Fatal(err)
		}
		waits := false
		for _, n := range notes {
			waits = waits || n.Message == "api.auth: has changed; restart to apply it"
		}
		if (c.API.Auth == configs.AuthNone) != opens || waits == opens {
			t.Errorf("at %s api.auth is %s, %v, want %v and not %v", listen, c.API.Auth, notes,
				opens, opens)
		}
	}
}

// A project's keys are for the sessions in it, and a fault in them refuses these.
func TestSessionsAt(t *testing.T) {
	d := &Process{log: slog.New(slog.DiscardHandler)}
	var fault error
	o := Options{Config: configs.Default(), LoadAt: func(dir string) (configs.Config, string,
		error) {
		c := configs.Default()
		if dir != "/project" {
			return c, "", fault
		}
		c.Copilot.Permissions.Shell = configs.Ask
		return c, "/project/.tapgw/tapgw.toml", fault
	}}
	at := d.sessionsAt(o)
	if own, err := at("/project"); err != nil || own == nil ||
		own.Permissions.Shell != configs.Ask {
		t.Errorf("in the project: %+v, %v", own, err)
	}
	if none, err := at("/elsewhere"); err != nil || none != nil {
		t.Errorf("elsewhere: %+v, %v", none, err)
	}
	fault = errors.New("unknown key")
	if own, err := at("/project"); err == nil || own != nil {
		t.Errorf("with a fault: %+v, %v", own, err)
	}
	if none, err := at("/elsewhere"); err != nil || none != nil {
		t.Errorf("a fault of the user's own file, elsewhere: %+v, %v", none, err)
	}
}
