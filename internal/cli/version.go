package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	ucli "github.com/urfave/cli/v2"
)

// version is set by the linker where a release is built without its repository:
// -ldflags "-X tapgw/internal/cli.version=v1.2.3".
var version string

// Version returns the version of this binary: the one that the linker set, else the module's, else
// "devel" with the first 12 digits of the build's commit and "-dirty" if files had changed. It is
// "unknown" without build information.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version != "" && version != "(devel)" {
		return version
	}
	version = "devel"
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value
		}
	}
	if len(revision) >= 12 {
		version += "-" + revision[:12]
	}
	if modified == "true" {
		version += "-dirty"
	}
	return version
}

func printVersion(app *ucli.App, json bool) error {
	version := Version()
	if json {
		return (&Output{W: app.Writer}).Line(map[string]string{
			"name": app.Name, "version": version, "go": runtime.Version(),
			"platform": runtime.GOOS + "/" + runtime.GOARCH,
		})
	}
	_, err := fmt.Fprintf(app.Writer,
		"%s %s (%s, %s/%s)\n", app.Name, version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}
