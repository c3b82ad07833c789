package terminal

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"go.uber.org/goleak"

	"tapgw/internal/terminal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHistoryKeepsEachPromptOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h := openHistory(path)
	for _, text := range []string{"one", "two\nlines", `"quoted`, "one", "  "} {
		h.add(text)
	}
	other := openHistory(path)
	other.add("of another chat")
	h.add("last")
	got := openHistory(path).entries
	if want := []string{"two\nlines", `"quoted`, "one", "of another chat",
		"last"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v, want mode 0600", info.Mode(), err)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	lines := strings.Repeat("x\n", 10) + "a\n"
	for i := range 2 * maxHistory {
		lines += strings.Repeat("y", i%7) + strconv.Itoa(i) + "\n"
	}
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if h := openHistory(path); h.len() != maxHistory {
		t.Errorf("got %d entries, want %d", h.len(), maxHistory)
	}
}

func FuzzHistoryEntry(f *testing.F) {
	f.Add("a\nb")
	f.Add(`"a"`)
	f.Fuzz(func(t *testing.T, text string) {
		line := encodeEntry(text)
		if strings.ContainsAny(line, "\n\r") {
			t.Fatalf("%q became %q, want one line", text, line)
		}
		if got := decodeEntry(line); got != string([]rune(text)) && got != text {
			t.Errorf("%q came back as %q, want the same text", text, got)
		}
	})
}

// newTestModel is a model without a program.
func newTestModel() *model {
	t := &Terminal{ready: make(chan struct{}, 1)}
	return newModel(t, Options{})
}

func TestWordToComplete(t *testing.T) {
	tests := []struct{ text, want string }{
		{"/mo", "/mo"},
		{"/model gpt", ""},
		{"see @cmd/x", "@cmd/x"},
		{"see @cmd/x ", ""},
		{"me@example", ""},
		{"one\n/mo", ""},
		{"one\n@two", "@two"},
		{"日本 @語", "@語"},
	}
	for _, test := range tests {
		m := newTestModel()
		m.setText(test.text)
		if got := m.word(); got != test.want {
			t.Errorf("%q completes %q, want %q", test.text, got, test.want)
		}
	}
}

func TestLateCompletionsAreDropped(t *testing.T) {
	m := newTestModel()
	m.setText("@a")
	m.lookUp()
	m.Update(complete{"@", []Candidate{{Text: "@old"}}})
	if m.menu.open() {
		t.Error("the menu is open with what was found for an earlier word, want it closed")
	}
	m.Update(complete{"@a", []Candidate{{Text: "@a b"}, {Text: "@ab"}}})
	m.Update(tea.KeyPressMsg{Code: tea.KeyDown})
	m.Update(tea.KeyPressMsg{Code: tea.KeyTab})
	if got, want := m.area.Value(), "@ab "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTooLongPasteIsRefused(t *testing.T) {
	m := newTestModel()
	m.setText("draft ")
	for _, content := range []string{strings.Repeat("x\n", maxLines),
		strings.Repeat("x", maxPrompt)} {
		m.hint = ""
		m.Update(tea.PasteMsg{Content: content})
		if got := m.area.Value(); got != "draft " || !strings.Contains(m.hint, "too long") {
			t.Errorf("got a prompt of %d bytes and %q, want the draft and a hint", len(got), m.hint)
		}
	}
	m.Update(tea.PasteMsg{Content: "a\x1b[2J\r\nb"})
	if got := m.area.Value(); strings.Contains(got, "\x1b") || !strings.HasSuffix(got, "b") {
		t.Errorf("got %q, want it without control characters", got)
	}
}

// Lines that are wrapped into many rows are all there, also in a narrow terminal and from the
// history.
func TestLongPasteIsWhole(t *testing.T) {
	for _, text := range []string{
		strings.Repeat(strings.Repeat("word ", 9)+"end\n", maxLines-2),
		strings.Repeat("x", maxPrompt),
	} {
		m := newTestModel()
		m.Update(tea.WindowSizeMsg{Width: status.MinWidth, Height: 24})
		m.Update(tea.PasteMsg{Content: text})
		if got := m.area.Value(); got != text {
			t.Errorf("after a paste of %d bytes the prompt has %d, want the same text", len(text),
				len(got))
		}
		m.setText(text)
		if got := m.area.Value(); got != text {
			t.Errorf("after %d bytes of the history the prompt has %d, want the same text",
				len(text), len(got))
		}
	}
}

func TestQueuedPromptsComeBackAfterCtrlC(t *testing.T) {
	m := newTestModel()
	interrupted := 0
	m.options.Interrupt = func() { interrupted++ }
	m.Update(working("thinking"))
	for _, text := range []string{"one", "two"} {
		m.setText(text)
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	}
	m.setText("three")
	m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if got, want := m.area.Value(), "one\ntwo\nthree"; got != want || interrupted != 1 {
		t.Errorf("got %q and %d interrupts, want %q and 1", got, interrupted, want)
	}
	if waiting := m.t.waiting(); len(waiting) != 0 {
		t.Errorf("after an interrupt %q still wait, want nothing", waiting)
	}
}
