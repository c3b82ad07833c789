package terminal

import (
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"tapgw/internal/terminal/status"
)

// The state of the screen, and how keys and messages change it.

// The beginnings of a prompt's lines.
const (
	promptMark   = "> "
	promptIndent = "  "
)

// Limits of a prompt.
const (
	shownRows = 8         // of a prompt that is edited
	maxLines  = 5000      // of a prompt after a paste
	maxPrompt = 256 << 10 // bytes of a prompt after a paste: a longer one would make each key slow
)

// Styles, where the terminal has colours.
const (
	dim   = "\x1b[2m"
	bold  = "\x1b[1m"
	reset = "\x1b[0m"
)

type (
	change   func(*model)
	working  string
	tick     struct{}
	complete struct { // the answer of Options.Complete
		word  string
		found []Candidate
	}
)

// model is the state of the terminal's display. Only the program's goroutine touches it.
type model struct {
	t       *Terminal
	options Options
	area    textarea.Model
	width   int
	height  int

	work    string // the work in progress; "" if there is no work
	since   time.Time
	frame   int  // of the spinner
	ticking bool // a tick has been scheduled

	coming   string
	live     []string
	question *question
	menu     menu
	search   *search // Ctrl-R
	history  *history
	at       int    // the entry of the history that is shown, from the newest; -1: the draft
	draft    string // the typed text from before the history was looked at
	hint     string // a line below the prompt, until the next key
	leaving  bool   // the next Ctrl-C at an empty prompt ends the chat
	closing  bool
}

func newModel(t *Terminal, o Options) *model {
	area := textarea.New()
	area.SetStyles(textarea.Styles{})
	area.SetVirtualCursor(false)
	area.ShowLineNumbers = false
	area.EndOfBufferCharacter = ' '
	area.DynamicHeight = true
	// Without MaxContentHeight: the editor silently drops text beyond it, counted in wrapped rows.
	area.MinHeight, area.MaxHeight, area.MaxContentHeight = 1, shownRows, 0
	area.CharLimit = 0
	area.SetPromptFunc(len(promptMark), func(line textarea.PromptInfo) string {
		if line.LineNumber == 0 {
			return promptMark
		}
		return promptIndent
	})
	area.KeyMap.Paste.SetEnabled(false) // it would start a program; terminals paste by themselves
	area.SetWidth(status.FirstWidth)
	area.SetHeight(1)
	area.Focus()
	return &model{
		t: t, options: o, area: area, width: status.FirstWidth, height: 24,
		history: openHistory(o.History), at: -1,
	}
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return m.setWork(m.options.Working) }

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case change:
		msg(m)
	case working:
		return m, m.setWork(string(msg))
	case tick:
		m.frame++
		m.ticking = false
		return m, m.animate()
	case complete:
		m.menu.answer(msg, m.word())
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, status.MinWidth), msg.Height
		m.t.columns.Store(int64(m.width))
		m.area.SetWidth(m.width)
	case tea.PasteMsg:
		return m, m.paste(msg)
	case tea.KeyPressMsg:
		return m, m.key(msg)
	}
	return m, nil
}

// setWork shows the work in progress. The time counts from the moment that work begins.
func (m *model) setWork(what string) tea.Cmd {
	if m.work == "" {
		m.since = time.Now()
	}
	m.work = what
	return m.animate()
}

// animate lets the spinner turn while something runs.
func (m *model) animate() tea.Cmd {
	if m.work == "" || m.ticking {
		return nil
	}
	m.ticking = true
	return tea.Tick(status.FrameTime, func(time.Time) tea.Msg { return tick{} })
}

func (m *model) paste(msg tea.PasteMsg) tea.Cmd {
	if m.question != nil || m.search != nil {
		return nil
	}
	m.leaving, m.hint = false, ""
	lines := strings.Count(msg.Content, "\n") + strings.Count(msg.Content, "\r")
	if lines+m.area.LineCount() > maxLines || len(msg.Content)+len(m.area.Value()) > maxPrompt {
		m.hint = "the paste is too long: put it into a file, and name that with @"
		return nil
	}
	return m.edit(msg)
}

// edit gives a message to the editor, and looks for completions.
func (m *model) edit(msg tea.Msg) tea.Cmd {
	area, cmd := m.area.Update(msg)
	m.area = area
	return tea.Batch(cmd, m.lookUp())
}

// key handles a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name == "ctrl+z" {
		return tea.Suspend
	}
	if m.question != nil {
		q := m.question
		over, interrupted := q.key(k)
		if over {
			m.question = nil
		}
		if interrupted {
			m.interrupt()
			close(q.answer) // last, so that the asker knows of the interrupt
		}
		return nil
	}
	if m.search != nil && m.searchKey(k) {
		return nil
	}
	if name == "ctrl+c" {
		m.ctrlC()
		return nil
	}
	m.leaving, m.hint = false, ""
	if m.menu.key(name) {
		return nil
	}
	switch name {
	case "tab":
		if text, ok := m.menu.accept(); ok {
			m.replaceWord(text)
		}
		return m.lookUp()
	case "enter":
		return m.enter()
	case "alt+enter", "shift+enter", "ctrl+j":
		m.area.InsertString("\n")
		return nil
	case "ctrl+d":
		if m.area.Value() == "" {
			m.t.leave()
			return nil
		}
	case "ctrl+r":
		m.search = &search{draft: m.area.Value(), at: -1}
		return nil
	case "ctrl+l":
		return tea.ClearScreen
	case "up", "ctrl+p":
		if m.recalled() || m.area.Line() == 0 && m.area.LineInfo().RowOffset == 0 {
			m.recall(m.at + 1)
			return nil
		}
	case "down", "ctrl+n":
		if m.recalled() || m.at >= 0 && m.area.Line() == m.area.LineCount()-1 {
			m.recall(m.at - 1)
			return nil
		}
	}
	return m.edit(k)
}

// enter sends the prompt, or goes on in a new line after a backslash.
func (m *model) enter() tea.Cmd {
	text := m.area.Value()
	if before, ok := strings.CutSuffix(text, `\`); ok {
		m.setText(before + "\n")
		return nil
	}
	if strings.TrimSpace(text) == "" {
		return nil
	}
	m.history.add(text)
	m.setText("")
	m.t.submit(text)
	return nil
}

// setText replaces the prompt. The cursor stands at its end.
func (m *model) setText(text string) {
	m.area.Reset()
	m.area.SetValue(text)
	m.area.MoveToEnd()
	m.at, m.menu = -1, menu{}
}

// ctrlC ends the turn that runs. Without a turn it clears the text, and without text, at the second
// time, it ends the chat.
func (m *model) ctrlC() {
	switch {
	case m.work != "":
		m.interrupt()
	case m.area.Value() != "":
		m.setText("")
		m.leaving, m.hint = false, ""
	case m.leaving:
		m.t.leave()
	default:
		m.leaving, m.hint = true, "Ctrl-C again, or Ctrl-D, ends the chat"
	}
}

// interrupt ends the turn that runs. Waiting prompts go back into the editor.
func (m *model) interrupt() {
	if queue := m.t.takeBack(); len(queue) > 0 {
		if text := m.area.Value(); text != "" {
			queue = append(queue, text)
		}
		m.setText(strings.Join(queue, "\n"))
	}
	if m.options.Interrupt != nil {
		m.options.Interrupt()
	}
}

// recalled reports whether the prompt is an entry of the history, as it was.
func (m *model) recalled() bool { return m.at >= 0 && m.area.Value() == m.history.entry(m.at) }

// recall shows an entry of the history; -1 is the draft.
func (m *model) recall(at int) {
	if at >= m.history.len() {
		return
	}
	if m.at < 0 {
		m.draft = m.area.Value()
	}
	text := m.draft
	if at >= 0 {
		text = m.history.entry(at)
	}
	m.setText(text)
	m.at = at
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	if m.closing {
		return tea.NewView("")
	}
	below, cursor := m.lower()
	var above []string
	if m.coming != "" {
		above = strings.Split(m.coming, "\n")
	}
	// Lines that do not fit are left out at the top.
	above = above[max(0, len(above)-max(0, m.height-len(below)-1)):]
	v := tea.NewView(strings.Join(append(above, below...), "\n"))
	if cursor != nil {
		cursor.Y += len(above)
	}
	v.Cursor = cursor
	return v
}

// lower returns the lines of the lower edge, and the place of the cursor in them.
func (m *model) lower() ([]string, *tea.Cursor) {
	var lines []string
	for _, line := range m.live {
		lines = append(lines, m.style(dim, ansi.Truncate("  "+line, m.width-1, "…")))
	}
	if m.work != "" {
		text := status.Spin(m.frame, m.work, m.since) + " · Ctrl-C stops"
		lines = append(lines, m.style(dim, ansi.Truncate(text, m.width-1, "…")))
	}
	for _, text := range m.t.waiting() {
		first, _, _ := strings.Cut(text, "\n")
		if m.work != "" {
			lines = append(lines, m.style(dim, ansi.Truncate("next: "+first, m.width-1, "…")))
		}
	}
	if m.question != nil {
		line := m.question.label + m.question.typed
		rows := strings.Split(ansi.Hardwrap(line, m.width-1, true), "\n")
		return append(lines, rows...), tea.NewCursor(ansi.StringWidth(rows[len(rows)-1]),
			len(lines)+len(rows)-1)
	}
	top := len(lines)
	lines = append(lines, strings.Split(m.area.View(), "\n")...)
	cursor := m.area.Cursor()
	if cursor != nil {
		cursor.Y += top
	}
	if m.search != nil {
		lines = append(lines,
			m.style(dim, ansi.Truncate("search backwards: "+m.search.query, m.width-1, "…")))
	}
	lines = append(lines, m.menu.lines(m)...)
	if m.hint != "" {
		lines = append(lines, m.style(dim, ansi.Truncate(m.hint, m.width-1, "…")))
	}
	return lines, cursor
}

func (m *model) style(code, text string) string {
	if !m.options.Color {
		return text
	}
	return code + text + reset
}
