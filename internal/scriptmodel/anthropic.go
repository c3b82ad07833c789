package scriptmodel

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// messagesRequest is a request on the Anthropic wire: the conversation in blocks, the system
// message beside it.
type messagesRequest struct {
	Model    string          `json:"model"`
	Stream   bool            `json:"stream"`
	System   json.RawMessage `json:"system"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"input_schema"`
	} `json:"tools"`
}

// messageBlock is a part of a message's content.
type messageBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

// readMessages reads a request of the Anthropic wire.
func (r *Request) readMessages() error {
	var in messagesRequest
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	r.Model, r.Stream = in.Model, in.Stream
	if text := contentText(in.System); text != "" {
		r.Messages = append(r.Messages, Message{Role: "system", Text: text})
	}
	for _, m := range in.Messages {
		r.Messages = append(r.Messages, blockMessages(m.Role, m.Content)...)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, Tool{Name: t.Name, Description: t.Description,
			Parameters: t.InputSchema})
	}
	return nil
}

// blockMessages converts a message with blocks. On this wire the user's message contains the tools'
// results; they become messages of their own.
func blockMessages(role string, content json.RawMessage) []Message {
	var blocks []messageBlock
	if json.Unmarshal(content, &blocks) != nil {
		return []Message{{Role: role, Text: contentText(content)}}
	}
	var results []Message
	said := Message{Role: role}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			said.Text += b.Text
		case "tool_use":
			said.ToolCalls = append(said.ToolCalls,
				ToolCall{ID: b.ID, Name: b.Name, Args: string(b.Input)})
		case "tool_result":
			results = append(results, Message{Role: "tool", Text: contentText(b.Content),
				ToolCallID: b.ToolUseID})
		}
	}
	if said.Text != "" || len(said.ToolCalls) > 0 || len(results) == 0 {
		results = append(results, said)
	}
	return results
}

// messages renders a reply on the Anthropic wire.
func messages(ctx context.Context, w http.ResponseWriter, r *Request, p Reply) error {
	stop := "end_turn"
	if len(p.ToolCalls) > 0 {
		stop = "tool_use"
	}
	message := object{
		"id": fmt.Sprintf("msg_%d", r.N), "type": "message", "role": "assistant", "model": r.Model,
		"content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 100, "output_tokens": 1},
	}
	if !r.Stream {
		content := []any{object{"type": "text", "text": p.Text}}
		for _, c := range p.ToolCalls {
			content = append(
				content, object{"type": "tool_use", "id": c.ID, "name": c.Name,
					"input": json.RawMessage(c.Args)},
			)
		}
		message["content"], message["stop_reason"], message["usage"] = content, stop, object{
			"input_tokens": 100, "output_tokens": 10,
		}
		writeJSON(w, http.StatusOK, message)
		return nil
	}
	return streamMessage(ctx, w, p, message, stop)
}

// streamMessage sends the reply as events: the empty message, its blocks in pieces, and the
// reason for its end.
func streamMessage(
	ctx context.Context, w http.ResponseWriter, p Reply, message object, stop string,
) error {
	out := newEventWriter(w)
	send := func(event object) error { return out.send(event["type"].(string), event) }
	if err := send(object{"type": "message_start", "message": message}); err != nil {
		return err
	}
	index := 0
	block := func(start object, deltas func(send func(delta object) error) error) error {
		if err := send(object{"type": "content_block_start", "index": index,
			"content_block": start}); err != nil {
			return err
		}
		err := deltas(func(delta object) error {
			return send(object{"type": "content_block_delta", "index": index, "delta": delta})
		})
		if err != nil {
			return err
		}
		index++
		return send(object{"type": "content_block_stop", "index": index - 1})
	}
	if p.Text != "" {
		err := block(object{"type": "text", "text": ""}, func(send func(object) error) error {
			return p.stream(ctx, p.Text, func(delta string) error {
				return send(object{"type": "text_delta", "text": delta})
			})
		})
		if err != nil {
			return err
		}
	}
	for _, c := range p.ToolCalls {
		err := block(object{"type": "tool_use", "id": c.ID, "name": c.Name, "input": object{}},
			func(send func(object) error) error {
				return send(object{"type": "input_json_delta", "partial_json": c.Args})
			})
		if err != nil {
			return err
		}
	}
	delta := object{"stop_reason": stop, "stop_sequence": nil}
	usage := object{"output_tokens": 10}
	if err := send(object{"type": "message_delta", "delta": delta, "usage": usage}); err != nil {
		return err
	}
	return send(object{"type": "message_stop"})
}
