package scriptmodel

import (
	"context"
	"fmt"
	"net/http"
)

// completions renders a reply as a chat completion.
func completions(ctx context.Context, w http.ResponseWriter, r *Request, p Reply) error {
	head := object{
		"id":      fmt.Sprintf("chatcmpl-%d", r.N),
		"created": int64(1),
		"model":   r.Model,
	}
	usage := object{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
	finish := "stop"
	var calls []any
	for i, c := range p.ToolCalls {
		finish = "tool_calls"
		if c.IsFreeform {
			calls = append(calls, object{
				"index": i, "id": c.ID, "type": "custom",
				"custom": object{"name": c.Name, "input": c.Args},
			})
			continue
		}
		calls = append(calls, object{
			"index": i, "id": c.ID, "type": "function",
			"function": object{"name": c.Name, "arguments": c.Args},
		})
	}

	if !r.Stream {
		message := object{"role": "assistant", "content": p.Text}
		if p.Reasoning != "" {
			message["reasoning_content"] = p.Reasoning
		}
		if calls != nil {
			message["tool_calls"] = calls
		}
		head["object"] = "chat.completion"
		head["choices"] = []any{object{"index": 0, "message": message, "finish_reason": finish}}
		head["usage"] = usage
		writeJSON(w, http.StatusOK, head)
		return nil
	}

	out := newEventWriter(w)
	head["object"] = "chat.completion.chunk"
	send := func(delta object, finish any) error {
		head["choices"] = []any{object{"index": 0, "delta": delta, "finish_reason": finish}}
		return out.send("", head)
	}
	if err := send(object{"role": "assistant", "content": ""}, nil); err != nil {
		return err
	}
	err := p.stream(ctx, p.Reasoning, func(delta string) error {
		return send(object{"reasoning_content": delta}, nil)
	})
	if err != nil {
		return err
	}
	sendText := func(delta string) error { return send(object{"content": delta}, nil) }
	if err := p.stream(ctx, p.Text, sendText); err != nil {
		return err
	}
	if calls != nil {
		if err := send(object{"tool_calls": calls}, nil); err != nil {
			return err
		}
	}
	head["usage"] = usage
	if err := send(object{}, finish); err != nil {
		return err
	}
	return out.write("data: [DONE]\n\n")
}
