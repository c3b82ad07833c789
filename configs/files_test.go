package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/adrg/xdg"
)

func TestLoadTakesPathsFromItsDirectory(t *testing.T) {
	dir := t.TempDir()
	file := write(t,
		filepath.Join(dir, "tapgw.toml"),
		"tls_cert = \"c.pem\"\ntls_key = \"/k.pem\"\ncopilot.cli = \"bin/copilot\"\n")
	c, err := Files{User: file}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.TLSCert != filepath.Join(dir, "c.pem") || c.TLSKey != "/k.pem" ||
		c.Copilot.CLI != filepath.Join(dir, "bin/copilot") {
		t.Errorf(
			`got %+v, want TLSCert %v, TLSKey "/k.pem" and CLI %v`,
			c, filepath.Join(dir, "c.pem"), filepath.Join(dir, "bin/copilot"),
		)
	}
	write(t, file, "copilot.cli = \"copilot\"\n")
	if c, err = (Files{User: file}).Load(); err != nil || c.Copilot.CLI != "copilot" {
		t.Errorf(`got %+v, %v; a bare name is looked up on PATH, want no error and CLI "copilot"`,
			c, err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := (Files{User: dir}).Load(); err == nil ||
		!strings.Contains(err.Error(), "is a directory") {
		t.Errorf(`directory: %v, want an error and "is a directory" in it`, err)
	}
	if _, err := (Files{User: filepath.Join(dir, "none")}).Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v, want %v", err, fs.ErrNotExist)
	}
	file := write(t, filepath.Join(dir, "x.toml"), "a = 1\nb = 2\n")
	_, err := Files{User: file}.Load()
	faults, ok := errors.AsType[Faults](err)
	if !ok || len(faults) != 2 || !strings.Contains(err.Error(), "1:1: unknown key a") ||
		!strings.Contains(err.Error(), "(and 1 more") {
		t.Errorf("faults: %v, want unknown key a and one more", err)
	}
}

// A pipe or a directory that has the name of a file is a fault, and nothing waits
// for what comes out of it.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tapgw.toml"), "")
	write(t, filepath.Join(dir, "providers", "dir.toml", "x"), "")
	if err := syscall.Mkfifo(filepath.Join(dir, "providers", "pipe.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Find(dir, "tapgw.toml")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, p := range f.Providers() {
		got += p.Faults.Error() + "\n"
	}
	for _, want := range []string{"dir.toml is a directory",
		"pipe.toml is no file but a device, a pipe or a socket"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %q", got, want)
		}
	}
}

func TestLoadProviders(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "bad.toml"), "kind = 1\nx = 2")
	write(t, filepath.Join(dir, "hello.toml.sample"), "no TOML")
	write(t, filepath.Join(dir, ".hidden.toml"), "no TOML")
	if err := os.Symlink(filepath.Join(dir, "nowhere"),
		filepath.Join(dir, "gone.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := Files{dir: dir, isNamed: true}
	const want = "a: connect; b: connect; bad: 2 faults; dir: 1 faults; gone: 1 faults; "
	if got := summary(f.Providers()); got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// summary describes provider files in one line.
func summary(files []ProviderFile) string {
	var b strings.Builder
	for _, f := range files {
		switch {
		case f.LeftOut:
			fmt.Fprintf(&b, "%s: left out; ", f.Name)
		case len(f.Faults) > 0:
			fmt.Fprintf(&b, "%s: %d faults; ", f.Name, len(f.Faults))
		default:
			fmt.Fprintf(&b, "%s: %s; ", f.Name, f.Provider.Kind)
		}
	}
	return b.String()
}

// A project's files count if the user trusts the project, .tapgw before configs, and replace
// none of the user's own. A key that they can't set is a fault.
func TestProjectFiles(t *testing.T) {
	dir, user := real(t), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", user)
	t.Setenv(EnvConfig, "")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	write(t, filepath.Join(dir, ".tapgw/providers/a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, ".tapgw/providers/d.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "configs/providers/a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "configs/providers/d.toml"), `kind = "tools"`)
	write(t, filepath.Join(dir, "configs/providers/b.toml"),
		"kind = \"connect\"\ngrants = [\"gates\"]")
	write(t, filepath.Join(user, "tapgw/providers/a.toml"), "kind = \"tools\"\ndir = \"d\"")
	write(t, filepath.Join(user, "tapgw/providers/c.toml"),
		"kind = \"connect\"\ngrants = [\"gates\"]")
	write(
		t,
		filepath.Join(user, "tapgw/tapgw.toml"),
		"listen = \"127.0.0.1:1\"\nlog_level = \"debug\"\ncopilot.max_rounds = 7",
	)
	write(t, filepath.Join(dir, "configs/tapgw.toml"),
		"listen = \"127.0.0.1:9400\"\ncopilot.max_rounds = 8")
	sub := filepath.Join(dir, "sub", "deep")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	found := func(dir string) Files {
		f, err := Find(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	rounds := func(at string, want int) {
		t.Helper()
		f := found("/")
		if c, _, err := f.LoadAt(at); err != nil || c.Copilot.MaxRounds != want ||
			c.LogLevel != "debug" || c.Listen != "127.0.0.1:1" {
			t.Errorf(
				`for a session in %s: %+v, %v, want no error, MaxRounds %+v, LogLevel "debug" and Listen "127.0.0.1:1"`,
				at, c.Copilot.MaxRounds, err, want,
			)
		}
		if c, err := f.Load(); err != nil || c.Copilot.MaxRounds != 7 {
			t.Errorf("the gateway itself: %d rounds, %v, want no error and MaxRounds 7",
				c.Copilot.MaxRounds, err)
		}
	}
	f := found(dir)
	if got, want := summary(
		f.Providers()),
		"a: tools; a: left out; a: left out; b: left out; c: connect; d: left out; d: left out; "; got != want {
		t.Errorf("untrusted: %s, want %s", got, want)
	}
	if got, want := summary(found("/").Providers()), "a: tools; c: connect; "; got != want {
		t.Errorf("untrusted, from elsewhere: %s, want %s", got, want)
	}
	rounds(dir, 7)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, "/", sub} {
		if got, want := summary(
			found(from).Providers()),
			"a: tools; a: left out; a: left out; b: 1 faults; c: connect; d: connect; "; got != want {
			t.Errorf("trusted, seen from %s: %s, want %s", from, got, want)
		}
	}
	for _, p := range found("/").Providers() {
		if p.Name != "d" {
			continue
		}
		matches := func(cwd string) bool { return p.Provider.Sessions.Match("", cwd, "") }
		if p.Provider.Project != dir || !matches(sub) || matches(filepath.Dir(dir)) ||
			matches(dir+"2") {
			t.Errorf("d is for other sessions: %+v, want sessions in and below %s only", p.Provider,
				dir)
		}
	}
	rounds(dir, 8)
	rounds(sub, 8)
	rounds(filepath.Dir(dir), 7)
	write(t, filepath.Join(dir, ".tapgw/tapgw.toml"), `listen = "127.0.0.1:2"
insecure = true
tls_cert = "x"
tls_key = "x"
hosts = ["h"]
api.auth = "none"
log_level = "debug"
inject_quiet = "1s"
copilot.cli = "x"
copilot.provider_url = "http://h/"
copilot.provider_key_env = "X"
copilot.permissions.shell = "allow"
`)
	rounds(dir, 7) // it came after the user trusted the others
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	_, _, err := found("/").LoadAt(dir)
	faults, _ := errors.AsType[Faults](err)
	if len(faults) != 11 || faults[0].Line != 1 ||
		!strings.Contains(faults[10].Message,
			"copilot.provider_key_env: a project's file can't set it: write it into "+user) {
		t.Errorf(
			"faults, want 11 of them, Line 1 and %q in it:\n%s",
			"copilot.provider_key_env: a project's file can't set it: write it into "+user,
			lines(faults),
		)
	}
}

// withProject is what counts for a session in a project whose file says something.
func withProject(user, project string) (Config, error) {
	c, found, err := Files{User: user}.load()
	if err != nil {
		return c, err
	}
	data, err := readFile(project)
	if err != nil {
		return c, err
	}
	if faults := c.parse(project, data, true, &found); len(faults) > 0 {
		return c, faults
	}
	return c, nil
}

// real is a temporary directory by its real path.
func real(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFind(t *testing.T) {
	dir, user := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", user)
	t.Setenv(EnvConfig, "")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	expect := func(named, want string) {
		t.Helper()
		f, err := Find(dir, named)
		if got := f.Project + f.User; err != nil || got != want {
			t.Errorf("Find(%q) = %q, %v; want %q", named, got, err, want)
		}
	}
	expect("", "")
	byUser := write(t, filepath.Join(user, "tapgw", "tapgw.toml"), "")
	expect("", byUser)
	// A project's files may have the names of our directories.
	other := write(t, filepath.Join(dir, "configs"), "")
	expect("", byUser)
	if f, _ := Find(dir, ""); len(f.Providers()) > 0 {
		t.Errorf("provider files: %+v, want none", f.Providers())
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "configs", "tapgw.toml"), "# nothing")
	expect("", byUser)
	here := write(t, filepath.Join(dir, "configs", "tapgw.toml"), "copilot.max_rounds = 3")
	expect("", here+byUser)
	byEnv := write(t, filepath.Join(dir, "env.toml"), "")
	t.Setenv(EnvConfig, byEnv)
	expect("", byEnv)
	byFlag := write(t, filepath.Join(dir, "flag.toml"), "")
	expect("flag.toml", byFlag)
	f, err := Find(dir, "none.toml")
	if err == nil || !strings.Contains(err.Error(), "--config: ") {
		t.Errorf(`missing file of the flag: %v, want an error and "--config: " in it`, err)
	}
	if at := f.Where("", "gone").File; at != filepath.Join(dir, "none.toml") {
		t.Errorf("its fault is placed in %s, want %s", at, filepath.Join(dir, "none.toml"))
	}
	t.Setenv(EnvConfig, filepath.Join(dir, "none.toml"))
	if _, err := Find(dir, ""); err == nil || !strings.Contains(err.Error(), "TAPGW_CONFIG: ") {
		t.Errorf(`missing file of the variable: %v, want an error and "TAPGW_CONFIG: " in it`, err)
	}
}

// What people copy into a shell names the directory, whatever that is called.
func TestTrustCommand(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/me/src": "tapgw trust /home/me/src",
		"/a b":         "tapgw trust '/a b'",
		"/it's":        `tapgw trust '/it'\''s'`,
		"/$(rm x)":     "tapgw trust '/$(rm x)'",
		"/a\nb\x1b[2J": `tapgw trust $'/a\x0ab\x1b[2J'`,
		"/\u202etxt'":  `tapgw trust $'/\xe2\x80\xaetxt\x27'`,
		"/\xff":        `tapgw trust $'/\xff'`,
	} {
		if got := TrustCommand(dir); got != want {
			t.Errorf("TrustCommand(%q) = %s, want %s", dir, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		file, text, want string
	}{
		{"tapgw.toml", `kind = "mcp"`, "unknown key kind: there are listen"},
		{"x.toml", `kind = "connect"`, ""},
		{"y.toml", `insecure = true`, ""},
		{"providers/z.toml", `insecure = true`, "kind: is missing"},
		{"w.toml", `kind = `, "is not TOML"},
	} {
		faults, err := Check(write(t, filepath.Join(dir, tt.file), tt.text))
		if err != nil || tt.want == "" && len(faults) > 0 ||
			tt.want != "" && !strings.Contains(lines(faults), tt.want) {
			t.Errorf("%s: %v, %v; want %q", tt.file, faults, err, tt.want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Setenv("COPILOT_HOME", "/h")
	if got := StateDir(); got != "/h/extensions/tap" {
		t.Errorf(`with COPILOT_HOME: %s, want "/h/extensions/tap"`, got)
	}
	t.Setenv("COPILOT_HOME", "")
	t.Setenv("HOME", "/u")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	if got := Home(); got != "/u/.copilot" {
		t.Errorf(`without: %s, want "/u/.copilot"`, got)
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUserProvider(t *testing.T) {
	dir := t.TempDir()
	f, err := Find(t.TempDir(), write(t, filepath.Join(dir, "tapgw.toml"), ""))
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(dir, "providers", "a.b.toml")
	if got, err := f.UserProvider("a.b"); err != nil || got != want {
		t.Errorf("UserProvider(a.b) of a named file: got %q, %v, want %q", got, err, want)
	}
	t.Setenv(EnvConfig, "")
	if f, err = Find(t.TempDir(), ""); err != nil {
		t.Fatal(err)
	}
	want = filepath.Join(UserDir(), "providers", "weather.toml")
	if got, err := f.UserProvider("weather"); err != nil || got != want {
		t.Errorf("UserProvider(weather): got %q, %v, want %q", got, err, want)
	}
	for _, name := range []string{"", ".", "..", "../a", "a/b", "-a", "a\n",
		strings.Repeat("a", 65)} {
		if got, err := f.UserProvider(name); err == nil {
			t.Errorf("UserProvider(%q): got %q, want an error", name, got)
		}
	}
}
