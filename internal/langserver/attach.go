package langserver

import (
	"context"
	"encoding/base64"
	"errors"
)

// Image is a picture for a model that sees images: a whole file, and its type, such as image/png.
type Image struct {
	MIME string
	Data []byte
}

// Attach adds images to the prompt of the next turn. It waits for the turn that runs, and fails
// only if ctx ends before that. The next turn fails if its model does not see images.
func (v *Conversation) Attach(ctx context.Context, images []Image) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.turn.Unlock()
	v.images = append(v.images, images...)
	return nil
}

// promptParts returns a prompt in the server's form: a text, or a list of parts if there are
// images.
func promptParts(prompt string, images []Image) any {
	if len(images) == 0 {
		return prompt
	}
	parts := []any{object{"type": "text", "text": prompt}}
	for _, i := range images {
		url := "data:" + i.MIME + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
		parts = append(parts, object{"type": "image_url", "imageUrl": object{"url": url}})
	}
	return parts
}

// ErrNothingToCompact is the error of [Conversation.Compact] before the first turn.
var ErrNothingToCompact = errors.New("the conversation has no turn yet")

// Compact lets the model sum the conversation up, and go on from the summary. It waits for the turn
// that runs. The result says how full the context is afterwards, and how many turns became the
// summary.
func (v *Conversation) Compact(ctx context.Context) (after Window, turns int, err error) {
	if err := v.begin(ctx); err != nil {
		return Window{}, 0, err
	}
	defer v.turn.Unlock()
	if !v.atServer {
		return Window{}, 0, ErrNothingToCompact
	}
	var answer struct {
		Success     bool
		TurnCount   int
		ContextInfo Window
		Error       text
	}
	if err := v.client.call(ctx, "conversation/compress", object{"conversationId": v.id},
		&answer); err != nil {
		return Window{}, 0, err
	}
	if !answer.Success {
		return Window{}, 0,
			&TurnError{Message: "the language server did not compact the conversation: " +
				string(answer.Error)}
	}
	return answer.ContextInfo, answer.TurnCount, nil
}
