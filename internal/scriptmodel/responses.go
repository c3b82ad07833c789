package scriptmodel

import (
	"context"
	"fmt"
	"net/http"
)

// responses renders a reply on the responses wire.
func responses(ctx context.Context, w http.ResponseWriter, r *Request, p Reply) error {
	id := fmt.Sprintf("resp_%d", r.N)
	items := outputItems(id, p)
	if !r.Stream {
		writeJSON(w, http.StatusOK, response(id, r.Model, "completed", items))
		return nil
	}

	s := responseStream{out: newEventWriter(w), ctx: ctx, reply: p}
	s.send("response.created", object{"response": response(id, r.Model, "in_progress", nil)})
	s.send("response.in_progress", object{"response": response(id, r.Model, "in_progress", nil)})
	for i, item := range items {
		switch item["type"] {
		case "reasoning":
			s.reasoning(i, item)
		case "message":
			s.message(i, item)
		default:
			s.call(i, item)
		}
	}
	s.send("response.completed", object{"response": response(id, r.Model, "completed", items)})
	return s.err
}

// outputItems returns the reply as finished items.
func outputItems(id string, p Reply) []object {
	var items []object
	if p.Reasoning != "" {
		items = append(items, object{
			"type": "reasoning", "id": "rs_" + id,
			"summary": []any{object{"type": "summary_text", "text": p.Reasoning}},
		})
	}
	if p.Text != "" || len(p.ToolCalls) == 0 {
		items = append(items, object{
			"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed",
			"content": []any{textPart(p.Text)},
		})
	}
	for _, c := range p.ToolCalls {
		if c.IsFreeform {
			items = append(items, object{
				"type": "custom_tool_call", "id": "ctc_" + c.ID, "call_id": c.ID,
				"name": c.Name, "input": c.Args, "status": "completed",
			})
			continue
		}
		items = append(items, object{
			"type": "function_call", "id": "fc_" + c.ID, "call_id": c.ID,
			"name": c.Name, "arguments": c.Args, "status": "completed",
		})
	}
	return items
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": []any{}}
}

func response(id, model, status string, items []object) object {
	if items == nil {
		items = []object{}
	}
	return object{
		"id": id, "object": "response", "created_at": 1, "status": status, "model": model,
		"output": items, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{},
		"metadata": object{}, "error": nil, "incomplete_details": nil, "instructions": nil,
		"temperature": 1, "top_p": 1,
		"usage": object{
			"input_tokens": 100, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": 10, "output_tokens_details": object{"reasoning_tokens": 0},
			"total_tokens": 110,
		},
	}
}

// responseStream numbers the events of a stream and keeps its first error.
type responseStream struct {
	out   *eventWriter
	ctx   context.Context
	reply Reply
	seq   int
	err   error
}

func (s *responseStream) send(typ string, v object) {
	if s.err != nil {
		return
	}
	v["type"] = typ
	v["sequence_number"] = s.seq
	s.seq++
	s.err = s.out.send(typ, v)
}

func (s *responseStream) deltas(text string, send func(delta string)) {
	if s.err != nil {
		return
	}
	err := s.reply.stream(s.ctx, text, func(delta string) error {
		send(delta)
		return s.err
	})
	if s.err == nil {
		s.err = err
	}
}

func (s *responseStream) reasoning(i int, item object) {
	at := func(v object) object {
		v["item_id"], v["output_index"], v["summary_index"] = item["id"], i, 0
		return v
	}
	text := s.reply.Reasoning
	s.send("response.output_item.added", object{"output_index": i, "item": object{
		"type": "reasoning", "id": item["id"], "summary": []any{},
	}})
	s.send("response.reasoning_summary_part.added",
		at(object{"part": object{"type": "summary_text", "text": ""}}))
	s.deltas(text, func(delta string) {
		s.send("response.reasoning_summary_text.delta", at(object{"delta": delta}))
	})
	s.send("response.reasoning_summary_text.done", at(object{"text": text}))
	s.send("response.reasoning_summary_part.done",
		at(object{"part": object{"type": "summary_text", "text": text}}))
	s.send("response.output_item.done", object{"output_index": i, "item": item})
}

func (s *responseStream) message(i int, item object) {
	at := func(v object) object {
		v["item_id"], v["output_index"], v["content_index"] = item["id"], i, 0
		return v
	}
	text := s.reply.Text
	s.send("response.output_item.added", object{"output_index": i, "item": object{
		"type": "message", "id": item["id"], "role": "assistant", "status": "in_progress",
		"content": []any{},
	}})
	s.send("response.content_part.added", at(object{"part": textPart("")}))
	s.deltas(text, func(delta string) {
		s.send("response.output_text.delta", at(object{"delta": delta, "logprobs": []any{}}))
	})
	s.send("response.output_text.done", at(object{"text": text, "logprobs": []any{}}))
	s.send("response.content_part.done", at(object{"part": textPart(text)}))
	s.send("response.output_item.done", object{"output_index": i, "item": item})
}

func (s *responseStream) call(i int, item object) {
	if item["type"] == "custom_tool_call" {
		s.freeformCall(i, item)
		return
	}
	at := object{"item_id": item["id"], "output_index": i, "delta": item["arguments"]}
	s.send("response.output_item.added", object{"output_index": i, "item": object{
		"type": "function_call", "id": item["id"], "call_id": item["call_id"],
		"name": item["name"], "arguments": "", "status": "in_progress",
	}})
	s.send("response.function_call_arguments.delta", at)
	s.send("response.function_call_arguments.done", object{
		"item_id": item["id"], "output_index": i, "arguments": item["arguments"],
		"name": item["name"],
	})
	s.send("response.output_item.done", object{"output_index": i, "item": item})
}

func (s *responseStream) freeformCall(i int, item object) {
	s.send("response.output_item.added", object{"output_index": i, "item": object{
		"type": item["type"], "id": item["id"], "call_id": item["call_id"], "name": item["name"],
		"input":  "",
		"status": "in_progress",
	}})
	s.send("response.custom_tool_call_input.delta", object{
		"item_id": item["id"], "output_index": i, "delta": item["input"],
	})
	s.send("response.custom_tool_call_input.done", object{
		"item_id": item["id"], "output_index": i, "input": item["input"],
	})
	s.send("response.output_item.done", object{"output_index": i, "item": item})
}
