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

	"tapgw/internal/cli"
	"tapgw/internal/client"
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
		BashComplete: completing(func(k *call, flag string) {
			switch {
			case flag == "question":
				k.offerQuestions()
			case flag == "" && k.NArg() == 0:
				k.offerSessions()
			case flag == "" && k.NArg() == 1:
				for _, d := range decisions {
					cli.Candidate(k.Context, d, "")
				}
			}
		}),
		Action: short(2, answerQuestion),
	}
}

var decisions = []string{client.DecideOnce, client.DecideSession, client.DecideDeny}

func (k *call) offerQuestions() {
	questions, err := k.gw.Questions(k.ctx)
	if err != nil {
		return
	}
	for _, q := range questions {
		cli.Candidate(k.Context, q.ID, cli.Shorten(cli.Clean(q.Message), 60))
	}
}

func answerQuestion(k *call) error {
	questions, err := k.gw.Questions(k.ctx)
	if err != nil {
		return err
	}
	id, text, err := k.answerArgs(questions)
	if err != nil {
		return err
	}
	if id != "" {
		questions = slices.DeleteFunc(questions, func(q client.Question) bool { return q.Session != id })
	}
	whole := k.String("question")
	if text == "" && !k.IsSet("content") && !k.Bool("decline") {
		if k.IsSet("reason") {
			return cli.Usage("flag --reason: goes with deny or --decline")
		}
		if whole != "" {
			questions = slices.DeleteFunc(questions, func(q client.Question) bool { return q.ID != whole })
			if len(questions) == 0 {
				return cli.NotFound("question %s does not wait: it is answered, over, or of another session", whole)
			}
		}
		return k.listQuestions(questions, whole != "")
	}
	q, err := k.meant(id, questions)
	if err != nil {
		return err
	}
	a, err := k.answerTo(q, text)
	if err != nil {
		return err
	}
	if err := k.gw.Answer(k.ctx, q.Session, a); err != nil {
		return err
	}
	return k.done(q.ID, "answered")
}

// answerArgs tells the session from the answer. A single argument is the answer,
// unless it means a session.
func (k *call) answerArgs(questions []client.Question) (id, text string, err error) {
	first, second := k.Args().Get(0), k.Args().Get(1)
	switch {
	case k.NArg() == 2:
		if second == "" {
			return "", "", cli.Usage("sessions answer: the answer is empty; --decline if there is none")
		}
		id, err = k.session(first)
		return id, second, err
	case k.NArg() == 0 || first == "":
		return "", "", nil
	case slices.Contains(decisions, first):
		return "", first, nil
	}
	sessions, err := k.gw.Sessions(k.ctx)
	if err != nil {
		return "", "", err
	}
	means := slices.ContainsFunc(sessions, func(s client.Session) bool { return strings.HasPrefix(s.ID, first) || s.Label == first })
	switch {
	case means:
		id, err = k.session(first)
		return id, "", err
	case len(questions) == 0 && !k.IsSet("question"):
		return "", "", cli.NotFound("no question waits, and no session has the ID or label %q, nor an ID that begins so", first)
	}
	return "", first, nil
}

// meant finds the question that is to be answered. One that does not wait any more
// is left to the gateway, which knows why.
func (k *call) meant(id string, questions []client.Question) (client.Question, error) {
	if named := k.String("question"); named != "" {
		if at := slices.IndexFunc(questions, func(q client.Question) bool { return q.ID == named }); at >= 0 {
			return questions[at], nil
		}
		id, err := k.session(id)
		return client.Question{ID: named, Session: id}, err
	}
	switch len(questions) {
	case 0:
		return client.Question{}, cli.NotFound("no question waits")
	case 1:
		return questions[0], nil
	}
	ids := make([]string, len(questions))
	for i, q := range questions {
		ids[i] = q.ID
	}
	return client.Question{}, cli.Usage("which question? give --question and one of: %s", strings.Join(ids, ", "))
}

// answerTo makes an answer of what the user gave, by the kind of the question.
func (k *call) answerTo(q client.Question, text string) (client.Answer, error) {
	a := client.Answer{Question: q.ID}
	declines := k.Bool("decline") || text == client.DecideDeny && q.Kind != client.QuestionInput
	switch {
	case declines:
		a.Decision, a.Text = client.DecideDeny, k.String("reason")
	case k.IsSet("reason"):
		return a, cli.Usage("flag --reason: goes with deny or --decline")
	case k.IsSet("content"):
		content, err := cli.Text(k.Context, k.String("content"))
		if err != nil {
			return a, err
		}
		if !json.Valid([]byte(content)) {
			return a, cli.Usage("flag --content: is not JSON")
		}
		a.Content = json.RawMessage(content)
	case q.Kind == client.QuestionPermission && !slices.Contains(decisions, text):
		return a, cli.Usage("%q is no answer to a permission: it takes %s", text, strings.Join(decisions, ", "))
	case q.Kind == client.QuestionForm:
		return a, cli.Usage("a form is answered with --content JSON, or deny")
	case q.Kind == client.QuestionInput:
		a.Text = text
	default:
		a.Decision = text
	}
	return a, nil
}

func (k *call) listQuestions(questions []client.Question, whole bool) error {
	if k.out.JSON {
		return k.out.Document(list(questions))
	}
	if len(questions) == 0 {
		k.out.Notef("no question waits")
		return nil
	}
	for _, q := range questions {
		if err := k.out.Printf("%s", questionText(k.out, q, whole)); err != nil {
			return err
		}
	}
	return nil
}

// tellQuestions tells on stderr what a session asks, until the function that it
// returns is called.
func (k *call) tellQuestions(session string) (stop func()) {
	ctx, cancel := context.WithCancel(k.ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		told := map[string]bool{}
		for state, err := range k.gw.Watch(ctx, "questions") {
			var questions []client.Question
			if err != nil || json.Unmarshal(state.Data, &questions) != nil {
				return // the turn goes on without
			}
			for _, q := range questions {
				if q.Session == session && !told[q.ID] {
					told[q.ID] = true
					k.out.Notef("%s", strings.TrimSuffix(questionText(k.out, q, false), "\n"))
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
func questionText(o *cli.Output, q client.Question, whole bool) string {
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
	case client.QuestionPermission:
		how = "once|session|deny"
	case client.QuestionForm:
		indented("schema: " + string(q.Schema))
		how = "--content JSON"
	default:
		for _, c := range q.Choices {
			indented("- " + c)
		}
	}
	fmt.Fprintf(&b, "  tapctl sessions answer %s %s --question %s\n", q.Session, how, q.ID)
	return b.String()
}
