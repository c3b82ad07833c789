package langserver

import (
	"fmt"
	"slices"

	"tapgw/internal/visible"
)

// EarlierTurn is a turn of [ConversationOptions].Earlier: the user's prompt and the model's answer.
// The server takes texts only, so tool calls have to be told in Answer.
type EarlierTurn struct {
	Prompt string `json:"request"`
	Answer string `json:"response,omitempty"`
}

// How many earlier turns fit. The server neither compacts them nor keeps their newest: if they are
// too long, it gives the model prompts without their answers. So they get half of the model's
// input, with three bytes for a token, which is less than texts have.
const (
	unknownInput  = 32_000 // tokens, if the server does not say
	bytesOfToken  = 3
	earlierShare  = 2
	leastOfAnswer = 200 // bytes: a shorter piece is of no use
)

// inputLimit returns how many tokens a model takes.
func inputLimit(m Model) int {
	switch {
	case m.Limits.Input > 0:
		return m.Limits.Input
	case m.Limits.Context > m.Limits.Output:
		return m.Limits.Context - m.Limits.Output
	}
	return unknownInput
}

// fitEarlier returns the newest turns that fit a model with an input of limit tokens, and how many
// it left out. The oldest of them says to the model that some are missing. If the newest turn alone
// does not fit, it is shortened.
func fitEarlier(all []EarlierTurn, limit int) (fit []EarlierTurn, out int) {
	room := limit / earlierShare * bytesOfToken
	from := len(all)
	for from > 0 && len(all[from-1].Prompt)+len(all[from-1].Answer) <= room {
		from--
		room -= len(all[from].Prompt) + len(all[from].Answer)
	}
	if from == len(all) && from > 0 {
		from--
		fit = []EarlierTurn{shortenTurn(all[from], room)}
	} else {
		fit = slices.Clone(all[from:])
	}
	if from > 0 {
		fit[0].Prompt = fmt.Sprintf(
			"(The first %d turns of this conversation are left out.)\n\n%s",
			from,
			fit[0].Prompt,
		)
	}
	return fit, from
}

// shortenTurn cuts the middle out of a turn's texts, so that they have about room bytes.
func shortenTurn(t EarlierTurn, room int) EarlierTurn {
	ends := func(text string, most int) string { return visible.Ends(text, most, len(text)) }
	t.Prompt = ends(t.Prompt, max(room/2, room-len(t.Answer)))
	t.Answer = ends(t.Answer, max(room-len(t.Prompt), leastOfAnswer))
	return t
}
