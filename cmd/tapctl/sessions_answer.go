package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/visible"
)

func answerCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "answer",
		Usage:     "answer what a session asks a person, or list what waits",
		ArgsUsage: "[ID] [once|session|deny|TEXT]",
		Description: `Without an answer it lists what waits. A permission is answered with once, session
(for whatever is the same, as long as the session lasts) or deny; what the model asks
with TEXT; a form with --content, an object that its schema allows, or deny. With one
question the ID and --question may be left out; --question without an answer shows a
long one whole. Whoever answers first is heard; what nobody answers in time
(answer_timeout in [copilot]) is refused.

Examples:
  tapctl sessions answer
  tapctl sessions answer once
  tapctl sessions answer 3f2a deny --reason 'not on a Friday'
  tapctl sessions answer 3f2a 'the second one' --question k7fq-2
  tapctl sessions answer --content '{"name":"Ada"}'
  tapctl sessions answer --json | jq -r '.[].id'`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "question", Aliases: []string{"q"}, Usage: "the question's `ID` (may be left out where one waits)"},
			&ucli.StringFlag{Name: "content", Usage: "`JSON|-`: what a form is filled in with"},
			&ucli.BoolFlag{Name: "decline", Usage: "do not answer: deny, whatever is asked"},
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
	questions, err := c.gw.Questions(c.ctx)
	if err != nil {
		return
	}
	for _, q := range questions {
		cli.Candidate(c.Context, q.ID, cli.Shorten(cli.Clean(q.Message), 60))
	}
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
		questions = slices.DeleteFunc(questions, func(q adminapi.Question) bool { return q.Session != id })
	}
	whole := c.String("question")
	if text == "" && !c.IsSet("content") && !c.Bool("decline") {
		if c.IsSet("reason") {
			return cli.Usage("flag --reason: goes with deny or --decline")
		}
		if whole != "" {
			questions = slices.DeleteFunc(questions, func(q adminapi.Question) bool { return q.ID != whole })
			if len(questions) == 0 {
				return cli.NotFound("question %s does not wait: it is answered, over, or of another session", whole)
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
	if err := c.gw.Answer(c.ctx, q.Session, a); err != nil {
		return err
	}
	return c.printDone(q.ID, "answered")
}

// answerArgs tells the session from the answer. A single argument is the answer,
// unless it means a session.
func (c *command) answerArgs(questions []adminapi.Question) (id, text string, err error) {
	first, second := c.Args().Get(0), c.Args().Get(1)
	switch {
	case c.NArg() == 2:
		if second == "" {
			return "", "", cli.Usage("sessions answer: the answer is empty; --decline if there is none")
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
	means := slices.ContainsFunc(sessions, func(s adminapi.Session) bool { return strings.HasPrefix(s.ID, first) || s.Label == first })
	switch {
	case means:
		id, err = c.findSession(first)
		return id, "", err
	case len(questions) == 0 && !c.IsSet("question"):
		return "", "", cli.NotFound("no question waits, and no session has the ID or label %q, nor an ID that begins so", first)
	}
	return "", first, nil
}

// findQuestion finds the question that is to be answered. One that does not wait any more
// is left to the gateway, which knows why.
func (c *command) findQuestion(id string, questions []adminapi.Question) (adminapi.Question, error) {
	if named := c.String("question"); named != "" {
		if at := slices.IndexFunc(questions, func(q adminapi.Question) bool { return q.ID == named }); at >= 0 {
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
	return adminapi.Question{}, cli.Usage("which question? give --question and one of: %s", strings.Join(ids, ", "))
}

// makeAnswer makes an answer of what the user gave, by the kind of the question.
func (c *command) makeAnswer(q adminapi.Question, text string) (adminapi.Answer, error) {
	a := adminapi.Answer{Question: q.ID}
	declines := c.Bool("decline") || text == adminapi.DecideDeny && q.Kind != adminapi.QuestionInput
	switch {
	case declines:
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
		return a, cli.Usage("%q is no answer to a permission: it takes %s", text, strings.Join(decisions, ", "))
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
	if c.out.JSON {
		return c.out.Document(list(questions))
	}
	if len(questions) == 0 {
		c.out.Notef("no question waits")
		return nil
	}
	for _, q := range questions {
		if err := c.out.Printf("%s", questionText(c.out, q, whole)); err != nil {
			return err
		}
	}
	return nil
}

// printQuestions tells on stderr what a session asks, until the function that it
// returns is called.
func (c *command) printQuestions(session string) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		told := map[string]bool{}
		for state, err := range c.gw.Watch(ctx, "questions") {
			var questions []adminapi.Question
			if err != nil || json.Unmarshal(state.Data, &questions) != nil {
				return // the turn goes on without
			}
			for _, q := range questions {
				if q.Session == session && !told[q.ID] {
					told[q.ID] = true
					c.out.Notef("%s", strings.TrimSuffix(questionText(c.out, q, false), "\n"))
				}
			}
		}
	})
	return func() { cancel(); telling.Wait() }
}

// A question that is longer than this, in bytes or lines, shows its beginning and its
// end until it is wanted whole.
const (
	questionBytes = 4000
	questionLines = 40
)

// questionText is a question as people read it, with how to answer it, and how to see
// it whole where it is cut.
func questionText(o *cli.Output, q adminapi.Question, whole bool) string {
	var b strings.Builder
	left := max(time.Until(q.ExpiresAt).Round(time.Second), 0)
	fmt.Fprintf(&b, "%s  %s of session %s, %s left\n", o.Paint(cli.Yellow, q.ID), q.Kind, q.Session, left)
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
		fmt.Fprintf(&b, "  %s\n", o.Paint(cli.Yellow, "all of it: tapctl sessions answer --question "+q.ID))
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
