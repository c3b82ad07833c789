package evals

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/match"
)

// check compares an observation with a case's expectations, except for the claims that a model has
// to judge.
func check(c *configs.EvalCase, seen *observed) (failures []Failure) {
	fail := func(check, format string, args ...any) {
		failures = append(failures, Failure{check, fmt.Sprintf(format, args...)})
	}
	if reason := checkOrder(c.Order, seen.calls); reason != "" {
		fail("order", "%s", reason)
	}
	for i := range c.Calls {
		if reason := checkCall(&c.Calls[i], seen.calls); reason != "" {
			fail("call "+c.Calls[i].Tool, "%s", reason)
		}
	}
	for i := range c.Files {
		if err := checkFile(&c.Files[i], seen.files[c.Files[i].Path], c.Workspace); err != nil {
			fail("file "+c.Files[i].Path, "%v", err)
		}
	}
	for i := range c.Streams {
		if reason := checkStream(&c.Streams[i], seen.events); reason != "" {
			fail("stream "+c.Streams[i].Stream, "%s", reason)
		}
	}
	for _, claim := range c.Observations {
		if claim.Pattern != nil && says(claim.Pattern, seen.messages) != match.Yes {
			fail("observation", "missing: %s", claim.Text)
		}
	}
	for _, claim := range c.Prohibited {
		if claim.Pattern != nil && says(claim.Pattern, seen.messages) != match.No &&
			!isShown(claim.UnlessCall, seen.calls) {
			fail("prohibited", "it says: %s", claim.Text)
		}
	}
	return failures
}

// says tries a pattern on each message.
func says(p *match.Pattern, messages []string) (found match.Result) {
	for _, m := range messages {
		found = max(found, p.MatchAtLeisure(match.NewText(m)))
	}
	return found
}

// isShown reports whether a call of a tool, with *, shows that a prohibited claim is true.
func isShown(unlessCall string, calls []call) bool {
	if unlessCall == "" {
		return false
	}
	tool := match.NewToolGlob(unlessCall)
	return slices.ContainsFunc(calls, func(c call) bool {
		return c.outcome == configs.CallOK && tool.Match(c.tool)
	})
}

// callOutcome is the outcome of a call that has ended.
func callOutcome(err *adminapi.ToolError) string {
	switch {
	case err == nil:
		return configs.CallOK
	case strings.EqualFold(err.Code, configs.CallDenied):
		return configs.CallDenied
	}
	return configs.CallFailed
}

// checkOrder returns the first tool of an order without a call after the calls of the tools before
// it.
func checkOrder(order []string, calls []call) string {
	rest := calls
	for i, tool := range order {
		for len(rest) > 0 && rest[0].tool != tool {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			if i == 0 {
				return fmt.Sprintf("%s was not called", tool)
			}
			return fmt.Sprintf("%s was not called after %s", tool, order[i-1])
		}
		rest = rest[1:]
	}
	return ""
}

// checkCall counts the calls that an expectation is about, and describes the fault if their number
// is wrong.
func checkCall(e *configs.ExpectedCall, calls []call) string {
	tool, began := match.NewToolGlob(e.Tool), e.After == ""
	count, others := 0, ""
	for _, c := range calls {
		if !began {
			began = c.tool == e.After
			continue
		}
		if !tool.Match(c.tool) {
			continue
		}
		if isExpected(e, &c) {
			count++
		} else {
			others = fmt.Sprintf("; another was %s with %s", cmp.Or(c.outcome, "unfinished"),
				short(c.args))
		}
	}
	what := "calls"
	if e.Outcome != "" {
		what += " with outcome " + e.Outcome
	}
	if e.Args != nil {
		what += " with such arguments"
	}
	if e.After != "" {
		what += " after " + e.After
	}
	switch {
	case count < e.Min:
		return fmt.Sprintf("%d %s, want at least %d%s", count, what, e.Min, others)
	case e.Max >= 0 && count > e.Max:
		return fmt.Sprintf("%d %s, want at most %d", count, what, e.Max)
	}
	return ""
}

// isExpected reports whether a call has the arguments and the outcome that are expected. A pattern
// that could not be decided fits where calls are forbidden, and nowhere else.
func isExpected(e *configs.ExpectedCall, c *call) bool {
	if e.Args != nil {
		found := e.Args.MatchAtLeisure(match.NewText(c.args))
		if found == match.No || found == match.Undecided && e.Max != 0 {
			return false
		}
	}
	switch e.Outcome {
	case "":
		return true
	case configs.CallFailed:
		return c.outcome == configs.CallFailed || c.outcome == configs.CallDenied
	}
	return c.outcome == e.Outcome
}

// checkFile returns how a file is not as expected.
func checkFile(e *configs.ExpectedFile, f file, before map[string]string) error {
	switch {
	case !e.Exists && f.exists:
		return errors.New("it exists")
	case !e.Exists:
		return nil
	case f.err != nil:
		return fmt.Errorf("it can't be read: %w", f.err)
	case !f.exists:
		return errors.New("it does not exist")
	case e.Unchanged && f.text != before[e.Path]:
		return errors.New("it was changed")
	case !strings.Contains(f.text, e.Contains):
		return fmt.Errorf("it does not contain %q", short(e.Contains))
	case e.Pattern == nil:
		return nil
	}
	switch e.Pattern.MatchAtLeisure(match.NewText(f.text)) {
	case match.No:
		return errors.New("it does not match the pattern")
	case match.Undecided:
		return errors.New("it is too long for the pattern")
	}
	return nil
}

// checkStream counts the events that an expectation is about, and describes the fault if their
// number is wrong.
func checkStream(e *configs.ExpectedStream, events []adminapi.StreamRow) string {
	name, provider, hasProvider := strings.Cut(e.Stream, "@")
	count := 0
	for _, row := range events {
		text := cmp.Or(row.Event, row.Prompt)
		if row.Stream != name || hasProvider && row.Provider != provider ||
			!strings.Contains(text, e.Contains) {
			continue
		}
		if e.Pattern != nil {
			found := e.Pattern.MatchAtLeisure(match.NewText(text))
			if found == match.No || found == match.Undecided && e.Max != 0 {
				continue
			}
		}
		count++
	}
	switch {
	case count < e.Min:
		return fmt.Sprintf("%d such events, want at least %d", count, e.Min)
	case e.Max >= 0 && count > e.Max:
		return fmt.Sprintf("%d such events, want at most %d", count, e.Max)
	}
	return ""
}
