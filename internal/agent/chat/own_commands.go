package chat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tapgw/configs"
	"tapgw/internal/cli"
)

// ownCommand is a command of a chat that the user, or a trusted workspace, has written: a Markdown
// file, whose text is the prompt.
type ownCommand struct {
	name        string // with its slash
	description string
	prompt      string
}

// Limits of own commands.
const (
	maxOwnCommands = 200
	maxOwnCommand  = 64 << 10 // bytes of a file
)

// ownCommands returns the commands of the user and of the workspace, if that is trusted, by name.
// The workspace's count over the user's, the built-in ones over both. Files that can't be read are
// left out, each with a fault.
func (c *chat) ownCommands() (commands []ownCommand, faults []error) {
	found := map[string]ownCommand{}
	read := func(files fs.FS, dir string) {
		list, err := readOwnCommands(files, dir)
		faults = append(faults, err...)
		for _, o := range list {
			found[o.name] = o
		}
	}
	// The user's own files may be links, such as links to a directory of settings.
	user := filepath.Join(configs.UserDir(), "commands")
	read(os.DirFS(user), user)
	if trusted, err := configs.Trusted(c.workspace.Dir); trusted && err == nil {
		if root, err := os.OpenRoot(c.workspace.Dir); err == nil { // links do not lead out of it
			defer root.Close()
			if files, err := fs.Sub(root.FS(), ".tapgw/commands"); err == nil {
				read(files, filepath.Join(c.workspace.Dir, ".tapgw", "commands"))
			}
		}
	}
	for _, builtIn := range slashCommands() {
		delete(found, builtIn.name)
	}
	for _, o := range found {
		commands = append(commands, o)
	}
	slices.SortFunc(commands, func(a, b ownCommand) int { return strings.Compare(a.name, b.name) })
	return commands, faults
}

// commandName is the form of a command's name.
var commandName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// readOwnCommands reads the files of a directory; dir names it in faults.
func readOwnCommands(files fs.FS, dir string) (commands []ownCommand, faults []error) {
	entries, err := fs.ReadDir(files, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", dir, err)}
	}
	for _, entry := range entries {
		name, isCommand := strings.CutSuffix(entry.Name(), ".md")
		if !isCommand || len(commands) == maxOwnCommands {
			continue
		}
		o, err := readOwnCommand(files, entry.Name())
		if err == nil && !commandName.MatchString(name) {
			err = errors.New("the name of a command has letters, digits, - and _ only")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", filepath.Join(dir, entry.Name()), err))
			continue
		}
		o.name = "/" + name
		commands = append(commands, o)
	}
	return commands, faults
}

func readOwnCommand(files fs.FS, name string) (ownCommand, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return ownCommand{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxOwnCommand {
		return ownCommand{}, fmt.Errorf("a command is a file of at most %d KiB", maxOwnCommand>>10)
	}
	data, err := fs.ReadFile(files, name)
	if err != nil {
		return ownCommand{}, err
	}
	description, prompt := frontMatter(string(data))
	if strings.TrimSpace(prompt) == "" {
		return ownCommand{}, errors.New("the command has no text")
	}
	return ownCommand{description: description, prompt: strings.TrimSpace(prompt)}, nil
}

// frontMatter splits a Markdown file into the description of its front matter, if it has one, and
// the text after it.
func frontMatter(text string) (description, rest string) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	head, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return "", text
	}
	head, rest, ok = strings.Cut("\n"+head, "\n---")
	line, rest, _ := strings.Cut(rest, "\n")
	if !ok || strings.TrimSpace(line) != "" {
		return "", text // no line ends it
	}
	for line := range strings.Lines(head) {
		if value, ok := strings.CutPrefix(line, "description:"); ok {
			value = strings.TrimSpace(value)
			if unquoted, err := strconv.Unquote(value); err == nil {
				value = unquoted
			}
			description = cli.OneLine(value)
		}
	}
	return description, rest
}

// argument is a placeholder in a command's text for the words that the user typed after its name.
var argument = regexp.MustCompile(`\$(ARGUMENTS|[1-9])`)

// fill puts the arguments into the command's text: $ARGUMENTS is all of them, $1 the first word.
// Without such a place they come after the text.
func (o ownCommand) fill(arguments string) string {
	if !argument.MatchString(o.prompt) {
		return strings.TrimSpace(o.prompt + "\n\n" + arguments)
	}
	words := strings.Fields(arguments)
	return argument.ReplaceAllStringFunc(o.prompt, func(place string) string {
		n, err := strconv.Atoi(place[1:])
		switch {
		case err != nil:
			return arguments
		case n <= len(words):
			return words[n-1]
		}
		return ""
	})
}

// runOwn runs the turn of an own command. done is false if there is no command of that name.
func (c *chat) runOwn(ctx context.Context, name, arguments string) (done bool, err error) {
	commands, faults := c.ownCommands()
	for _, o := range commands {
		if o.name == name {
			return true, c.prompt(ctx, o.fill(arguments))
		}
	}
	for _, fault := range faults {
		c.console.Out.Notef("lsclient: left out: %s", cli.OneLine(fault.Error()))
	}
	return false, nil
}
