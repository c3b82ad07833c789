package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
)

// Which gateway a command means, and where its token is: flags, then variables, then the files of
// the gateway that runs for this user.

// Environment variables that name the gateway and its admin token. A flag comes before a variable,
// and a variable before the files of the gateway that runs for this user.
const (
	EnvURL   = "TAP_GATEWAY_URL"
	EnvToken = "TAP_ADMIN_TOKEN" //nolint:gosec // a variable's name
)

// exampleURL is an example of a gateway's URL, for messages.
const exampleURL = "ws://127.0.0.1:9400"

// maxFile bounds how many bytes of a file are read.
const maxFile = 64 << 10

// Options name the gateway. An empty field is looked up in the environment ([EnvURL], [EnvToken]),
// then in the files of the gateway that runs for this user (gateway.json and .admin-token in the
// state directory).
type Options struct {
	URL   string // ws://, wss://, http:// or https://
	Token string
	// Gateway is another gateway of the cluster, to which the gateway at URL passes the requests;
	// "" sends them to the gateway at URL itself.
	Gateway string
	Flag    string // the command's flag for URL, for errors; "": --url
	Once    bool   // the client makes a single request, so it keeps no connections
}

func (o Options) flag() string { return cmp.Or(o.Flag, "--url") }

// stateDir returns the state directory of this user's gateway.
func stateDir() (string, error) {
	home, err := statedir.Home()
	if err != nil {
		return "", cli.Failed("finding the gateway's files: %v, or give --url and --token", err)
	}
	return statedir.Of(home), nil
}

// discoverURL returns the base of the HTTP API and its source: a flag, a variable or a file.
func discoverURL(o Options) (base, source string, err error) {
	if o.URL != "" {
		base, err := httpURL(o.URL)
		if err != nil {
			return "", "", cli.Usage("flag %s: %v", o.flag(), err)
		}
		return base, o.flag(), nil
	}
	if env := os.Getenv(EnvURL); env != "" {
		base, err := httpURL(env)
		if err != nil {
			return "", "", cli.Usage("%s: %v", EnvURL, err)
		}
		return base, EnvURL, nil
	}
	dir, err := stateDir()
	if err != nil {
		return "", "", err
	}
	file := filepath.Join(dir, statedir.InfoFile)
	data, err := readOwn(file)
	isMissing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !isMissing {
		return "", "", err
	}
	alive, err := runs(dir)
	switch {
	case err != nil:
		return "", "", cli.Failed("looking for the gateway: %v", err)
	case isMissing && alive: // a caller that can do without a gateway must not do so now
		return "", "", &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
			Message: fmt.Sprintf(
				"a gateway runs, but there is no %s: it starts or ends, or somebody has "+
					"removed the file; "+
					"try again, or stop the gateway and start it again", file)}
	case isMissing:
		return "", "", noGateway(o, "there is no "+file)
	case !alive: // the gateway was killed, and any program may have its port now
		return "", "", noGateway(o, file+" is of a gateway that has ended")
	}
	var gateway struct{ URL string } // of [statedir.Info]: a hook has no time to read the rest
	if err := json.Unmarshal(data, &gateway); err != nil {
		return "", "", cli.Failed("reading %s: not valid JSON; restart the gateway, or give %s",
			file, o.flag())
	}
	if base, err = httpURL(gateway.URL); err != nil {
		return "", "", cli.Failed("reading %s: url: %v; restart the gateway, or give %s", file, err,
			o.flag())
	}
	return base, file, nil
}

// runs reports whether a gateway runs in a state directory, ready or not.
func runs(dir string) (bool, error) {
	lock := filepath.Join(dir, statedir.LockFile)
	if _, err := os.Stat(lock); errors.Is(err, fs.ErrNotExist) {
		return false, nil // looking at a lock would create its file
	}
	return proc.Locked(lock)
}

// ErrNone is in the error of every request when no gateway of this user runs, as opposed to one
// that does not answer as it should. A caller that named a URL gets it when no program listens
// there.
var ErrNone = errors.New("no gateway runs")

// noGateway is the error when no gateway of this user runs; why says how we know. A gateway of
// another user may run at the default port: it is not ours.
func noGateway(o Options, why string) error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Err: ErrNone,
		Message: fmt.Sprintf("no gateway runs for you (%s); "+
			"start one with: tapgw serve, or tapgw ensure; or name one with %s", why, o.flag())}
}

// discoverToken returns the admin token and where it was found. Without a token file the token is
// "" and no error: most likely no gateway runs, and the user should read that.
func discoverToken(given string) (token, source string, err error) {
	token, source = given, "flag --token"
	if token == "" {
		token, source = os.Getenv(EnvToken), EnvToken
	}
	if token == "" {
		dir, err := stateDir()
		if err != nil {
			return "", "", err
		}
		source = filepath.Join(dir, statedir.AdminTokenFile)
		data, err := readOwn(source)
		if errors.Is(err, fs.ErrNotExist) {
			return "", source, nil
		}
		if err != nil {
			return "", "", err
		}
		token = strings.TrimSpace(string(data))
	}
	// A header can't hold such a character. The error does not show the token.
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return "", "",
				cli.Usage("%s: the token has a character that tokens never have; copy it again",
					source)
		}
	}
	return token, source, nil
}

// TokenFile returns the path of the file in which the gateway of this user stores the admin token
// while it runs. The file need not exist. The error is a [cli.Error]: no home directory is known.
func TokenFile() (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, statedir.AdminTokenFile), nil
}

// readOwn reads a small file that must be the user's own: another user who could write it could
// have the token sent to them.
func readOwn(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, &cli.Error{Exit: cli.ExitRefused, Code: codeUnauthorized, Err: err,
			Message: fmt.Sprintf("reading %s: %v; does the gateway run as another user?", path,
				errors.Unwrap(err))}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, cli.Failed("reading %s: not a regular file; remove it and restart the gateway",
			path)
	}
	if why := foreign(info); why != "" {
		return nil, &cli.Error{Exit: cli.ExitRefused, Code: codeUnauthorized,
			Message: fmt.Sprintf(
				"reading %s: %s, so it is not trusted; remove it and restart the gateway", path,
				why)}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return data, nil
}

// httpURL makes the base URL of the HTTP API from any URL of a gateway. Errors
// do not repeat a password.
func httpURL(s string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil {
		if strings.Contains(s, "@") {
			s = "it"
		}
		return "", fmt.Errorf("%q is not a URL, want one like %s", s, exampleURL)
	}
	scheme, ok := map[string]string{"ws": "http", "http": "http", "wss": "https",
		"https": "https"}[u.Scheme]
	switch {
	case !ok:
		return "", fmt.Errorf("%q is not a gateway's URL, want one like %s", u.Redacted(),
			exampleURL)
	case u.Hostname() == "":
		return "", fmt.Errorf("%q names no host, want one like %s", u.Redacted(), exampleURL)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", fmt.Errorf("%q must be a scheme, a host and a port only, like %s", u.Redacted(),
			exampleURL)
	}
	return scheme + "://" + u.Host, nil
}
