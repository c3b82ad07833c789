package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// How the broken provider answers calls.

// file writes a file and returns the result that names it.
func (l *brokenLink) file(id any) object {
	path := filepath.Join(l.persist, "report.txt")
	if l.is("a file outside") {
		path = filepath.Join(filepath.Dir(l.persist), "report.txt")
	}
	if err := os.WriteFile(path, []byte("report"), 0o600); err != nil {
		return object{"type": "tool.result", "id": id, "error": err.Error()}
	}
	return object{"type": "tool.result", "id": id,
		"file": object{"path": path, "mimeType": "text/plain"}}
}

// codes are all codes of results.
var codes = []string{"NOT_FOUND", "TIMEOUT", "CANCELLED", "DISCONNECTED", "UNAUTHORIZED",
	"INTERNAL"}

// result is the answer of a tool; nil sends no answer.
func (l *brokenLink) result(tool string, id any, args object) object {
	text, isText := args["text"].(string)
	answer := object{"type": "tool.result", "id": id, "data": text}
	switch {
	case tool != "echo" && l.is("silent about unknown tools"),
		tool == "echo" && !isText && l.is("silent about wrong arguments"),
		isText && l.is("never answers"):
		return nil
	case tool != "echo" && l.is("has every tool"):
		answer["data"] = "done"
	case tool != "echo" && l.is("a code of its own"):
		return object{"type": "tool.result", "id": id, "error": "no such tool",
			"errorCode": "NO_TOOL"}
	case tool != "echo":
		return object{"type": "tool.result", "id": id, "error": "no such tool",
			"errorCode": codes[0]}
	case !isText:
		return l.file(id)
	case l.is("data and an error"):
		answer["error"] = "and yet it failed"
	case l.is("a result without data"):
		delete(answer, "data")
	}
	return answer
}

// call runs a tool on a goroutine.
func (l *brokenLink) call(m object) {
	id, isText := m["id"].(string)
	tool, _ := m["tool"].(string)
	args, _ := m["args"].(object)
	if !isText {
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.mu.Lock()
	l.calls[id] = cancel
	l.running++
	busy := l.running > 5 && l.is("loses calls when it is busy")
	l.mu.Unlock()
	before, done := l.last, make(chan struct{})
	l.last = done
	l.wg.Go(func() {
		defer close(done)
		defer func() {
			l.mu.Lock()
			l.running--
			l.mu.Unlock()
			l.finish(id)
		}()
		if l.is("one call at once") {
			<-before
		}
		if busy {
			return
		}
		l.work(ctx, id, tool, args)
	})
}

// finish notes that a call has ended: its result goes out.
func (l *brokenLink) finish(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
	l.ended[id] = true
}

// work runs a tool and sends its answer.
func (l *brokenLink) work(ctx context.Context, id, tool string, args object) {
	switch l.fault {
	case "loses calls when it is busy":
		<-time.After(50 * time.Millisecond)
	case "silent about cancelled calls":
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return
		}
	}
	progress := object{"type": "tool.progress", "id": id, "message": "at work"}
	if tool == "slow" {
		<-ctx.Done()
		l.finish(id)
		cancelled := object{"type": "tool.result", "id": id, "error": "cancelled",
			"errorCode": "CANCELLED"}
		switch {
		case l.ctx.Err() != nil && l.is("answers on the next connection"):
			l.mu.Lock()
			l.late = append(l.late, cancelled)
			l.mu.Unlock()
		case l.is("forgets that it was cancelled"):
			l.send(object{"type": "tool.result", "id": id, "data": "stopped"})
		default:
			l.send(cancelled)
		}
		return
	}
	answer := l.result(tool, id, args)
	if answer == nil {
		return
	}
	if !l.is("progress of what has ended") {
		l.send(progress)
	}
	l.finish(id)
	l.send(answer)
	switch l.fault {
	case "answers twice":
		l.send(answer)
	case "answers what nobody asked":
		l.send(object{"type": "tool.result", "id": "made-up", "data": 1})
	case "progress of what has ended":
		l.send(progress)
	}
}

func (l *brokenLink) cancel(m object) {
	id, _ := m["id"].(string)
	l.mu.Lock()
	cancel, ended := l.calls[id], l.ended[id]
	if cancel != nil {
		cancel()
	}
	if l.is("cancels all") {
		for _, cancel := range l.calls {
			cancel()
		}
	}
	l.mu.Unlock()
	cancelled := object{"type": "tool.result", "id": id, "error": "cancelled",
		"errorCode": "CANCELLED"}
	if ended && l.is("answers a late cancel") || cancel == nil && !ended &&
		l.is("answers an unknown cancel") {
		l.send(cancelled)
	}
}

// question declines each question that it is told of.
func (l *brokenLink) question(m object) error {
	data, _ := m["data"].(object)
	answer := object{"type": "question.answer", "requestId": fmt.Sprint("answer ", data["id"]),
		"question": data["id"], "decision": "deny"}
	switch {
	case m["event"] == "question.ended" && l.is("answers what is over"):
		l.wg.Go(func() {
			select {
			case <-time.After(moment / 2): // a person may answer late
				l.send(answer)
			case <-l.ctx.Done():
			}
		})
	case m["event"] != "question.asked":
	case l.is("dies of questions"):
		return errors.New("a question")
	case l.is("a wrong answer") && data["kind"] == "permission":
		delete(answer, "decision")
		answer["text"] = "yes"
		l.send(answer)
	default:
		l.send(answer)
	}
	return nil
}
