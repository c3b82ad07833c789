package project

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// kind has the rules for one kind of project.
type kind struct {
	name    string
	markers []string // patterns of the files that such a project has
	start   string   // command that begins one
	detect  func(dir directory, marker string) Project
}

var kinds = []kind{
	{"go", []string{"go.mod"}, "go mod init MODULE", goProject},
	{"node", []string{"package.json"}, "npm init", nodeProject},
	{"deno", []string{"deno.json", "deno.jsonc"}, "deno init", denoProject},
	{"python", []string{"pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"},
		"uv init, or python -m venv .venv", pythonProject},
	{"rust", []string{"Cargo.toml"}, "cargo init", rustProject},
	{"maven", []string{"pom.xml"}, "mvn archetype:generate", mavenProject},
	{"gradle", []string{"build.gradle", "build.gradle.kts", "settings.gradle",
		"settings.gradle.kts"}, "gradle init",
		gradleProject},
	{"dotnet", []string{"*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"},
		"dotnet new console", fixedCommands("dotnet build", "dotnet test", "dotnet run")},
	{"ruby", []string{"Gemfile", "*.gemspec"}, "bundle init", rubyProject},
	{"php", []string{"composer.json"}, "composer init", phpProject},
	{"elixir", []string{"mix.exs"}, "mix new NAME", fixedCommands("mix compile", "mix test",
		"mix run")},
	{"dart", []string{"pubspec.yaml"}, "dart create NAME", dartProject},
	{"swift", []string{"Package.swift"}, "swift package init",
		fixedCommands("swift build", "swift test", "swift run")},
	{"cmake", []string{"CMakeLists.txt"}, "write a CMakeLists.txt",
		fixedCommands("cmake -B build && cmake --build build", "ctest --test-dir build", "")},
	{"bazel", []string{"MODULE.bazel", "WORKSPACE"}, "write a MODULE.bazel",
		fixedCommands("bazel build //...", "bazel test //...", "")},
	{"make", []string{"Makefile", "makefile", "GNUmakefile"}, "write a Makefile", makeProject},
	{"just", []string{"justfile", "Justfile"}, "write a justfile", justProject},
	{"docker", []string{"compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml",
		"Dockerfile"},
		"docker init", dockerProject},
}

// fixedCommands is the detect function of a kind whose commands are always the same.
func fixedCommands(build, test, run string) func(directory, string) Project {
	return func(directory, string) (p Project) {
		p.add("build", build)
		p.add("test", test)
		p.add("run", run)
		return p
	}
}

// match returns the first group of a pattern in a text, "" if it does not match.
func match(pattern, text string) string {
	if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

func goProject(d directory, marker string) (p Project) {
	mod := d.read(marker)
	p.Name = match(`(?m)^module\s+(\S+)`, mod)
	if v := match(`(?m)^go\s+(\S+)`, mod); v != "" {
		p.Details = append(p.Details, "Go "+v)
	}
	p.add("build", "go build ./...")
	p.add("test", "go test ./...")
	p.add("vet", "go vet ./...")
	if d.has(".golangci.yml", ".golangci.yaml", ".golangci.toml") {
		p.add("lint", "golangci-lint run")
	}
	if d.has("main.go") {
		p.add("run", "go run .")
	}
	cmds, _ := fs.ReadDir(d.fsys, path.Join(d.dir, "cmd"))
	for _, c := range cmds {
		if c.IsDir() && len(p.Commands) < 12 {
			p.add("run", "go run ./cmd/"+c.Name())
		}
	}
	return p
}

// notablePackages are the npm packages that a project's details mention.
var notablePackages = []string{
	"react", "next", "vue", "nuxt", "svelte", "@angular/core", "express", "fastify", "electron",
	"vite", "jest", "vitest", "mocha", "playwright", "@playwright/test", "cypress", "eslint",
	"prettier",
}

func nodeProject(d directory, marker string) (p Project) {
	var pkg struct {
		Name            string
		Scripts         map[string]any
		PackageManager  string
		Workspaces      any
		Dependencies    map[string]any
		DevDependencies map[string]any
	}
	if json.Unmarshal([]byte(d.read(marker)), &pkg) != nil {
		p.Details = append(p.Details, marker+" is not right JSON")
	}
	p.Name = pkg.Name
	manager, _, _ := strings.Cut(pkg.PackageManager, "@")
	switch {
	case slices.Contains([]string{"npm", "pnpm", "yarn", "bun"}, manager):
	case d.has("pnpm-lock.yaml", "pnpm-workspace.yaml"):
		manager = "pnpm"
	case d.has("yarn.lock"):
		manager = "yarn"
	case d.has("bun.lock", "bun.lockb"):
		manager = "bun"
	default:
		manager = "npm"
	}
	p.Details = append(p.Details, manager)
	if pkg.Workspaces != nil || d.has("pnpm-workspace.yaml") {
		p.Details = append(p.Details, "workspaces")
	}
	if d.has("tsconfig.json") {
		p.Details = append(p.Details, "TypeScript")
	}
	for _, name := range notablePackages {
		if pkg.Dependencies[name] != nil || pkg.DevDependencies[name] != nil {
			p.Details = append(p.Details, name)
		}
	}
	install := manager + " install"
	if manager == "npm" && d.has("package-lock.json") {
		install = "npm ci"
	}
	p.add("install", install)
	names := make([]string, 0, len(pkg.Scripts))
	for name := range pkg.Scripts {
		names = append(names, name)
	}
	// Common scripts come first.
	common := []string{"build", "test", "start", "dev", "lint", "typecheck", "format"}
	slices.SortFunc(names, func(a, b string) int {
		i, j := slices.Index(common, a), slices.Index(common, b)
		return cmp.Or(cmp.Compare(uint(i), uint(j)), strings.Compare(a, b))
	})
	for _, name := range names[:min(len(names), 20)] {
		p.add(name, manager+" run "+name)
	}
	return p
}

func denoProject(d directory, marker string) (p Project) {
	p.add("test", "deno test")
	p.add("check", "deno check .")
	if d.has("main.ts") {
		p.add("run", "deno run main.ts")
	}
	if strings.Contains(d.read(marker), `"tasks"`) {
		p.add("tasks", "deno task")
	}
	return p
}

func pythonProject(d directory, _ string) (p Project) {
	var conf struct {
		Project struct {
			Name           string         `toml:"name"`
			RequiresPython string         `toml:"requires-python"`
			Scripts        map[string]any `toml:"scripts"`
		} `toml:"project"`
		Tool map[string]any `toml:"tool"`
	}
	if text := d.read("pyproject.toml"); text != "" {
		if _, err := toml.Decode(text, &conf); err != nil {
			p.Details = append(p.Details, "pyproject.toml is not right TOML")
		}
	}
	p.Name = conf.Project.Name
	if v := conf.Project.RequiresPython; v != "" {
		p.Details = append(p.Details, "Python "+v)
	}
	runner := "python -m "
	switch {
	case d.has("uv.lock") || conf.Tool["uv"] != nil:
		p.add("install", "uv sync")
		runner = "uv run "
	case d.has("poetry.lock") || conf.Tool["poetry"] != nil:
		p.add("install", "poetry install")
		runner = "poetry run "
	case d.has("Pipfile"):
		p.add("install", "pipenv install --dev")
		runner = "pipenv run "
	case d.has("requirements.txt"):
		p.add("install", "python -m pip install -r requirements.txt")
	default:
		p.add("install", "python -m pip install -e .")
	}
	switch {
	case d.has("tox.ini") || conf.Tool["tox"] != nil:
		p.add("test", runner+"tox")
	case d.has("noxfile.py"):
		p.add("test", runner+"nox")
	case d.has("manage.py"):
		p.add("test", strings.TrimSuffix(runner, "-m ")+"manage.py test")
		p.add("run", strings.TrimSuffix(runner, "-m ")+"manage.py runserver")
	case d.has("pytest.ini", "conftest.py") || conf.Tool["pytest"] != nil || d.has("tests", "test"):
		p.add("test", runner+"pytest")
	default:
		p.add("test", "python -m unittest discover")
	}
	linters := [][2]string{{"ruff", "check ."}, {"mypy", "."}, {"black", "--check ."},
		{"flake8", ""}, {"pyright", ""}}
	for _, linter := range linters {
		name, args := linter[0], linter[1]
		if conf.Tool[name] != nil || d.has(name+".toml", "."+name, name+".ini") {
			p.add("lint", runner+strings.TrimSpace(name+" "+args))
		}
	}
	for name := range conf.Project.Scripts {
		p.Details = append(p.Details, "command "+name)
	}
	slices.Sort(p.Details)
	return p
}

func rustProject(d directory, marker string) (p Project) {
	var conf struct {
		Package struct {
			Name    string `toml:"name"`
			Edition any    `toml:"edition"`
		} `toml:"package"`
		Workspace map[string]any `toml:"workspace"`
	}
	if _, err := toml.Decode(d.read(marker), &conf); err != nil {
		p.Details = append(p.Details, marker+" is not right TOML")
	}
	p.Name = conf.Package.Name
	if e, ok := conf.Package.Edition.(string); ok {
		p.Details = append(p.Details, "edition "+e)
	}
	if conf.Workspace != nil {
		p.Details = append(p.Details, "workspace")
	}
	p.add("build", "cargo build")
	p.add("test", "cargo test")
	p.add("lint", "cargo clippy")
	if _, err := fs.Stat(d.fsys, path.Join(d.dir, "src", "main.rs")); err == nil {
		p.add("run", "cargo run")
	}
	return p
}

func mavenProject(d directory, marker string) (p Project) {
	var pom struct {
		ArtifactID string   `xml:"artifactId"`
		Modules    []string `xml:"modules>module"`
	}
	if xml.Unmarshal([]byte(d.read(marker)), &pom) != nil {
		p.Details = append(p.Details, marker+" is not right XML")
	}
	p.Name = pom.ArtifactID
	for _, m := range pom.Modules {
		p.Details = append(p.Details, "module "+m)
	}
	mvn := "mvn"
	if d.has("mvnw") {
		mvn = "./mvnw"
	}
	p.add("build", mvn+" package")
	p.add("test", mvn+" test")
	return p
}

func gradleProject(d directory, marker string) (p Project) {
	settings := d.first("settings.gradle", "settings.gradle.kts")
	p.Name = match(`rootProject\.name\s*=\s*["']([^"']+)`, d.read(settings))
	gradle := "gradle"
	if d.has("gradlew") {
		gradle = "./gradlew"
	}
	p.add("build", gradle+" build")
	p.add("test", gradle+" test")
	if strings.Contains(d.read(marker), "application") {
		p.add("run", gradle+" run")
	}
	return p
}

func rubyProject(d directory, _ string) (p Project) {
	p.add("install", "bundle install")
	switch {
	case d.has("bin") && d.has("config.ru"):
		p.add("test", "bin/rails test")
		p.add("run", "bin/rails server")
	case d.has(".rspec", "spec"):
		p.add("test", "bundle exec rspec")
	case d.has("Rakefile"):
		p.add("test", "bundle exec rake test")
	}
	if d.has(".rubocop.yml") {
		p.add("lint", "bundle exec rubocop")
	}
	return p
}

func phpProject(d directory, marker string) (p Project) {
	var conf struct {
		Name    string
		Scripts map[string]any
	}
	if json.Unmarshal([]byte(d.read(marker)), &conf) != nil {
		p.Details = append(p.Details, marker+" is not right JSON")
	}
	p.Name = conf.Name
	p.add("install", "composer install")
	switch {
	case conf.Scripts["test"] != nil:
		p.add("test", "composer test")
	case d.has("phpunit.xml", "phpunit.xml.dist"):
		p.add("test", "vendor/bin/phpunit")
	}
	return p
}

func dartProject(d directory, marker string) (p Project) {
	text := d.read(marker)
	p.Name = match(`(?m)^name:\s*(\S+)`, text)
	tool := "dart"
	if strings.Contains(text, "sdk: flutter") {
		tool = "flutter"
	}
	p.add("install", tool+" pub get")
	p.add("test", tool+" test")
	p.add("run", tool+" run")
	p.add("lint", tool+" analyze")
	return p
}

func makeProject(d directory, marker string) (p Project) {
	p.targets(`(?m)^([A-Za-z0-9][\w.-]*)\s*:(?:[^=]|$)`, d.read(marker), "make ")
	return p
}

func justProject(d directory, marker string) (p Project) {
	p.targets(`(?m)^@?([a-zA-Z][\w-]*)(?: [^:=\n]*)?:(?:[^=]|$)`, d.read(marker), "just ")
	return p
}

// targets adds a command for each name that a pattern finds: command and the name.
func (p *Project) targets(pattern, text, command string) {
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		if name := m[1]; !seen[name] && len(seen) < 30 {
			seen[name] = true
			p.add(name, command+name)
		}
	}
}

func dockerProject(_ directory, marker string) (p Project) {
	if marker == "Dockerfile" {
		p.add("build", "docker build .")
		return p
	}
	p.add("build", "docker compose build")
	p.add("run", "docker compose up")
	return p
}
