package terminal

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"tapgw/internal/proc"
)

// maxHistory is how many prompts are kept.
const maxHistory = 1000

// history has the prompts of earlier chats, each once. Its file has one prompt a line: unchanged,
// or as a JSON string if it has several lines or begins with a quotation mark.
type history struct {
	path    string
	entries []string // oldest first
}

// openHistory reads the file. Without one, or when it can't be read, the history is empty.
func openHistory(path string) *history {
	h := &history{path: path}
	data, err := os.ReadFile(path) //nolint:gosec // the user's own
	if path == "" || err != nil {
		return h
	}
	for line := range strings.Lines(string(data)) {
		h.put(decodeEntry(strings.TrimRight(line, "\r\n")))
	}
	return h
}

// decodeEntry reads a line of the file.
func decodeEntry(line string) string {
	var text string
	if strings.HasPrefix(line, `"`) && json.Unmarshal([]byte(line), &text) == nil {
		return text
	}
	return line
}

// encodeEntry writes a line of the file.
func encodeEntry(text string) string {
	if !strings.ContainsAny(text, "\r\n") && !strings.HasPrefix(text, `"`) {
		return text
	}
	data, err := json.Marshal(text)
	if err != nil { // can't happen: it is a string
		return ""
	}
	return string(data)
}

// put makes text the newest entry.
func (h *history) put(text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	h.entries = append(slices.DeleteFunc(h.entries, func(e string) bool { return e == text }), text)
	h.entries = h.entries[max(0, len(h.entries)-maxHistory):]
}

// add makes text the newest entry, also in the file, which other chats may have changed. An error
// loses only history.
func (h *history) add(text string) {
	h.put(text)
	if h.path == "" || proc.PrivateDir(filepath.Dir(h.path)) != nil {
		return
	}
	lock, err := proc.TryLock(h.path + ".lock")
	if err != nil {
		return // another chat is writing at this moment
	}
	defer lock.Unlock()
	now := openHistory(h.path)
	now.put(text)
	var b strings.Builder
	for _, entry := range now.entries {
		b.WriteString(encodeEntry(entry) + "\n")
	}
	_ = proc.WritePrivate(h.path, []byte(b.String()))
}

func (h *history) len() int { return len(h.entries) }

// entry returns an entry, counted from the newest.
func (h *history) entry(i int) string { return h.entries[len(h.entries)-1-i] }

// find returns the newest entry, at or before at, that contains query; -1 if no entry does.
func (h *history) find(query string, at int) int {
	for i := max(at, 0); i < h.len(); i++ {
		if strings.Contains(strings.ToLower(h.entry(i)), strings.ToLower(query)) {
			return i
		}
	}
	return -1
}

// search is a search in the history.
type search struct {
	query string
	draft string // the typed text from before the search
	at    int    // the entry that is shown; -1 if no entry is
}

// searchKey handles a key in a search. It returns false if the key ends the search and has its
// usual meaning.
func (m *model) searchKey(k tea.KeyPressMsg) bool {
	s := m.search
	from := s.at
	switch k.String() {
	case "ctrl+r":
		from++
	case "backspace", "ctrl+h":
		runes := []rune(s.query)
		s.query, from = string(runes[:max(0, len(runes)-1)]), 0
	case "esc", "ctrl+c", "ctrl+g":
		m.search = nil
		m.setText(s.draft)
		return true
	case "enter", "tab":
		m.search = nil
		return true
	default:
		if k.Text == "" {
			m.search = nil
			return false
		}
		s.query, from = s.query+k.Text, max(from, 0)
	}
	if at := m.history.find(s.query, from); at >= 0 && s.query != "" {
		s.at = at
		m.setText(m.history.entry(at))
	}
	return true
}
