package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tapgw/configs"
	"tapgw/internal/agent/consent"
	"tapgw/internal/langserver"
)

// worker is a conversation of its own on the same server: it has a task, a role, and its own session of the gateway.
type worker struct {
	*langserver.Conversation
	name    string
	role    configs.Role
	session *gatewaySession // nil: no gateway
}

// hire begins a worker's conversation. The caller ends it with [conversation.dismiss].
func (v *conversation) hire(ctx context.Context, name string, role configs.Role) (*worker, error) {
	w := &worker{name: name, role: role}
	id, model := rand.Text(), role.Model
	var err error
	if w.session, err = v.join(ctx, id, name); err != nil {
		return nil, err
	}
	if model == "" {
		model = v.cmd.model()
	}
	w.Conversation = v.server.NewConversation(langserver.ConversationOptions{ID: id, Model: model,
		Effort: v.cmd.effort()})
	v.addWorker(w)
	if w.session != nil {
		v.updateTools(ctx) // its providers may have tools that no other session has
	}
	return w, nil
}

// addWorker makes calls of a conversation be decided by the worker's role and session.
func (v *conversation) addWorker(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.workers == nil {
		v.workers = map[string]*worker{}
	}
	v.workers[w.ID()] = w
}

// dismiss ends a worker's conversation.
func (v *conversation) dismiss(ctx context.Context, w *worker) {
	_ = w.Close(ctx)
	v.forget(w)
	if w.session != nil {
		w.session.end(ctx)
	}
}

// forget ends what addWorker began.
func (v *conversation) forget(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.workers, w.ID())
}

// workerOf returns the worker that a conversation is, or nil.
func (v *conversation) workerOf(id string) *worker {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.workers[id]
}

// named returns a context in which questions to a person name the worker that a conversation is.
func (v *conversation) named(ctx context.Context, id string) context.Context {
	if w := v.workerOf(id); w != nil {
		return consent.WithWorker(ctx, w.name)
	}
	return ctx
}

// sessionOf returns the session of a conversation with this server, or nil.
func (v *conversation) sessionOf(id string) *gatewaySession {
	if w := v.workerOf(id); w != nil {
		return w.session
	}
	return v.session
}

// sessions returns the sessions of all conversations with this server, ours first.
func (v *conversation) sessions() (list []*gatewaySession) {
	if v.session != nil {
		list = append(list, v.session)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(v.workers)) {
		if s := v.workers[id].session; s != nil && s != v.session {
			list = append(list, s)
		}
	}
	return list
}

// denies returns why the role of a conversation has no such tool; "" means that it has it. The server offers all tools
// to all conversations, so this is the place to refuse.
func (v *conversation) denies(id, tool string) string {
	w := v.workerOf(id)
	if w == nil || len(w.role.Tools) == 0 || slices.Contains(w.role.Tools, tool) {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range v.own {
		if t.Name == tool && slices.Contains(w.role.Tools, t.Kind.String()) {
			return ""
		}
	}
	return fmt.Sprintf("%s is not a tool of this role, which has: %s", tool, strings.Join(w.role.Tools, ", "))
}
