package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// block is one fenced block of the bundled documentation.
type block struct {
	at   string // file and line
	lang string
	info []string // words after the language: for Java the version it needs, and "preview"
	code string
}

// bundledBlocks collects all blocks. A fence without a language is a fault.
func bundledBlocks(t *testing.T) (blocks []block) {
	t.Helper()
	err := fs.WalkDir(embedded, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".md") {
			return err
		}
		text, err := fs.ReadFile(embedded, name)
		if err != nil {
			return err
		}
		var open codeFence
		for i, line := range strings.Split(string(text), "\n") {
			before := open
			inside := open.read(line)
			switch {
			case before == "" && open != "":
				info := strings.Fields(strings.TrimLeft(line, "`"))
				if len(info) == 0 {
					t.Errorf("%s:%d: a fence without a language, want at least one", name, i+1)
					info = []string{"text"}
				}
				blocks = append(blocks, block{at: fmt.Sprintf("%s:%d", name, i+1), lang: info[0],
					info: info[1:]})
			case inside && open != "":
				blocks[len(blocks)-1].code += line + "\n"
			}
		}
		if open != "" {
			t.Errorf(`%s: a fence is not closed, want ""`, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func TestCodeBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	checks := map[string]func(*testing.T, []block){
		"java":       checkJava,
		"js":         checkNode,
		"python":     checkPython,
		"gherkin":    each(gherkinFault),
		"mermaid":    each(mermaidFault),
		"bash":       checkBash,
		"xml":        each(xmlFault),
		"properties": each(propertiesFault),
		"yaml":       each(yamlFault),
		"text":       each(func(string) error { return nil }),
	}
	byLang := make(map[string][]block)
	for _, b := range bundledBlocks(t) {
		if checks[b.lang] == nil {
			t.Errorf("%s: nothing checks %q", b.at, b.lang)
		}
		byLang[b.lang] = append(byLang[b.lang], b)
	}
	for lang, check := range checks {
		t.Run(lang, func(t *testing.T) {
			if len(byLang[lang]) == 0 {
				t.Fatalf("no block of %s, want at least one to check", lang)
			}
			check(t, byLang[lang])
		})
	}
}

func each(fault func(code string) error) func(*testing.T, []block) {
	return func(t *testing.T, blocks []block) {
		for _, b := range blocks {
			if err := fault(b.code); err != nil {
				t.Errorf("%s: %v", b.at, err)
			}
		}
	}
}

// run runs a program that the tests need, and fails when it is missing.
func run(
	t *testing.T, stdin string, name string, args ...string,
) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %s: %v (install it)", name, err)
	}
	return out.String(), errOut.String(), err
}

func checkNode(t *testing.T, blocks []block) {
	dir := t.TempDir()
	for i, b := range blocks {
		file := filepath.Join(dir, strconv.Itoa(i)+".mjs") // modules: await stands at the top
		if err := os.WriteFile(file, []byte(b.code), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, err := run(t, "", "node", "--check", file); err != nil {
			t.Errorf("%s: %s, want no error", b.at, stderr)
		}
	}
}

func checkPython(t *testing.T, blocks []block) {
	const program = `
import ast, json, sys
for at, code in json.load(sys.stdin):
    try:
        compile(code, at, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
    except SyntaxError as e:
        print(f"{at}: line {e.lineno}: {e.msg}")
`
	var in [][2]string
	for _, b := range blocks {
		in = append(in, [2]string{b.at, b.code})
	}
	stdin, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := run(t, string(stdin), "python3", "-c", program)
	if err != nil || stdout != "" {
		t.Errorf(`%s%s, want no error and ""`, stdout, stderr)
	}
}

func checkBash(t *testing.T, blocks []block) {
	for _, b := range blocks {
		if _, stderr, err := run(t, b.code, "bash", "-n"); err != nil {
			t.Errorf("%s: %s, want no error", b.at, stderr)
		}
	}
}

// checkJava checks the balance of every block, parses it, and compiles those of the
// library java that the installed JDK is new enough for.
func checkJava(t *testing.T, blocks []block) {
	version := 0 // of the JDK; 0: there is none
	if _, err := exec.LookPath("javac"); err == nil {
		out, _, err := run(t, "", "javac", "--version")
		if m := regexp.MustCompile(`javac (\d+)`).FindStringSubmatch(out); err == nil && m != nil {
			version, _ = strconv.Atoi(m[1])
		}
	}
	dir := t.TempDir()
	files := make(map[string]block)
	for i, b := range blocks {
		if err := javaBalance(b.code); err != nil {
			t.Errorf("%s: %v", b.at, err)
		}
		needs := 0
		if len(b.info) > 0 {
			var err error
			if needs, err = strconv.Atoi(b.info[0]); err != nil || needs < 18 || needs > 25 {
				t.Errorf(
					"%s: %q is no version of Java that a block may need, want no error, at least 18 and at most 25",
					b.at, b.info[0],
				)
			}
		}
		preview := slices.Contains(b.info, "preview")
		if needs > version || preview && needs != version {
			continue
		}
		name := fmt.Sprintf("%03d", i)
		if strings.HasPrefix(b.at, "java/") {
			name += "-compile"
		}
		if preview {
			name += "-preview"
		}
		files[name] = b
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.code), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("JDK %d: %d of %d blocks parsed or compiled, all checked for balance", version,
		len(files), len(blocks))
	if version < 17 {
		return
	}
	stdout, stderr, err := run(t, "", "java", filepath.Join("testdata", "CheckJava.java"), dir)
	if err != nil {
		t.Fatalf("CheckJava: %v: %s", err, stderr)
	}
	for line := range strings.Lines(stdout) {
		name, fault, _ := strings.Cut(line, ": ")
		t.Errorf("%s: %s, want no fault", files[name].at, fault)
	}
}

// javaBalance checks that brackets, comments and literals of Java are closed.
func javaBalance(code string) error {
	pairs := map[byte]byte{')': '(', ']': '[', '}': '{'}
	var open []byte
	for i := 0; i < len(code); i++ {
		rest := code[i:]
		skip := func(begin, end string, escapes bool) error {
			for j := len(begin); j < len(rest); j++ {
				switch {
				case escapes && rest[j] == '\\':
					j++
				case strings.HasPrefix(rest[j:], end):
					i += j + len(end) - 1
					return nil
				case len(begin) == 1 && rest[j] == '\n':
					return fmt.Errorf("a literal is not closed: %q", rest[:j])
				}
			}
			return fmt.Errorf("%s is not closed", begin)
		}
		var err error
		switch c := code[i]; {
		case strings.HasPrefix(rest, "//"):
			err = skip("//", "\n", false)
		case strings.HasPrefix(rest, "/*"):
			err = skip("/*", "*/", false)
		case strings.HasPrefix(rest, `"""`):
			err = skip(`"""`, `"""`, true)
		case c == '"' || c == '\'':
			err = skip(string(c), string(c), true)
		case strings.IndexByte("([{", c) >= 0:
			open = append(open, c)
		case pairs[c] != 0:
			if len(open) == 0 || open[len(open)-1] != pairs[c] {
				return fmt.Errorf("line %d: %q closes nothing", strings.Count(code[:i], "\n")+1, c)
			}
			open = open[:len(open)-1]
		}
		if err != nil {
			return err
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("not closed: %q", open)
	}
	return nil
}

func xmlFault(code string) error {
	for dec := xml.NewDecoder(strings.NewReader(code)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func propertiesFault(code string) error {
	for line := range strings.Lines(code) {
		line = strings.TrimSpace(line)
		if key, _, ok := strings.Cut(line, "="); line != "" && line[0] != '#' &&
			(!ok || strings.ContainsAny(strings.TrimSpace(key), " :")) {
			return fmt.Errorf("no key and value: %q", line)
		}
	}
	return nil
}

func yamlFault(code string) error {
	for line := range strings.Lines(code) {
		if indent := len(line) - len(strings.TrimLeft(line, " ")); strings.Contains(line, "\t") ||
			indent%2 != 0 {
			return fmt.Errorf("indentation: %q", line)
		}
	}
	return nil
}

var (
	gherkinBlock = regexp.MustCompile(
		`^(Feature|Background|Rule|Scenario|Example|Scenario Outline|Examples|` +
			`Funktionalität|Grundlage|Regel|Beispiel|Szenariogrundriss|Beispiele):`)
	gherkinStep = regexp.MustCompile(
		`^(Given|When|Then|And|But|\*|Angenommen|Gegeben sei|Wenn|Dann|Und) `)
)

// gherkinFault returns the first fault of a Gherkin text: an unknown line, a table with
// rows of different length, an open doc string, or free text at a wrong place.
func gherkinFault(code string) error {
	description := false // may come now
	cells := 0           // of the row above
	feature, quoted := 0, false
	for i, line := range strings.Split(code, "\n") {
		line = strings.TrimSpace(line)
		fault := func(what string) error { return fmt.Errorf("line %d: %s: %q", i+1, what, line) }
		if strings.HasPrefix(line, `"""`) {
			quoted = !quoted
			continue
		}
		if quoted || line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "|") {
			n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
			switch {
			case !strings.HasSuffix(line, "|"):
				return fault("a row ends with a pipe")
			case cells != 0 && cells != n:
				return fault("rows differ in length")
			}
			cells, description = n, false
			continue
		}
		cells = 0
		switch {
		case strings.HasPrefix(line, "@"):
			for tag := range strings.FieldsSeq(line) {
				if !strings.HasPrefix(tag, "@") {
					return fault("no tag")
				}
			}
		case gherkinBlock.MatchString(line):
			description = true
			if strings.HasPrefix(line, "Feature:") || strings.HasPrefix(line, "Funktionalität:") {
				feature++
			} else if feature == 0 {
				return fault("before the feature")
			}
		case gherkinStep.MatchString(line):
			description = false
		case !description:
			return fault("neither keyword nor step")
		}
	}
	switch {
	case quoted:
		return errors.New("a doc string is not closed")
	case feature != 1:
		return fmt.Errorf("%d features", feature)
	}
	return nil
}

var (
	mermaidKind = regexp.MustCompile(
		`^(flowchart (TD|TB|BT|LR|RL)|sequenceDiagram|classDiagram|stateDiagram-v2|` +
			`erDiagram|gantt|gitGraph( LR:)?|journey|timeline|mindmap|kanban|pie( showData)?|quadrantChart|` +
			`requirementDiagram|architecture-beta|C4Context|(block|packet|radar|sankey|treemap|xychart)-beta)$`)
	mermaidBlock = regexp.MustCompile(`^(subgraph|loop|alt|opt|par|critical|break|rect|box)( |$)`)
)

// mermaidFault returns the first fault of a Mermaid definition: an unknown kind, a block
// without its end or the other way round, or a tab.
func mermaidFault(code string) error {
	code = regexp.MustCompile(`(?s)\A---\n.*?\n---\n`).ReplaceAllString(code, "")
	kind, rest, _ := strings.Cut(code, "\n")
	if !mermaidKind.MatchString(kind) {
		return fmt.Errorf("%q is no kind of diagram", kind)
	}
	open := 0
	for line := range strings.Lines(rest) {
		line = strings.TrimRight(line, "\n")
		switch statement := strings.TrimLeft(line, " "); {
		case strings.Contains(line, "\t"):
			return fmt.Errorf("a tab: %q", line)
		case mermaidBlock.MatchString(statement):
			open++
		case statement == "end":
			open--
		}
		if open < 0 {
			return errors.New("an end of no block")
		}
	}
	if open > 0 {
		return fmt.Errorf("%d blocks have no end", open)
	}
	return nil
}

// TestBlockCheckers proves that our own checkers can fail.
func TestBlockCheckers(t *testing.T) {
	tests := []struct {
		name  string
		fault func(string) error
		code  string
		bad   bool
	}{
		{"java", javaBalance, "class A { String s = \"}\"; char c = '{'; /* ( */ } // [\n", false},
		{"java text block", javaBalance, "String s = \"\"\"\n  { \\\"\"\" (\n  \"\"\";\n", false},
		{"java brace", javaBalance, "class A { void m() { }\n", true},
		{"java mixed", javaBalance, "f(a[1)];\n", true},
		{"java string", javaBalance, "String s = \"a;\n", true},
		{"java comment", javaBalance, "/* a\n", true},
		{"xml", xmlFault, "<a><b/></a>", false},
		{"xml open", xmlFault, "<a><b></a>", true},
		{"properties", propertiesFault, "# c\na.b = c=d\n", false},
		{"properties none", propertiesFault, "a b\n", true},
		{"yaml", yamlFault, "a:\n  - b\n", false},
		{"yaml tab", yamlFault, "a:\n\tb: 1\n", true},
		{"gherkin", gherkinFault,
			"Feature: a\n text\n @x @y\n Scenario: b\n  Given c\n   | d | e |\n   | \\| | f |\n   \"\"\"\n   | g\n  " +
				" \"\"\"\n", false},
		{"gherkin rows", gherkinFault,
			"Feature: a\n Scenario: b\n  Given c\n   | d | e |\n   | f |\n", true},
		{"gherkin pipe", gherkinFault, "Feature: a\n Scenario: b\n  Given c\n   | d\n", true},
		{"gherkin step", gherkinFault, "Feature: a\n Scenario: b\n  Given c\n  Giv d\n", true},
		{"gherkin doc string", gherkinFault, "Feature: a\n Scenario: b\n  Given c\n  \"\"\"\n",
			true},
		{"gherkin no feature", gherkinFault, "Scenario: b\n  Given c\n", true},
		{"gherkin tag", gherkinFault, "@a b\nFeature: a\n", true},
		{"mermaid", mermaidFault,
			"---\ntitle: x\n---\nflowchart LR\n  subgraph a\n    b --> c\n  end\n", false},
		{"mermaid kind", mermaidFault, "flowchart\n  a --> b\n", true},
		{"mermaid open", mermaidFault, "sequenceDiagram\n  loop x\n  A->>B: c\n", true},
		{"mermaid end", mermaidFault, "sequenceDiagram\n  A->>B: c\n  end\n", true},
		{"mermaid tab", mermaidFault, "mindmap\n\troot\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.fault(tt.code); (err != nil) != tt.bad {
				t.Errorf("got %v, want %v", err, tt.bad)
			}
		})
	}
}
