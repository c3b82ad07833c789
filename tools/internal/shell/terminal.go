package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// shown is how many bytes of a command's output a model is shown.
const shown = 32 << 10

// Terminal runs a line as a shell does that nobody types into, in dir, for at most
// wait, and tells what it wrote and how it ended. also gets all of the output; nil:
// nobody wants it. An error says that it was ended, and what it had written.
func Terminal(ctx context.Context, dir, line string, wait time.Duration, also io.Writer) (string, error) {
	if strings.TrimSpace(line) == "" {
		return "", errors.New("the command is empty")
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	out := Output{Max: shown}
	to := io.Writer(&out)
	if also != nil {
		to = io.MultiWriter(&out, also)
	}
	exit, err := Run(limited,
		Command{Args: []string{"sh", "-c", line}, Dir: dir, Env: Environ(), Stdout: to, Stderr: to})
	text := strings.TrimRight(out.String(), "\n")
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("the command was ended, it did not finish within %v: give it longer, or less to do", wait)
		}
		if text != "" {
			// Not wrapped: whoever knows the context's end would drop the text.
			err = fmt.Errorf("%v\nuntil then it wrote:\n%s", err, text) //nolint:errorlint // see above
		}
		return "", err
	}
	if text == "" {
		text = "(no output)"
	}
	return fmt.Sprintf("%s\n[%v]", text, exit), nil
}
