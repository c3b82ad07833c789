package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf16"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/visible"
)

func completeCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "complete",
		Usage:     "ask for completions at a place in a file",
		ArgsUsage: "FILE:LINE:COL",
		Description: `Lines and columns count from 1, columns in characters. Prints the text of each
completion; with --json also the range that it replaces. Exit code 4 if there is none.

Examples:
  lsclient complete main.go:12:5`,
		Action: action(1, shortTimeout, complete),
	}
}

func complete(c *command) error {
	file, at, text, err := c.place(c.Args().First())
	if err != nil {
		return err
	}
	return c.server(func(c *command, server *langserver.Client) error {
		found, err := server.Complete(c.ctx, file, languageOf(file), text, at)
		if err != nil {
			return err
		}
		if c.out.JSON {
			type line struct {
				Text  string              `json:"text"`
				Start langserver.Position `json:"start"`
				End   langserver.Position `json:"end"`
			}
			lines := []line{}
			for _, item := range found {
				lines = append(lines, line{item.Text, item.Start, item.End})
			}
			return c.out.Document(lines)
		}
		if len(found) == 0 {
			return cli.NotFound("no completion at %s", c.Args().First())
		}
		var b strings.Builder
		for _, item := range found {
			b.WriteString(cli.Clean(item.Text) + "\n")
		}
		return c.out.Printf("%s", b.String())
	})
}

// place reads the argument FILE:LINE:COL and the file.
func (c *command) place(arg string) (file string, at langserver.Position, text string, err error) {
	wrong := cli.Usage("complete: %q is not FILE:LINE:COL, such as main.go:12:5", arg)
	rest, col, ok := cutLast(arg)
	file, line, ok2 := cutLast(rest)
	if !ok || !ok2 || file == "" {
		return "", at, "", wrong
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(c.workspace.Dir, file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", at, "", cli.NotFound("complete: %v", err)
	}
	text = string(data)
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return "", at, "", cli.Usage("complete: there is no line %d: %s has %s", line, file,
			visible.Count(len(lines), "line"))
	}
	letters := []rune(strings.TrimSuffix(lines[line-1], "\r"))
	if col < 1 || col > len(letters)+1 {
		return "", at, "", cli.Usage("complete: there is no column %d: line %d has %s", col, line,
			visible.Count(len(letters)+1, "column"))
	}
	return file, langserver.Position{Line: line - 1, Character: len(utf16.Encode(letters[:col-1]))},
		text, nil
}

// cutLast splits off the number after the last colon.
func cutLast(s string) (rest string, n int, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(s[i+1:])
	return s[:i], n, err == nil
}

// languages are the LSP language ids that differ from the file's extension.
var languages = map[string]string{
	".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".hpp": "cpp", ".cs": "csharp",
	".js": "javascript", ".mjs": "javascript", ".jsx": "javascriptreact",
	".kt": "kotlin", ".md": "markdown", ".py": "python", ".rb": "ruby", ".rs": "rust",
	".sh": "shellscript", ".ts": "typescript", ".tsx": "typescriptreact",
	".yml": "yaml", ".txt": "plaintext",
}

func languageOf(file string) string {
	ext := strings.ToLower(filepath.Ext(file))
	if l, ok := languages[ext]; ok {
		return l
	}
	return strings.TrimPrefix(ext, ".")
}
