package scriptmodel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/lazyregexp"
)

// Calls is a ready-made script. A prompt with lines of the form
//
//	call:NAME {"some": "arguments"}
//
// makes the model call those tools, all at once, and then repeat their results. A JSON string in
// place of the object makes a freeform call with that text. Any other prompt is echoed. The
// gateway's local sessions do the same.
//
// A runtime adds messages of its own with the user's role, before a prompt or after a tool's
// result: notices, and the context of hooks. Calls tells them from prompts by their position and
// their tags, so it neither calls a tool twice nor answers a notice.
func Calls(r *Request) Reply {
	turn := currentTurn(r.Messages)
	prompt, results := "", []string(nil)
	for _, m := range turn {
		switch m.Role {
		case "tool":
			results = append(results, m.Text)
		case "user":
			text := Prompt(m.Text)
			// After a result only a text with calls is a prompt. Other texts there are context for
			// that result.
			if text == "" || len(results) > 0 && len(callLines(text)) == 0 {
				continue
			}
			prompt, results = text, nil
		}
	}
	if len(results) > 0 {
		return Reply{Text: strings.Join(results, "\n")}
	}
	lines := callLines(prompt)
	if len(lines) == 0 {
		return Reply{Text: "You said: " + prompt}
	}
	var p Reply
	for _, line := range lines {
		name, args, _ := strings.Cut(strings.TrimPrefix(line, "call:"), " ")
		args = strings.TrimSpace(args)
		switch {
		case !r.HasTool(name):
			return Reply{Text: fmt.Sprintf("There is no tool %q. Tools: %s.", name,
				strings.Join(r.ToolNames(), ", "))}
		case args != "" && !json.Valid([]byte(args)):
			return Reply{Text: fmt.Sprintf("The arguments of %q are not JSON: %s", name, args)}
		}
		c := ToolCall{Name: name, Args: args}
		c.IsFreeform = json.Unmarshal([]byte(args), &c.Args) == nil
		p.ToolCalls = append(p.ToolCalls, c)
	}
	return p
}

// currentTurn returns the messages after the model's last message without tool calls.
func currentTurn(messages []Message) []Message {
	for i, m := range slices.Backward(messages) {
		if m.Role == "assistant" && len(m.ToolCalls) == 0 {
			return messages[i+1:]
		}
	}
	return messages
}

// taggedBlock matches the tagged text that a runtime adds to a message of the user's role.
var taggedBlock = lazyregexp.New(`(?s)<([a-z][a-z_-]*)>.*?</([a-z][a-z_-]*)>`)

// Prompt returns the text of a user-role message without the blocks in tags, such as
// <notice>…</notice>, that a runtime added, and without blanks around it. It is "" if there is
// nothing else.
func Prompt(text string) string {
	return strings.TrimSpace(taggedBlock.ReplaceAllStringFunc(text, func(s string) string {
		if m := taggedBlock.FindStringSubmatch(s); m[1] != m[2] {
			return s
		}
		return ""
	}))
}

func callLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "call:") {
			lines = append(lines, line)
		}
	}
	return lines
}
