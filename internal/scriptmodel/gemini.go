package scriptmodel

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// geminiStream ends the path of a request on the Gemini wire whose answer comes in pieces.
const geminiStream = ":streamGenerateContent"

// geminiRequest is a request on the Gemini wire. The path has the model's name.
type geminiRequest struct {
	System   geminiContent   `json:"systemInstruction"`
	Contents []geminiContent `json:"contents"`
	Tools    []struct {
		Functions []struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"parametersJsonSchema"`
			Parameters  json.RawMessage `json:"parameters"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

type geminiContent struct {
	Role  string `json:"role"`
	Parts []struct {
		Text string `json:"text"`
		Call *struct {
			ID   string          `json:"id"`
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"functionCall"`
		Result *struct {
			ID       string          `json:"id"`
			Response json.RawMessage `json:"response"`
		} `json:"functionResponse"`
	} `json:"parts"`
}

// readGemini reads a request of the Gemini wire.
func (r *Request) readGemini() error {
	var in geminiRequest
	if err := json.Unmarshal(r.Body, &in); err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	_, model, _ := strings.Cut(r.Path, "/models/")
	r.Model, r.Stream = strings.Split(model, ":")[0], strings.HasSuffix(r.Path, geminiStream)
	for _, c := range append([]geminiContent{in.System}, in.Contents...) {
		r.Messages = append(r.Messages, c.messages()...)
	}
	for _, t := range in.Tools {
		for _, f := range t.Functions {
			schema := f.Schema
			if schema == nil {
				schema = f.Parameters
			}
			r.Tools = append(r.Tools, Tool{Name: f.Name, Description: f.Description,
				Parameters: schema})
		}
	}
	return nil
}

// messages converts a content. On this wire the user's content has the tools' results; they become
// messages of their own. The system's content has no role, or another one.
func (c geminiContent) messages() []Message {
	role := map[string]string{"user": "user", "model": "assistant"}[c.Role]
	said := Message{Role: cmp.Or(role, "system")}
	var results []Message
	for _, p := range c.Parts {
		said.Text += p.Text
		if p.Call != nil {
			said.ToolCalls = append(
				said.ToolCalls,
				ToolCall{ID: p.Call.ID, Name: p.Call.Name, Args: string(p.Call.Args)},
			)
		}
		if p.Result != nil {
			var response struct{ Output string }
			_ = json.Unmarshal(p.Result.Response, &response)
			text := cmp.Or(response.Output, string(p.Result.Response))
			results = append(results, Message{Role: "tool", Text: text, ToolCallID: p.Result.ID})
		}
	}
	if said.Text != "" || len(said.ToolCalls) > 0 {
		results = append(results, said)
	}
	return results
}

// gemini renders a reply on the Gemini wire.
func gemini(ctx context.Context, w http.ResponseWriter, r *Request, p Reply) error {
	answer := func(finish any, parts ...any) object {
		content := object{"role": "model", "parts": parts}
		return object{
			"candidates":   []any{object{"index": 0, "content": content, "finishReason": finish}},
			"modelVersion": r.Model,
			"usageMetadata": object{
				"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110,
			},
		}
	}
	var calls []any
	for _, c := range p.ToolCalls {
		calls = append(
			calls,
			object{"functionCall": object{"id": c.ID, "name": c.Name,
				"args": json.RawMessage(c.Args)}},
		)
	}
	if !r.Stream {
		parts := calls
		if p.Text != "" {
			parts = append([]any{object{"text": p.Text}}, calls...)
		}
		writeJSON(w, http.StatusOK, answer("STOP", parts...))
		return nil
	}
	out := newEventWriter(w)
	err := p.stream(ctx, p.Text, func(delta string) error {
		return out.send("", answer(nil, object{"text": delta}))
	})
	if err != nil {
		return err
	}
	if calls == nil {
		calls = []any{object{"text": ""}}
	}
	return out.send("", answer("STOP", calls...))
}
