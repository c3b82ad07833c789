package scriptmodel

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"tapgw/internal/chans"
)

// Reply is the model's answer: reasoning, then text, then tool calls. The zero value is an empty
// message with status 200. Delay, Gate and Pause let a test decide when it is sent; the end of the
// request ends each wait.
type Reply struct {
	Reasoning string
	Text      string // streamed word by word; with Status, the error's message
	ToolCalls []ToolCall
	Status    int // an HTTP status other than 200 makes the reply an error
	Header    http.Header
	Cut       bool // a streamed reply ends after the first of several words

	Delay time.Duration   // how long to wait before the first byte
	Gate  <-chan struct{} // the first byte waits until this is closed or sends; nil: no wait
	Pause <-chan struct{} // the same between the first word of a streamed reply and the rest
}

// waitToBegin waits until the reply may begin.
func (p Reply) waitToBegin(ctx context.Context) error {
	if p.Delay > 0 && chans.Sleep(ctx, p.Delay) != nil {
		return ctx.Err()
	}
	return waitGate(ctx, p.Gate)
}

// waitGate waits for a gate. A nil gate is open.
func waitGate(ctx context.Context, gate <-chan struct{}) error {
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// splitWords splits a text into the deltas in which it is streamed.
func splitWords(text string) []string { return strings.SplitAfter(text, " ") }

// errCut ends a reply that has Cut set.
var errCut = errors.New("the reply was cut off")

// stream sends the words of a text and pauses after the first.
func (p Reply) stream(ctx context.Context, text string, send func(delta string) error) error {
	if text == "" {
		return nil
	}
	for i, word := range splitWords(text) {
		if i == 1 {
			if err := waitGate(ctx, p.Pause); err != nil {
				return err
			}
			if p.Cut {
				return errCut
			}
		}
		if err := send(word); err != nil {
			return err
		}
	}
	if len(splitWords(text)) == 1 {
		return waitGate(ctx, p.Pause)
	}
	return nil
}
