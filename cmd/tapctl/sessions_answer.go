package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

// tapctl sessions answer, with which a person answers a session's questions.

func answerCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "answer",
		Usage:     "answer a question of a session, or list the questions",
		ArgsUsage: "[ID] [once|session|deny|TEXT]",
		Description: `Without an answer it lists the questions that wait. Answer a permission with once,
session (this and the same again, as long as the session lasts) or deny; a question of
the model with TEXT; a form with --content, an object that its schema allows, or deny. If
only one question waits, the ID and --question may be left out; then the question is shown
on stderr, and on a terminal you confirm that it is the one you mean. Elsewhere, and with
--json, once and session need --question. --question without an answer shows a long
question whole. The first answer counts. A question without an answer in time
(answer_timeout in [copilot]) is refused.

Examples:
  tapctl sessions answer
  tapctl sessions answer once                        # on a terminal
  tapctl sessions answer once --question k7fq-1
  tapctl sessions answer 3f2a deny --reason 'not on a Friday'
  tapctl sessions answer 3f2a 'the second one' --question k7fq-2
  tapctl sessions answer --content '{"name":"Ada"}'
  tapctl sessions answer --json | jq -r '.[].id'`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{
				Name:    "question",
				Aliases: []string{"q"},
				Usage:   "the question's `ID`: the answer is for this one or for none",
			},
			&ucli.StringFlag{Name: "content", Usage: "`JSON|-`: the content of a form"},
			&ucli.BoolFlag{Name: "decline", Usage: "refuse to answer, whatever the question is"},
			&ucli.StringFlag{Name: "reason", Usage: "with deny: `TEXT` that the model is told"},
		},
		BashComplete: completing(func(c *command, flag string) {
			switch {
			case flag == "question":
				c.suggestQuestions()
			case flag == "" && c.NArg() == 0:
				c.suggestSessions()
			case flag == "" && c.NArg() == 1:
				for _, d := range decisions {
					cli.Candidate(c.Context, d, "")
				}
			}
		}),
		Action: shortAction(2, answerQuestion),
	}
}

var decisions = []string{adminapi.DecideOnce, adminapi.DecideSession, adminapi.DecideDeny}

func (c *command) suggestQuestions() {
	suggest(c, c.gw.Questions, func(q adminapi.Question) (word, about string) {
		return q.ID, cli.Shorten(cli.Clean(q.Message), 60)
	})
}

func answerQuestion(c *command) error {
	questions, err := c.gw.Questions(c.ctx)
	if err != nil {
		return err
	}
	id, text, err := c.answerArgs(questions)
	if err != nil {
		return err
	}
	if id != "" {
		questions = slices.DeleteFunc(questions, func(q adminapi.Question) bool {
			return q.Session != id
		})
	}
	whole := c.String("question")
	if text == "" && !c.IsSet("content") && !c.Bool("decline") {
		if c.IsSet("reason") {
			return cli.Usage("flag --reason: goes with deny or --decline")
		}
		if whole != "" {
			questions = slices.DeleteFunc(questions, func(q adminapi.Question) bool {
				return q.ID != whole
			})
			if len(questions) == 0 {
				return cli.NotFound(
					"question %s does not wait: it was answered, has expired, or is of "+
						"another session",
					whole)
			}
		}
		return c.listQuestions(questions, whole != "")
	}
	q, err := c.findQuestion(id, questions)
	if err != nil {
		return err
	}
	a, err := c.makeAnswer(q, text)
	if err != nil {
		return err
	}
	if err := c.showBefore(q, a); err != nil {
		return err
	}
	// the time that the user took does not count
	ctx, cancel := context.WithTimeout(c.Context.Context, shortTimeout)
	defer cancel()
	if err := c.gw.Answer(ctx, q.Session, a); err != nil {
		return err
	}
	return c.doneTo(q.ID, "answered")
}

// showBefore shows the question that an answer is for, unless --question named it, because another
// question than the user has seen may wait now. On a terminal the user has to confirm all answers
// but a denial. Elsewhere it refuses to give a permission that --question does not name.
func (c *command) showBefore(q adminapi.Question, a adminapi.Answer) error {
	if c.String("question") != "" {
		return nil
	}
	c.out.Notef("%s", strings.TrimSuffix(questionText(c.out, q, false), "\n"))
	in, _ := c.App.Reader.(*os.File)
	switch isTerminal := !c.out.JSON && cli.Terminal(in); {
	case a.Decision == adminapi.DecideDeny, !isTerminal && a.Decision == "":
		return nil
	case !isTerminal:
		return cli.Usage("nothing is allowed without the question's ID; if you mean this one: "+
			"tapctl sessions answer %s %s --question %s", q.Session, a.Decision, q.ID)
	}
	isYes, err := cli.Confirm(c.Context.Context, in, c.out.Err,
		"Is this the question that you answer?")
	if err == nil && !isYes {
		err = errors.New(
			"nothing was answered; tapctl sessions answer lists the questions that wait")
	}
	return err
}

// answerArgs returns the session and the answer from the arguments, "" for a missing one. A
// single argument is the answer, unless a session has that ID or label.
func (c *command) answerArgs(questions []adminapi.Question) (id, text string, err error) {
	first, second := c.Args().Get(0), c.Args().Get(1)
	switch {
	case c.NArg() == 2:
		if second == "" {
			return "", "",
				cli.Usage(
					"sessions answer: the answer is empty; give --decline to refuse the question")
		}
		id, err = c.findSession(first)
		return id, second, err
	case c.NArg() == 0 || first == "":
		return "", "", nil
	case slices.Contains(decisions, first):
		return "", first, nil
	}
	sessions, err := c.gw.Sessions(c.ctx)
	if err != nil {
		return "", "", err
	}
	isSession := slices.ContainsFunc(sessions, func(s adminapi.Session) bool {
		return strings.HasPrefix(s.ID, first) || s.Label == first
	})
	switch {
	case isSession:
		id, err = c.findSession(first)
		return id, "", err
	case len(questions) == 0 && !c.IsSet("question"):
		return "", "", cli.NotFound(
			"no question waits, and no session has the ID or label %q, nor an ID that begins so",
			first,
		)
	}
	return "", first, nil
}

// findQuestion returns the question to answer. It returns the question of --question even if that
// is no longer in the list: then the gateway's error gives the reason.
func (c *command) findQuestion(
	id string, questions []adminapi.Question,
) (adminapi.Question, error) {
	if named := c.String("question"); named != "" {
		if at := slices.IndexFunc(questions, func(q adminapi.Question) bool {
			return q.ID == named
		}); at >= 0 {
			return questions[at], nil
		}
		id, err := c.findSession(id)
		return adminapi.Question{ID: named, Session: id}, err
	}
	switch len(questions) {
	case 0:
		return adminapi.Question{}, cli.NotFound("no question waits")
	case 1:
		return questions[0], nil
	}
	ids := make([]string, len(questions))
	for i, q := range questions {
		ids[i] = q.ID
	}
	return adminapi.Question{}, cli.Usage("which question? give --question and one of: %s",
		strings.Join(ids, ", "))
}

// makeAnswer makes an answer of the flags and the text, by the kind of the question.
func (c *command) makeAnswer(q adminapi.Question, text string) (adminapi.Answer, error) {
	a := adminapi.Answer{Question: q.ID}
	isDeclined := c.Bool("decline") || text == adminapi.DecideDeny &&
		q.Kind != adminapi.QuestionInput
	switch {
	case isDeclined:
		a.Decision, a.Text = adminapi.DecideDeny, c.String("reason")
	case c.IsSet("reason"):
		return a, cli.Usage("flag --reason: goes with deny or --decline")
	case c.IsSet("content"):
		content, err := cli.Text(c.Context, c.String("content"))
		if err != nil {
			return a, err
		}
		if !json.Valid([]byte(content)) {
			return a, cli.Usage("flag --content: is not JSON")
		}
		a.Content = json.RawMessage(content)
	case q.Kind == adminapi.QuestionPermission && !slices.Contains(decisions, text):
		return a, cli.Usage("%q does not answer a permission: give one of %s", text,
			strings.Join(decisions, ", "))
	case q.Kind == adminapi.QuestionForm:
		return a, cli.Usage("a form is answered with --content JSON, or deny")
	case q.Kind == adminapi.QuestionInput:
		a.Text = text
	default:
		a.Decision = text
	}
	return a, nil
}

func (c *command) listQuestions(questions []adminapi.Question, whole bool) error {
	var text strings.Builder
	for _, q := range questions {
		text.WriteString(questionText(c.out, q, whole))
	}
	if len(questions) == 0 {
		return c.out.Done([]adminapi.Question{}, "no question waits")
	}
	return c.out.Result(questions, "%s", text.String())
}

// printQuestions prints the questions of a session on stderr as they come, until stop is called.
func (c *command) printQuestions(session string) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var printing sync.WaitGroup
	printing.Go(func() {
		printed := map[string]bool{}
		for state, err := range c.gw.Watch(ctx, adminapi.StateQuestions) {
			var questions []adminapi.Question
			if err != nil || json.Unmarshal(state.Data, &questions) != nil {
				return // the turn goes on without
			}
			for _, q := range questions {
				if q.Session == session && !printed[q.ID] {
					printed[q.ID] = true
					c.out.Notef("%s", strings.TrimSuffix(questionText(c.out, q, false), "\n"))
				}
			}
		}
	})
	return func() { cancel(); printing.Wait() }
}

// Limits of a question's text, in bytes and lines. A longer one shows only its beginning and its
// end, unless the user asks for all of it.
const (
	questionBytes = 4000
	questionLines = 40
)

// questionText returns a question as text for people, with the command that answers it. If the text
// is cut, it also has the command that shows all of it.
func questionText(o *cli.Output, q adminapi.Question, whole bool) string {
	var b strings.Builder
	left := max(time.Until(q.ExpiresAt).Round(time.Second), 0)
	fmt.Fprintf(&b, "%s  %s of session %s, %s left\n", o.Paint(cli.Yellow, q.ID), q.Kind, q.Session,
		left)
	indented := func(text string) {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			fmt.Fprintf(&b, "  %s\n", strings.TrimRight(line, "\n"))
		}
	}
	indented(visible.Controls(q.Message))
	detail := visible.Text(q.Detail)
	cut := detail
	if !whole {
		cut = visible.Ends(detail, questionBytes, questionLines)
	}
	indented(cut)
	if cut != detail {
		fmt.Fprintf(&b, "  %s\n",
			o.Paint(cli.Yellow, "all of it: tapctl sessions answer --question "+q.ID))
	}
	how := "TEXT"
	switch q.Kind {
	case adminapi.QuestionPermission:
		how = "once|session|deny"
	case adminapi.QuestionForm:
		indented("schema: " + string(q.Schema))
		how = "--content JSON"
	default:
		for _, choice := range q.Choices {
			indented("- " + choice)
		}
	}
	fmt.Fprintf(&b, "  tapctl sessions answer %s %s --question %s\n", q.Session, how, q.ID)
	return b.String()
}
