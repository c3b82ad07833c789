package providers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// document is the page that shows each task in three languages.
var document = filepath.Join("..", "docs", "providers.md")

// goBlock is a block of Go, with the remark that may stand before it.
var goBlock = regexp.MustCompile("(?ms)^(?:<!-- token: (\\w+) -->\n)?```go\n(.*?)^```$")

func readDocument(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each task of the document is shown in all three languages.
func TestDocumentShowsAllLanguages(t *testing.T) {
	for section := range strings.SplitSeq(readDocument(t), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		count := func(language string) int { return strings.Count(section, "\n```"+language+"\n") }
		if title == "In any other language" {
			continue
		}
		if n := count("go"); count("js") != n || count("python") != n {
			t.Errorf("%s: got %d blocks of Go, %d of Node and %d of Python, want equally many",
				title, n, count("js"), count("python"))
		}
	}
}

// TestGoDocument runs the blocks of Go in the document against the gateway: first the whole
// program, then the parts.
func TestGoDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles programs")
	}
	var parts []string
	whole := ""
	for _, b := range goBlock.FindAllStringSubmatch(readDocument(t), -1) {
		if strings.HasPrefix(b[2], "package main\n") {
			whole += b[2]
			continue
		}
		parts = append(parts, goPart(b[2], b[1]))
	}
	if whole == "" || len(parts) == 0 {
		t.Fatalf("%s has %d parts and the program %q, want both", document, len(parts), whole)
	}
	w := newWorld(t)
	s := w.session("s1")
	env := []string{"TAP_GATEWAY_URL=" + w.url, "TAP_PROVIDER_TOKEN=" + w.gateway.InstanceToken(),
		"INTERNAL_TOKEN=" + w.gateway.AdminToken(), "QUESTIONS_TOKEN=" +
			w.withGrant("phone").Token()}

	stop, done := startProcess(t, documentCommand(t, "whole", whole, env))
	for !slices.Contains(<-s.tools, "greet") {
	}
	if got := s.call(t, "greet", `{"name":"Ada"}`); got != "Hello, Ada!" {
		t.Errorf("greet: got %q, want %q", got, "Hello, Ada!")
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("the whole program ended with %v, want success", err)
	}

	out, err := documentCommand(t, "parts", goProgram(parts), env).CombinedOutput()
	if err != nil ||
		!strings.Contains(string(out), fmt.Sprintf("\nall %d parts ran\n", len(parts))) {
		t.Errorf("the parts: got %v, want that all %d run\n%s", err, len(parts), out)
	}
}

// goPart makes a function of a part of a program. A part without a provider of its own gets one
// that is bound; the provider of a part that makes one is run until it is bound, with the token
// that the part's remark names.
func goPart(body, token string) string {
	if regexp.MustCompile(`(?m)^(\w+, )*err :?= `).MatchString(body) {
		body += "if err != nil { return err }\n"
	}
	if strings.Contains(body, "providers.New(") {
		body += "return with(ctx, p, func() error { return nil })\n"
	} else {
		body = "p := providers.New(\"doc\", nil)\nreturn with(ctx, p, func() error {\n{\n" + body +
			"}\nreturn nil\n})\n"
	}
	return fmt.Sprintf("{%q, func(ctx context.Context) error {\n%s}},\n", strings.ToUpper(token),
		body)
}

// goProgram makes a program that runs parts one after the other.
func goProgram(parts []string) string {
	code := strings.Join(parts, "") + goHarness
	imports := "\"tapgw/providers\"\n"
	for _, path := range []string{
		"cmp", "context", "encoding/json", "errors", "fmt", "log", "net/http", "os",
		"path/filepath", "strings", "time",
	} {
		if regexp.MustCompile(`\b` + filepath.Base(path) + `\.`).MatchString(code) {
			imports += fmt.Sprintf("%q\n", path)
		}
	}
	return fmt.Sprintf("package main\nimport (\n%s)\nvar parts = []part{\n%s", imports, code)
}

const goHarness = `}

type part struct {
	token string // names a variable, NAME_TOKEN; "": the provider's own
	run   func(context.Context) error
}

func main() {
	own := os.Getenv("TAP_PROVIDER_TOKEN")
	for i, p := range parts {
		token := own
		if p.token != "" {
			token = os.Getenv(p.token + "_TOKEN")
		}
		_ = os.Setenv("TAP_PROVIDER_TOKEN", token)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		stdin, keyboard, err := os.Pipe()
		if err != nil {
			log.Fatal(err)
		}
		os.Stdin = stdin
		go typeCode(keyboard)
		if err := p.run(ctx); err != nil {
			log.Fatalf("part %d: %v", i+1, err)
		}
		cancel()
	}
	fmt.Printf("\nall %d parts ran\n", len(parts))
}

// with runs a provider, and calls f once it is bound.
func with(ctx context.Context, p *providers.Provider, f func() error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	for {
		_, err := p.Push(ctx, providers.Event{Text: "bound", Level: providers.Keep, Broadcast: true})
		if !errors.Is(err, providers.ErrNotConnected) {
			break
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	err := f()
	stop()
	return errors.Join(err, <-ended)
}

// typeCode types the code of a pairing that waits, as a person does.
func typeCode(keyboard *os.File) {
	for range time.Tick(20 * time.Millisecond) {
		request, _ := http.NewRequest(http.MethodGet, "http"+strings.TrimPrefix(os.Getenv("TAP_GATEWAY_URL"), "ws")+
			"/api/v1/pairings", nil)
		request.Header.Set("Authorization", "Bearer "+os.Getenv("INTERNAL_TOKEN"))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		var pairings []struct{ Code string }
		_ = json.NewDecoder(answer.Body).Decode(&pairings)
		_ = answer.Body.Close()
		for _, p := range pairings {
			fmt.Fprintln(keyboard, p.Code)
			return
		}
	}
}
`

// documentCommand compiles a program as if it were in the module.
func documentCommand(t *testing.T, name, code string, env []string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	file, overlay, program := filepath.Join(
		dir,
		"main.go",
	), filepath.Join(
		dir,
		"overlay.json",
	), filepath.Join(
		dir,
		name,
	)
	at, err := filepath.Abs(filepath.Join("document"+name, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {at: file}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{file: code, overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program, "./document"+name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the %s of %s: %v\n%s", name, document, err, out)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return cmd
}

// startProcess starts a program; stop asks it to end, and done has how it ended.
func startProcess(t *testing.T, cmd *exec.Cmd) (stop func(), done <-chan error) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended, waited := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(waited)
		err := cmd.Wait()
		if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		ended <- err
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("ending %s: got %v, want no error", cmd, err)
		}
		<-waited
	})
	return func() { _ = cmd.Process.Signal(syscall.SIGTERM) }, ended
}
