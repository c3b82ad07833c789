package langserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Model is a model that the signed-in user may choose for turns. ID is what requests name, and Name is for people.
// Default marks the server's choice for chats.
type Model struct {
	ID       string   `json:"id"`
	Name     string   `json:"modelName"`
	Family   string   `json:"modelFamily"`
	Vendor   string   `json:"vendor"`
	Preview  bool     `json:"preview"`
	Default  bool     `json:"isChatDefault"`
	Fallback bool     `json:"isChatFallback"`
	Scopes   []string `json:"scopes"` // its uses, such as "agent-panel"
	Limits   struct {
		Context int `json:"maxContextWindowTokens"` // tokens; 0: unknown
		Input   int `json:"maxInputTokens"`         // of Context
		Output  int `json:"maxOutputTokens"`
	} `json:"-"`
}

// UnknownModelError is the error of a turn whose model the server does not list. ID is the model that was named; Known
// has the ids that exist, in the server's order.
type UnknownModelError struct {
	ID    string
	Known []string
}

// Error implements error. It names the unknown id and lists the known ones, on one line.
func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("there is no model %q: there are %s", e.ID, strings.Join(e.Known, ", "))
}

// Models asks the server for the models that the user may use, in the server's order. It also refreshes the list by
// which turns check their model. No user signed in is [ErrNotSignedIn].
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var list []struct {
		Model
		Capabilities struct {
			Limits struct{ MaxContextWindowTokens, MaxInputTokens, MaxOutputTokens int }
		}
	}
	if err := c.call(ctx, "copilot/models", nil, &list); err != nil {
		return nil, err
	}
	models := make([]Model, len(list))
	for i, m := range list {
		models[i] = m.Model
		limits := m.Capabilities.Limits
		models[i].Limits.Context, models[i].Limits.Output = limits.MaxContextWindowTokens, limits.MaxOutputTokens
		models[i].Limits.Input = limits.MaxInputTokens
	}
	c.mu.Lock()
	c.models = models
	c.mu.Unlock()
	return models, nil
}

// DefaultModel returns the id of the model that is the default of chats, else of the first model. It returns false if
// the list is empty.
func DefaultModel(models []Model) (string, bool) {
	for _, m := range models {
		if m.Default {
			return m.ID, true
		}
	}
	if len(models) == 0 {
		return "", false
	}
	return models[0].ID, true
}

// model returns the model of a turn: id, or the default for "". It asks the server again only if the known list
// lacks id.
func (c *Client) model(ctx context.Context, id string) (string, error) {
	has := func(models []Model) bool {
		return slices.ContainsFunc(models, func(m Model) bool { return m.ID == id })
	}
	c.mu.Lock()
	models := c.models
	c.mu.Unlock()
	if len(models) == 0 || id != "" && !has(models) {
		var err error
		if models, err = c.Models(ctx); err != nil {
			return "", err
		}
	}
	if id == "" {
		found, ok := DefaultModel(models)
		if !ok {
			return "", fmt.Errorf("the language server offers no model")
		}
		return found, nil
	}
	if !has(models) {
		e := &UnknownModelError{ID: id}
		for _, m := range models {
			e.Known = append(e.Known, m.ID)
		}
		return "", e
	}
	return id, nil
}
