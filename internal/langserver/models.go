package langserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Model is a model that the signed-in user may choose for turns. Requests name its ID, and Name is
// for people. Default marks the server's choice for chats.
type Model struct {
	ID       string   `json:"id"`
	Name     string   `json:"modelName"`
	Family   string   `json:"modelFamily"`
	Vendor   string   `json:"vendor"`
	Preview  bool     `json:"preview"`
	Default  bool     `json:"isChatDefault"`
	Fallback bool     `json:"isChatFallback"`
	Scopes   []string `json:"scopes"` // its uses, such as "agent-panel"
	// Efforts are the reasoning efforts that turns may name. If it is nil, the model takes no
	// effort, or see EffortsUnknown.
	Efforts []string `json:"-"`
	// EffortsUnknown says that the server does not tell which efforts the model takes.
	EffortsUnknown bool `json:"-"`
	Vision         bool `json:"-"` // it sees images, see [Conversation.Attach]
	Limits         struct {
		Context int `json:"maxContextWindowTokens"` // tokens; 0: unknown
		Input   int `json:"maxInputTokens"`         // of Context
		Output  int `json:"maxOutputTokens"`
	} `json:"-"`
}

// UnknownModelError is the error of a turn whose model the server does not list. ID is the model
// that was named; Known has the ids that exist, in the server's order.
type UnknownModelError struct {
	ID    string
	Known []string
}

// Error implements error. It names the unknown id and lists the known ones, on one line.
func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("there is no model %q: there are %s", e.ID, strings.Join(e.Known, ", "))
}

// EffortError is the error of a turn that asks its model for a reasoning effort that the model does
// not take. Known has those that it takes, from low to high; it may be nil.
type EffortError struct {
	Model  string // its id
	Effort string
	Known  []string
}

// Error implements error. It names the model, the effort and the model's efforts, on one line.
func (e *EffortError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("the model %s takes no reasoning effort", e.Model)
	}
	return fmt.Sprintf("the model %s takes no reasoning effort %q: there are %s", e.Model, e.Effort,
		strings.Join(e.Known, ", "))
}

// Models asks the server for the models that the user may use, in the server's order. It also
// refreshes the list by which turns check their model. No user signed in is [ErrNotSignedIn].
func (c *Client) Models(ctx context.Context) ([]Model, error) {
	var list []struct {
		Model
		Capabilities struct {
			Limits   struct{ MaxContextWindowTokens, MaxInputTokens, MaxOutputTokens int }
			Supports struct {
				Vision           bool
				ReasoningEfforts []string
				// also false for one effort only; nil: an older server
				SupportsReasoningEffortLevel *bool
			}
		}
	}
	if err := c.call(ctx, "copilot/models", nil, &list); err != nil {
		return nil, err
	}
	models := make([]Model, len(list))
	for i, m := range list {
		models[i] = m.Model
		limits := m.Capabilities.Limits
		models[i].Limits.Context, models[i].Limits.Output = limits.MaxContextWindowTokens,
			limits.MaxOutputTokens
		models[i].Limits.Input = limits.MaxInputTokens
		models[i].Vision = m.Capabilities.Supports.Vision
		switch can := m.Capabilities.Supports.SupportsReasoningEffortLevel; {
		case can == nil:
			models[i].EffortsUnknown = true
		case *can:
			models[i].Efforts = m.Capabilities.Supports.ReasoningEfforts
		}
	}
	c.mu.Lock()
	c.models = models
	c.mu.Unlock()
	return models, nil
}

// DefaultModel returns the id of the model that is the default of chats, else of the first model.
// It returns false if the list is empty.
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

// model returns the model of a turn: the one with the id, or the default for "". It asks the server
// again only if the known list lacks the id.
func (c *Client) model(ctx context.Context, id string) (Model, error) {
	c.mu.Lock()
	models := c.models
	c.mu.Unlock()
	if m, ok := findModel(models, id); ok {
		return m, nil
	}
	models, err := c.Models(ctx)
	if err != nil {
		return Model{}, err
	}
	if m, ok := findModel(models, id); ok {
		return m, nil
	}
	if id == "" {
		return Model{}, fmt.Errorf("the language server offers no model")
	}
	e := &UnknownModelError{ID: id}
	for _, m := range models {
		e.Known = append(e.Known, m.ID)
	}
	return Model{}, e
}

// findModel returns the model of an id, or the default for "".
func findModel(models []Model, id string) (Model, bool) {
	if id == "" {
		id, _ = DefaultModel(models)
	}
	i := slices.IndexFunc(models, func(m Model) bool { return m.ID == id })
	if i < 0 {
		return Model{}, false
	}
	return models[i], true
}

// checkEffort returns an [EffortError] if the model does not take a reasoning effort. It accepts
// "".
func (m Model) checkEffort(effort string) error {
	if effort == "" || m.EffortsUnknown || slices.Contains(m.Efforts, effort) {
		return nil
	}
	return &EffortError{Model: m.ID, Effort: effort, Known: m.Efforts}
}
