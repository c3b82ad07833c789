package terminal

import (
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// menuRows is how many candidates are shown at once.
const menuRows = 6

// menu lists the ways to complete the word at the cursor.
type menu struct {
	word     string
	found    []Candidate
	selected int
	shut     bool // by Esc, until the word changes
}

// word returns the word that can be completed: the whole prompt if it is the beginning of a
// command, else the word before the cursor if it begins with @. "" means that there is no such
// word.
func (m *model) word() string {
	lines := strings.Split(m.area.Value(), "\n")
	line := []rune(lines[min(m.area.Line(), len(lines)-1)])
	before := string(line[:min(m.area.Column(), len(line))])
	if m.area.Line() == 0 && strings.HasPrefix(before, "/") && !strings.ContainsAny(before, " \t") {
		return before
	}
	start := strings.LastIndexAny(before, " \t") + 1
	if strings.HasPrefix(before[start:], "@") {
		return before[start:]
	}
	return ""
}

// lookUp asks for the ways to complete the word at the cursor.
func (m *model) lookUp() tea.Cmd {
	word := m.word()
	if word == m.menu.word {
		return nil
	}
	m.menu = menu{word: word, found: nil}
	if word == "" || m.options.Complete == nil {
		return nil
	}
	return func() tea.Msg { return complete{word, m.options.Complete(word)} }
}

// answer takes the completions for a word, if it is still the word at the cursor.
func (u *menu) answer(c complete, word string) {
	if c.word == word {
		u.found = c.found
	}
}

// open reports whether there is something to choose from.
func (u *menu) open() bool {
	return !u.shut && len(u.found) > 0 && (len(u.found) > 1 || u.found[0].Text != u.word)
}

// key handles the keys that move in an open menu.
func (u *menu) key(name string) bool {
	if !u.open() {
		return false
	}
	switch name {
	case "up", "ctrl+p":
		u.selected = (u.selected + len(u.found) - 1) % len(u.found)
	case "down", "ctrl+n":
		u.selected = (u.selected + 1) % len(u.found)
	case "esc":
		u.shut = true
	default:
		return false
	}
	return true
}

// accept returns the candidate that is selected.
func (u *menu) accept() (string, bool) {
	if !u.open() {
		return "", false
	}
	return u.found[u.selected].Text, true
}

// replaceWord puts text in the place of the word before the cursor. A complete word gets a space.
func (m *model) replaceWord(text string) {
	for range []rune(m.menu.word) {
		m.area, _ = m.area.Update(tea.KeyPressMsg{Code: tea.KeyBackspace})
	}
	if !strings.HasSuffix(text, "/") {
		text += " "
	}
	m.area.InsertString(text)
	m.menu = menu{}
}

// lines returns the lines of the menu.
func (u *menu) lines(m *model) (lines []string) {
	if !u.open() || m.question != nil || m.search != nil {
		return nil
	}
	first := max(0, min(u.selected-menuRows/2, len(u.found)-menuRows))
	for i, c := range u.found[first:min(len(u.found), first+menuRows)] {
		mark := "  "
		if first+i == u.selected {
			mark = "→ "
		}
		line := mark + c.Text
		if c.Help != "" {
			line += "  " + c.Help
		}
		line = ansi.Truncate(line, m.width-1, "…")
		if first+i == u.selected {
			line = m.style(bold, line)
		} else {
			line = m.style(dim, line)
		}
		lines = append(lines, line)
	}
	return lines
}
