// Package scaffold writes a provider of a user's own from a template: its program, its test, the
// SDK and the provider file. It makes the program able to start, and waits until a gateway that
// runs has its tool.
package scaffold

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"mvdan.cc/sh/v3/syntax"

	"tapgw"
	"tapgw/internal/adminapi"
	"tapgw/internal/daemon"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// language is how a provider in a language is written and installed.
type language struct {
	template string   // the directory of the template
	sdk      []string // globs of the SDK's files
	cut, to  string   // the SDK's files move from below cut to below to
	ignore   string   // the lines of .gitignore
	program  string   // the program that must be on PATH
	// arguments with which program succeeds if the provider can start; nil: install first
	check   []string
	install string            // for sh; it makes the program able to start
	links   map[string]string // symbolic links and where they lead
}

var languages = map[string]language{
	"go": {
		template: "providers/templates/hello",
		sdk: []string{"LICENSE", "providers/*.go", "internal/chans/*.go",
			"internal/lazyregexp/*.go", "internal/link/*.go", "internal/proof/*.go",
			"internal/protocol/*.go", "internal/statedir/*.go",
			"internal/visible/*.go"},
		to:      "tapgw",
		ignore:  "/provider\n",
		program: "go",
		install: "go build -o provider .",
	},
	"node": {
		template: "providers/templates/node",
		sdk: []string{
			"LICENSE", "providers/node/index.mjs", "providers/node/lib/*.mjs",
			"providers/node/README.md",
		},
		cut:     "providers/node/",
		to:      "tapgw-provider",
		ignore:  "node_modules/\n",
		program: "node",
		check: []string{
			"-e",
			`import("tapgw-provider").catch((err) => { console.error(err.message); process.exit(1) })`,
		},
		install: "npm install --no-audit --no-fund --loglevel=error",
		links:   map[string]string{"node_modules/tapgw-provider": "../tapgw-provider"},
	},
	"python": {
		template: "providers/templates/python",
		sdk:      []string{"LICENSE", "providers/python/tapgw/*"},
		cut:      "providers/python/tapgw/",
		to:       "tapgw",
		ignore:   "__pycache__/\n.venv/\n",
		program:  "python3",
		check:    []string{"-B", "-c", "import tapgw"},
		install:  "python3 -m venv .venv && .venv/bin/python -m pip install -q -r requirements.txt",
	},
}

// goModules are the modules that the Go SDK imports. Their versions and sums come from the
// repository.
var goModules = lazyregexp.New(
	`^\s*(github\.com/(coder/websocket|go-json-experiment/json|google/jsonschema-go)) (v\S+)`)

// installLimit bounds the installation: without a network, npm and pip try for minutes.
const installLimit = 3 * time.Minute

// Project is a provider to write. [New] makes one.
type Project struct {
	language
	lang, name string
	tool       string // the name of its tool
	dir, file  string // absolute
}

// notWord are the characters of a provider's name that a function's name can't have in every
// language.
var notWord = strings.NewReplacer(".", "_", "-", "_")

// toolOf makes the name of a provider's tool. It begins with a word that other providers' tools
// don't have behind it.
func toolOf(name string) string {
	tool := "greet_" + notWord.Replace(name)
	return tool[:min(len(tool), 64)]
}

// Languages are the languages in which [New] can write a provider.
var Languages = slices.Sorted(maps.Keys(languages))

// New returns a provider of a name in one of [Languages], whose directory and provider file have
// absolute paths. It returns an error if one of them exists.
func New(lang, name, dir, file string) (*Project, error) {
	p := &Project{
		language: languages[lang],
		lang:     lang,
		name:     name,
		tool:     toolOf(name),
		dir:      filepath.Clean(dir),
		file:     file,
	}
	return p, p.checkFree()
}

// Result is the new provider project, as tapgw new shows it in JSON.
type Result struct {
	Name  string `json:"name"`
	Lang  string `json:"lang"`
	Dir   string `json:"dir"`
	File  string `json:"file"` // the provider file
	Tool  string `json:"tool"`
	Ready bool   `json:"ready"` // the program can start
	// Sessions is how many sessions of the gateway that runs have the tool.
	Sessions int `json:"sessions"`
	// Missing names the part that the program lacks, and Install is the command that installs it.
	// Both are empty if Ready.
	Missing string `json:"missing,omitempty"`
	Install string `json:"install,omitempty"`

	Next string `json:"-"` // the next step for the user
}

// Make writes the provider and makes it able to start. Then it waits until the sessions of the
// gateway of state have its tool. note gets lines about its progress. After an error, Make removes
// all of the provider.
func (p *Project) Make(ctx context.Context, state daemon.Dir, note func(string)) (Result, error) {
	if err := p.write(); err != nil {
		return Result{}, err
	}
	missing, err := p.prepare(ctx, note)
	if err == nil {
		err = p.writeProviderFile()
	}
	if err != nil {
		return Result{}, errors.Join(err, os.RemoveAll(p.dir))
	}
	r := Result{Name: p.name, Lang: p.lang, Dir: p.dir, File: p.file, Tool: p.tool,
		Ready: missing == ""}
	if r.Ready {
		r.Sessions, r.Next = awaitTool(ctx, state, protocol.NormalName(p.name), p.tool)
	} else {
		r.Missing, r.Install = missing, p.installCommand()
		r.Next = "run: " + r.Install
	}
	return r, nil
}

// checkFree checks that neither the directory nor the provider file exists.
func (p *Project) checkFree() error {
	if _, err := os.Lstat(p.dir); !errors.Is(err, fs.ErrNotExist) {
		return existsError(p.dir, err, "choose another with --dir")
	}
	if _, err := os.Lstat(p.file); !errors.Is(err, fs.ErrNotExist) {
		return existsError(p.file, err, "choose another NAME, or remove the file")
	}
	return nil
}

func existsError(path string, err error, cure string) error {
	if err != nil {
		return fmt.Errorf("looking for %s: %w", path, err)
	}
	return fmt.Errorf("%s exists, and is not overwritten: %s", path, cure)
}

// files returns the content of all files, by their paths in the directory.
func (p *Project) files() (map[string][]byte, error) {
	found := map[string][]byte{".gitignore": []byte(p.ignore)}
	names := strings.NewReplacer("greet_hello", p.tool, "hello", p.name)
	template, err := fs.Sub(tapgw.Files, p.template)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(template, ".")
	for _, e := range entries {
		var text []byte
		text, err = fs.ReadFile(template, e.Name())
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(e.Name(), "gateway") { // there, hello is a message
			text = []byte(names.Replace(string(text)))
		}
		found[e.Name()] = text
	}
	for _, glob := range p.sdk {
		files, globErr := fs.Glob(tapgw.Files, glob)
		err = errors.Join(err, globErr)
		for _, file := range files {
			text, readErr := tapgw.Files.ReadFile(file)
			err = errors.Join(err, readErr)
			found[path.Join(p.to, strings.TrimPrefix(file, p.cut))] = text
		}
	}
	switch p.lang {
	case "go":
		err = errors.Join(err, addModules(found))
	case "node":
		err = errors.Join(err, addPackage(found))
	}
	return found, err
}

// addModules adds go.mod and go.sum of the program, and go.mod of the SDK beside it.
func addModules(files map[string][]byte) error {
	mod, err := tapgw.Files.ReadFile("go.mod")
	if err != nil {
		return err
	}
	sums, err := tapgw.Files.ReadFile("go.sum")
	if err != nil {
		return err
	}
	var version, required, sum strings.Builder
	for line := range strings.Lines(string(mod)) {
		if strings.HasPrefix(line, "go ") {
			version.WriteString(line)
		}
		if m := goModules.FindStringSubmatch(line); m != nil {
			required.WriteString("\t" + m[1] + " " + m[3] + "\n")
		}
	}
	for line := range strings.Lines(string(sums)) {
		if goModules.MatchString(line) {
			sum.WriteString(line)
		}
	}
	files["tapgw/go.mod"] = fmt.Appendf(nil, "module tapgw\n\n%s\nrequire (\n%s)\n", &version,
		&required)
	files["go.mod"] = fmt.Appendf(
		nil,
		"module provider\n\n%s\nrequire (\n%s\ttapgw v0.0.0\n)\n\nreplace tapgw => ./tapgw\n",
		&version,
		&required,
	)
	files["go.sum"] = []byte(sum.String())
	return nil
}

// addPackage adds the SDK's package.json, without the parts that only the SDK's own tests need.
func addPackage(files map[string][]byte) error {
	text, err := tapgw.Files.ReadFile("providers/node/package.json")
	if err != nil {
		return err
	}
	var content map[string]any
	if err := json.Unmarshal(text, &content); err != nil {
		return err
	}
	for _, key := range []string{"devDependencies", "files", "scripts", "types"} {
		delete(content, key)
	}
	content["exports"] = "./index.mjs"
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(content)
	files["tapgw-provider/package.json"] = out.Bytes()
	return err
}

// write makes the directory: it writes all files into a new directory beside it and renames that
// one.
func (p *Project) write() (err error) {
	files, err := p.files()
	if err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	parent := filepath.Dir(p.dir)
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // a directory of sources
		return p.makingError(err)
	}
	temporary, err := os.MkdirTemp(parent, ".tapgw-new-")
	if err != nil {
		return p.makingError(err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	root := filepath.Join(temporary, "new") // with the rights that the user's umask leaves
	for _, name := range slices.Sorted(maps.Keys(files)) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // as above
			return fmt.Errorf("making the directory: %w", err)
		}
		if err := os.WriteFile(file, files[name], 0o644); err != nil { //nolint:gosec // as above
			return fmt.Errorf("writing the provider: %w", err)
		}
	}
	for link, target := range p.links {
		link = filepath.Join(root, link)
		if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil { //nolint:gosec // as above
			return fmt.Errorf("making the directory: %w", err)
		}
		if err := os.Symlink(target, link); err != nil {
			return fmt.Errorf("linking the SDK: %w", err)
		}
	}
	if err := p.checkFree(); err != nil { // an empty directory would be replaced
		return err
	}
	return os.Rename(root, p.dir)
}

// makingError names the directory that the user asked for, not the temporary one beside it.
func (p *Project) makingError(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return fmt.Errorf("making the directory %s: %w; choose another with --dir", p.dir, err)
}

// prepare makes the program able to start. If it can't, missing says why. The error is an
// interrupt.
func (p *Project) prepare(ctx context.Context, note func(string)) (missing string, err error) {
	programs := onPath(p.program)
	if len(programs) == 0 {
		return p.program + " is not on PATH; install it first", nil
	}
	for i, program := range programs {
		p.program = program
		if p.canStart(ctx) != nil {
			continue
		}
		if i > 0 { // such as a python3 of the user's own before the system's, which has the package
			note(fmt.Sprintf("%s runs with %s, because %s lacks what it needs", p.name, program,
				programs[0]))
		}
		return "", nil
	}
	p.program = programs[0]
	note("installing what " + p.name + " needs: " + p.install)
	limited, cancel := context.WithTimeout(ctx, installLimit)
	defer cancel()
	err = p.run(limited, "sh", "-c", p.install)
	if p.lang == "python" {
		p.program = filepath.Join(p.dir, ".venv", "bin", "python")
	}
	if err == nil && p.check != nil {
		err = p.canStart(ctx)
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("interrupted while it installs: nothing of %s is left", p.name)
	}
	if err != nil {
		return fmt.Sprintf("%s: %v", p.install, err), nil
	}
	return "", nil
}

// onPath returns all programs of a name on PATH, in its order.
func onPath(name string) (found []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if at, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(at) {
			found = append(found, at)
		}
	}
	return found
}

// canStart checks whether the provider has all parts that it needs to start.
func (p *Project) canStart(ctx context.Context) error {
	if p.check == nil {
		return errors.New("it must be compiled first")
	}
	return p.run(ctx, append([]string{p.program}, p.check...)...)
}

// run runs a command in the directory. The error has the last line that the command printed to
// stderr.
func (p *Project) run(ctx context.Context, command ...string) error {
	var stderr bytes.Buffer
	child, err := proc.Start(proc.Command{
		Path: command[0], Args: command[1:], Dir: p.dir, Env: os.Environ(), Stdout: &bytes.Buffer{},
		Stderr: &stderr,
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		child.Stop()
		return ctx.Err()
	case <-child.Done():
	}
	if err := child.Err(); err != nil {
		text := strings.TrimSpace(stderr.String())
		return fmt.Errorf("%w: %s", err, text[strings.LastIndexByte(text, '\n')+1:])
	}
	return nil
}

// writeProviderFile writes the provider file in one step, if no file of that name exists.
func (p *Project) writeProviderFile() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("writing the provider file: %w", err)
		}
	}()
	command := map[string][]string{
		"go":     {filepath.Join(p.dir, "provider")},
		"node":   {p.program, "provider.mjs"},
		"python": {p.program, "provider.py"},
	}[p.lang]
	text := bytes.NewBufferString(
		"# tapgw new wrote this file. `tapgw config schema provider` describes all keys.\n")
	err = toml.NewEncoder(text).Encode(struct {
		Kind    string   `toml:"kind"`
		Command []string `toml:"command"`
		CWD     string   `toml:"cwd"`
	}{"command", command, p.dir})
	if err != nil {
		return err
	}
	return proc.WriteNew(p.file, text.Bytes())
}

// startLimit is how long [Project.Make] waits for the new provider in the sessions of a gateway.
const startLimit = 10 * time.Second

// awaitTool waits until each session of the running gateway has the provider's tool: another
// provider may have a tool of that name. It returns how many sessions have it, and the user's next
// step.
func awaitTool(
	ctx context.Context, state daemon.Dir, provider, tool string,
) (sessions int, next string) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	g, runs := state.Running(ctx)
	if !runs {
		return 0, "start a gateway: tapgw ensure"
	}
	c, err := state.Dial(g)
	if err != nil {
		return 0, "see what the gateway made of it: tapctl providers"
	}
	defer c.Close()
	all := 0
	err = daemon.Poll(ctx, func() bool {
		list, err := c.Sessions(ctx)
		all, sessions = len(list), 0
		for _, s := range list {
			tools, err := c.Tools(ctx, s.ID)
			if err == nil && slices.ContainsFunc(tools, func(t adminapi.Tool) bool {
				return t.Name == tool && t.Provider == provider
			}) {
				sessions++
			}
		}
		return err == nil && sessions == all
	})
	switch {
	case err != nil:
		return sessions, "not each session has it yet; see why: tapctl providers"
	case all == 0:
		return 0, "start a session: tapctl sessions start"
	}
	return sessions, fmt.Sprintf(`try it: tapctl tools call %s --args '{"name": "Ada"}'`, tool)
}

// installCommand returns the command that installs the missing part and starts the provider again.
func (p *Project) installCommand() string {
	dir, err := syntax.Quote(p.dir, syntax.LangBash)
	if err != nil {
		dir = "DIR" // a NUL, which no directory has
	}
	return fmt.Sprintf("cd %s && %s && tapctl providers restart %s", dir, p.install, p.name)
}
