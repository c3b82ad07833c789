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
)

func completeCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "complete",
		Usage:     "ask for completions at a place in a file",
		ArgsUsage: "FILE:LINE:COL",
		Description: `Lines and columns count from 1, columns in letters. Each completion is what would
stand from there on; with --json it comes with the range that it replaces. Exit
code 4 when there is none.

Examples:
  lsclient complete main.go:12:5`,
		Action: action(1, shortTimeout, complete),
	}
}

func complete(k *call) error {
	file, at, text, err := k.place(k.Args().First())
	if err != nil {
		return err
	}
	return k.server(func(k *call, server *langserver.Client) error {
		found, err := server.Complete(k.ctx, file, languageOf(file), text, at)
		if err != nil {
			return err
		}
		if k.out.JSON {
			type line struct {
				Text  string              `json:"text"`
				Start langserver.Position `json:"start"`
				End   langserver.Position `json:"end"`
			}
			lines := []line{}
			for _, c := range found {
				lines = append(lines, line{c.Text, c.Start, c.End})
			}
			return k.out.Document(lines)
		}
		if len(found) == 0 {
			return cli.NotFound("no completion at %s", k.Args().First())
		}
		for _, c := range found {
			if err := k.out.Printf("%s\n", cli.Clean(c.Text)); err != nil {
				return err
			}
		}
		return nil
	})
}

// place reads FILE:LINE:COL and the file.
func (k *call) place(arg string) (file string, at langserver.Position, text string, err error) {
	wrong := cli.Usage("complete: %q is not FILE:LINE:COL, such as main.go:12:5", arg)
	rest, col, ok := cutLast(arg)
	file, line, ok2 := cutLast(rest)
	if !ok || !ok2 || file == "" {
		return "", at, "", wrong
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(k.workspace, file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", at, "", cli.NotFound("complete: %v", err)
	}
	text = string(data)
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return "", at, "", cli.Usage("complete: %s has %d lines, not %d", file, len(lines), line)
	}
	letters := []rune(strings.TrimSuffix(lines[line-1], "\r"))
	if col < 1 || col > len(letters)+1 {
		return "", at, "", cli.Usage("complete: line %d has %d columns, not %d", line, len(letters)+1, col)
	}
	return file, langserver.Position{Line: line - 1, Character: len(utf16.Encode(letters[:col-1]))}, text, nil
}

// cutLast cuts a number behind the last colon off.
func cutLast(s string) (rest string, n int, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", 0, false
	}
	n, err := strconv.Atoi(s[i+1:])
	return s[:i], n, err == nil
}

// languages are the protocol's names of languages whose files end otherwise.
var languages = map[string]string{
	".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".hpp": "cpp", ".cs": "csharp", ".js": "javascript",
	".mjs": "javascript", ".jsx": "javascriptreact",
	".kt": "kotlin", ".md": "markdown", ".py": "python", ".rb": "ruby", ".rs": "rust", ".sh": "shellscript",
	".ts": "typescript", ".tsx": "typescriptreact",
	".yml": "yaml", ".txt": "plaintext",
}

func languageOf(file string) string {
	ext := strings.ToLower(filepath.Ext(file))
	if l, ok := languages[ext]; ok {
		return l
	}
	return strings.TrimPrefix(ext, ".")
}
