package conversations

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

// Markdown returns a conversation as Markdown, without characters that control terminals. With
// results it has the arguments and results of tools in full, else a line for each call.
func (c Conversation) Markdown(results bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s, %s, %s\n", cli.OneLine(c.Title), c.ID, cli.OneLine(c.Workspace),
		c.CreatedAt.Format(time.RFC3339))
	for _, t := range c.Turns {
		fmt.Fprintf(&b, "\n## You\n\n%s\n", strings.TrimSpace(t.Prompt))
		fmt.Fprintf(&b, "\n## %s\n", cli.OneLine(cmp.Or(t.Model, "Model")))
		for _, s := range t.Steps {
			if s.Tool != nil {
				writeTool(&b, s.Tool, results)
			} else {
				fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(s.Text))
			}
		}
		switch t.Outcome {
		case Completed:
		case Failed:
			fmt.Fprintf(&b, "\n*This turn failed: %s*\n", cli.OneLine(t.Error))
		case Cancelled:
			b.WriteString("\n*This turn was cancelled.*\n")
		default:
			b.WriteString("\n*This turn was interrupted.*\n")
		}
	}
	return visible.Controls(b.String())
}

// writeTool writes a tool call.
func writeTool(b *strings.Builder, t *Tool, results bool) {
	state := ""
	if t.State != "completed" {
		state = ", " + cli.OneLine(t.State)
	}
	if !results {
		fmt.Fprintf(b, "\n• %s %s%s\n", cli.OneLine(t.Name),
			cli.Shorten(cli.Clean(string(t.Input)), 100), state)
		return
	}
	fmt.Fprintf(b, "\n**%s**%s\n\n%s", cli.OneLine(t.Name), state, fenced("json", string(t.Input)))
	if text := cmp.Or(t.Result, t.Error); text != "" {
		b.WriteString("\n" + fenced("text", text))
	}
}

// fenced returns a text as a code block, whose fence is longer than any in the text.
func fenced(language, text string) string {
	run, longest := 0, 2
	for i := range len(text) {
		if text[i] != '`' {
			run = -1
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fmt.Sprintf("%s%s\n%s\n%[1]s\n", fence, language, strings.TrimRight(text, "\n"))
}
