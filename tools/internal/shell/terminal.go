package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxShown is how many bytes of a command's output a model sees.
const maxShown = 32 << 10

// Terminal runs a command line with sh in dir, without input, for at most limit. It
// returns the output and how the command ended, for the model. also, unless nil, gets
// the whole output. If the command was stopped, the error has the output so far.
func Terminal(
	ctx context.Context, dir, line string, limit time.Duration, also io.Writer,
) (string, error) {
	if strings.TrimSpace(line) == "" {
		return "", errors.New("the command is empty")
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := Output{Max: maxShown}
	to := io.Writer(&out)
	if also != nil {
		to = io.MultiWriter(&out, also)
	}
	command := Command{Args: []string{"sh", "-c", line}, Dir: dir, Env: Environ(), Stdout: to,
		Stderr: to}
	exit, err := Run(limited, command)
	text := strings.TrimRight(out.String(), "\n")
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf(
				"the command was ended, it did not finish within %v: give it longer, or less to do",
				limit)
		}
		if text != "" {
			// Not wrapped: callers that recognise the context's error would drop the text.
			// See above.
			err = fmt.Errorf("%v\nuntil then it wrote:\n%s", err, text) //nolint:errorlint
		}
		return "", err
	}
	if text == "" {
		text = "(no output)"
	}
	return fmt.Sprintf("%s\n[%v]", text, exit), nil
}
