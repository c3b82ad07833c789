package match

import (
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
)

// script reads [[pattern, text], …] and answers "yes", "no" or "none" for each, as a browser's
// RegExp says.
const script = `
const pairs = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(pairs.map(([pattern, text]) => {
	try {
		return new RegExp(pattern).test(text) ? "yes" : "no";
	} catch {
		return "none";
	}
})));`

// atoms are the parts of random patterns.
var atoms = []string{
	"a", "b", "B", "7", "_", "é", "ſ", "İ", "K", "-", " ", ".", `\.`, `\d`, `\D`, `\w`, `\W`, `\s`,
	`\S`, `\b`, `\B`,
	"^", "$", "[ab]", "[^ab]", `[\d-]`, "[a-c7]", `[^\w]`, `\n`, `\t`, `\x61`,
	`\u0062`, `\cJ`, `\0`, "[]", "[^]", `[\b]`,
	`\/`, `\-`, "]", "}",
}

var letters = []rune("abB7_éſİK- .\n\t\r\u00a0\ufeff\x00]}/")

func patternOfAtoms(r *rand.Rand, depth int) string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		atom := atoms[r.IntN(len(atoms))]
		if depth > 0 && r.IntN(3) == 0 {
			open := []string{"(", "(?:", "(?=", "(?!", "(?<=", "(?<!"}
			atom = open[r.IntN(len(open))] + patternOfAtoms(r, depth-1) + ")"
		}
		b.WriteString(atom)
		if r.IntN(3) == 0 {
			repeats := []string{"*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?", "??", "{1,2}?"}
			b.WriteString(repeats[r.IntN(len(repeats))])
		}
		switch r.IntN(12) {
		case 0:
			b.WriteString("|")
		case 1:
			b.WriteString(`\1`)
		}
	}
	return b.String()
}

func shortText(r *rand.Rand) string {
	text := make([]rune, r.IntN(10))
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return string(text)
}

// A filter decides as the engine of the page would, for random patterns and texts, where both take
// the pattern. Three things are left out, in which the engines differ: the numbers of groups beside
// named ones, parts of characters that have two units in UTF-16, and whether a dot matches U+2028.
func TestPatternsAsInJavaScript(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same texts each time
	pairs := make([][2]string, 20_000)
	for i := range pairs {
		pairs[i] = [2]string{patternOfAtoms(r, 2), shortText(r)}
	}
	in, err := json.Marshal(pairs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e", script)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("node: %v", err)
	}
	var want []string
	if err := json.Unmarshal(out, &want); err != nil || len(want) != len(pairs) {
		t.Fatalf("node answered %d of %d: %v", len(want), len(pairs), err)
	}
	both, differ := 0, 0
	for i, pair := range pairs {
		p, err := Compile(pair[0])
		if err != nil || want[i] == "none" {
			continue
		}
		got := map[Result]string{Yes: "yes", No: "no"}[p.Match(NewText(pair[1]))]
		if got == "" {
			continue
		}
		both++
		if got != want[i] {
			if differ++; differ <= 20 {
				t.Errorf("%q on %q: got %s, want %s", pair[0], pair[1], got, want[i])
			}
		}
	}
	t.Logf("%d of %d pairs have two verdicts, %d of them differ", both, len(pairs), differ)
	if both < len(pairs)/2 {
		t.Errorf("only %d of %d pairs have two verdicts, want half of them", both, len(pairs))
	}
}
