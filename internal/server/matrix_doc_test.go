package server_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"tapgw/internal/protocol"
)

// corpusUse has the files in which a message type or a code occurs.
type corpusUse map[string][]string

func (u corpusUse) add(what, file string) {
	if !slices.Contains(u[what], file) {
		u[what] = append(u[what], file)
	}
}

var (
	sentType     = regexp.MustCompile(`^\S+>(?:pad \d+)? \{.*"type":"([a-z._]+)"`)
	receivedType = regexp.MustCompile(`^\S+< \{"type":"([a-z.]+)"`)
	receivedCode = regexp.MustCompile(`^\S+< .*"(?:code|errorCode)":"([A-Z_]+)"`)
	outcomeCode  = regexp.MustCompile(`^\S+= ([A-Z_]+) "`)
	closeCode    = regexp.MustCompile(`^\S+<close (\d+) `)
)

// readCorpus finds which message types, codes and close codes occur in which
// conversation, and the names of all of them.
func readCorpus(t *testing.T) (types, codes, closes corpusUse, names []string) {
	types, codes, closes = corpusUse{}, corpusUse{}, corpusUse{}
	files, err := filepath.Glob(filepath.Join(corpusDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		names = append(names, name)
		for line := range strings.Lines(string(archive.Files[0].Data)) {
			for _, find := range []struct {
				re  *regexp.Regexp
				use corpusUse
			}{{sentType, types}, {receivedType, types}, {receivedCode, codes}, {outcomeCode, codes},
				{closeCode,
					closes}} {
				if m := find.re.FindStringSubmatch(line); m != nil {
					find.use.add(m[1], name)
				}
			}
		}
	}
	return types, codes, closes, names
}

var goTest = regexp.MustCompile(`^(internal/[a-z]+)\.(Test[A-Za-z0-9]+)$`)

// shown checks what a rule is shown by and writes it for the document.
func shown(t *testing.T, rule, by string, names []string, used map[string]bool) string {
	var cells []string
	for what := range strings.FieldsSeq(by) {
		if m := goTest.FindStringSubmatch(what); m != nil {
			if !hasTest(t, m[1], m[2]) {
				t.Errorf("%q names %s in %s, which is not there, want a test", rule, m[2], m[1])
			}
			cells = append(cells, fmt.Sprintf("`%s` in [%s](../../%s)", m[2], m[1], m[1]))
			continue
		}
		if !slices.Contains(names, what) {
			t.Errorf("%q names the conversation %s, which is not there, want one of testdata/wire",
				rule, what)
		}
		used[what] = true
		cells = append(cells, corpusLink(what))
	}
	if len(cells) == 0 {
		t.Errorf("%q: got no conversation and no test that shows it, want one", rule)
	}
	return strings.Join(cells, ", ")
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(src, []byte("\nfunc "+name+"(t *testing.T)"))
	})
}

func corpusLink(name string) string {
	return fmt.Sprintf("[%s](%s.txtar)", name, name)
}

// TestWireMatrix holds the corpus to the rules: each rule is shown by something
// that is there, each conversation shows a rule, and every message type and code
// occurs. It writes, with -update, or compares testdata/wire/README.md.
func TestWireMatrix(t *testing.T) {
	types, codes, closes, names := readCorpus(t)
	var doc strings.Builder
	doc.WriteString("# What shows each rule of the provider protocol\n\n" +
		"Made by `go test ./internal/server -run WireMatrix -update`; the rules are in internal/server/matrix_test.go. " +
		"A name is a conversation in this directory, played over a real WebSocket, in process as text, and in process as messages that were never text.\n")
	used := map[string]bool{}
	for _, section := range rules {
		fmt.Fprintf(&doc, "\n## %s\n\n| Rule | Shown by |\n|---|---|\n", section.title)
		for _, r := range section.rules {
			fmt.Fprintf(&doc, "| %s | %s |\n", r[0], shown(t, r[0], r[1], names, used))
		}
	}
	for _, name := range names {
		if !used[name] {
			t.Errorf("%s.txtar shows no rule, want it in a rule of matrix_test.go", name)
		}
	}
	table := func(title, what string, use corpusUse, all []string) {
		fmt.Fprintf(&doc, "\n## %s\n\n| %s | Occurs in |\n|---|---|\n", title, what)
		for _, one := range all {
			if len(use[one]) == 0 {
				t.Errorf("%s %s occurs in no conversation, want at least one", what, one)
			}
			var cells []string
			for i, name := range use[one] {
				if i == 4 { // more would make the page change with every conversation
					cells = append(cells, "and more")
					break
				}
				cells = append(cells, corpusLink(name))
			}
			fmt.Fprintf(&doc, "| `%s` | %s |\n", one, strings.Join(cells, ", "))
		}
	}
	stateTable(&doc)
	table("Messages from the provider", "Message", types,
		texts(slices.Collect(maps.Keys(fromProvider))))
	table("Messages from the gateway", "Message", types, texts(fromGateway))
	table("Codes", "Code", codes, texts(allCodes))
	table("Close codes", "Code", closes, []string{"1000", "1001", "1008", "1009", "4001", "4002"})

	if *update {
		if err := os.WriteFile(matrixPath, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(matrixPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != doc.String() {
		t.Errorf(
			"%s is stale, want what matrix_test.go says: go test ./internal/server -run WireMatrix -update",
			matrixPath,
		)
	}
}

// stateTable writes what TestEveryMessageInEveryState tries.
func stateTable(doc *strings.Builder) {
	doc.WriteString(
		"\n## States and messages\n\n`TestEveryMessageInEveryState` in [internal/server](../../internal/server) sends each in each, over every transport. " +
			"What only the gateway sends, and what nobody knows, is UNKNOWN_TYPE in all of them; a closed connection " +
			"says no more.\n\n| Message |",
	)
	for _, st := range connStates {
		doc.WriteString(" " + st.name + " |")
	}
	doc.WriteString("\n|---|" + strings.Repeat("---|", len(connStates)) + "\n")
	for _, typ := range texts(slices.Collect(maps.Keys(fromProvider))) {
		fmt.Fprintf(doc, "| `%s` |", typ)
		for _, st := range connStates {
			cell := "INVALID_STATE"
			if slices.Contains(st.legal, protocol.Type(typ)) {
				cell = "legal"
			}
			doc.WriteString(" " + cell + " |")
		}
		doc.WriteString("\n")
	}
}

// allCodes are those of errors and of outcomes.
var allCodes = []protocol.Code{
	protocol.CodeAuthFailed, protocol.CodeDuplicateInstance, protocol.CodeInvalidJSON,
	protocol.CodeInvalidSession,
	protocol.CodeInvalidState,
	protocol.CodePayloadTooLarge, protocol.CodeRateLimited, protocol.CodeToolConflict,
	protocol.CodeUnauthorized,
	protocol.CodeUnknownCallID,
	protocol.CodeUnknownType, protocol.CodeUnsupportedVersion, protocol.CodeCancelled,
	protocol.CodeDenied,
	protocol.CodeDisconnected,
	protocol.CodeInternal, protocol.CodeInvalidArguments, protocol.CodeNotFound,
	protocol.CodeTimeout,
}

// texts are names in order.
func texts[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, one := range list {
		all[i] = string(one)
	}
	slices.Sort(all)
	return all
}
