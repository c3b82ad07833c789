package sources

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// This file takes the HTTP requests of webhooks and makes events of them.

type hookAnswer struct {
	status  int
	message string
}

// maxHooksWaiting is how many events of a webhook may wait to be pushed. It is so small that the
// outbox never drops one.
const maxHooksWaiting = 50

// HookTaken is the line for the sender of a request that made an event.
const HookTaken = "taken"

const askAgain = reasonNoSession + "; send it again later"

// Hook takes a request for the webhooks of a name, which the provider files in named are, if there
// are any. It returns the answer's HTTP status and a line for the sender. A request without a right
// secret always gets 401 and the same line, also for an unknown name. Sending it again helps with
// 503 and 429.
func (set *Set) Hook(
	ctx context.Context, named []configs.Provider, h http.Header, body []byte,
) (int, string) {
	p, seen := findHook(named, h, body, time.Now())
	switch {
	case p == nil:
		return http.StatusUnauthorized,
			"the signature or the token is wrong, or there is no such webhook"
	case seen.fault != "":
		return http.StatusBadRequest, seen.fault
	case h.Get("X-GitHub-Event") == "ping":
		return http.StatusOK, "pong"
	}
	event, err := hookEvent(h, body)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	best := hookAnswer{http.StatusServiceUnavailable, askAgain}
	targets := set.ofFile(p.File)
	if len(targets) == 0 {
		return best.status, best.message
	}
	taken := set.takenBy(targets[0].o.Taken)
	if taken.turn.Lock(ctx) != nil {
		return best.status, "the gateway is busy; send it again"
	}
	defer taken.turn.Unlock()
	if err := taken.load(); err != nil && seen.key != "" {
		for _, s := range targets {
			s.forgot(err)
		}
		return http.StatusServiceUnavailable,
			"the gateway can't tell whether it was taken before; send it again later"
	}
	if taken.has(seen.key) {
		targets[0].o.Line(fromGateway, "a request came again and makes no second event")
		return http.StatusOK, "it was taken before"
	}
	for _, s := range targets {
		if a := s.hand(ctx, event); a.status == http.StatusAccepted ||
			best.status == http.StatusServiceUnavailable {
			best = a
		}
	}
	if best.status == http.StatusAccepted && seen.key != "" {
		if err := taken.add(seen.key); err != nil {
			targets[0].o.Line(fromGateway, fmt.Sprintf("that it took a request can't be kept: %v",
				err))
		}
	}
	return best.status, best.message
}

// forgot says that requests are refused, because they may have been taken before.
func (s *source) forgot(err error) {
	s.do(func() {
		s.isUnkept = true // the next request that is taken ends the fault
		s.o.Faults(
			[]string{fmt.Sprintf(
				"which requests it has taken before is not known, so it takes none: %v; "+
					"without that file, requests of before could come again", err)})
	})
}

// ofFile returns the webhooks of a file that run.
func (set *Set) ofFile(file string) (found []*source) {
	set.mu.Lock()
	defer set.mu.Unlock()
	for s := range set.list {
		if s.config.Webhook && s.o.Provider.File == file {
			found = append(found, s)
		}
	}
	return found
}

// takenBy returns the requests taken by the webhooks that share a file.
func (set *Set) takenBy(file string) *taken {
	set.mu.Lock()
	defer set.mu.Unlock()
	t := set.taken[file]
	if t == nil {
		t = &taken{file: file, turn: chans.NewLock()}
		if set.taken == nil {
			set.taken = map[string]*taken{}
		}
		set.taken[file] = t
	}
	return t
}

// hand gives the source an event and waits for its answer.
func (s *source) hand(ctx context.Context, event origin) hookAnswer {
	answer := make(chan hookAnswer, 1)
	// isDecided is set by the first of two: the source takes the request, or this function gives up
	// and the sender sends it again.
	var isDecided atomic.Bool
	s.do(func() {
		if isDecided.CompareAndSwap(false, true) {
			answer <- s.take(event, time.Now().Round(0))
			s.showHook()
		}
	})
	ends := hookAnswer{http.StatusServiceUnavailable,
		"the gateway changes what it serves; send it again"}
	select {
	case a := <-answer:
		return a
	case <-s.gone:
	case <-ctx.Done():
	}
	if isDecided.CompareAndSwap(false, true) {
		return ends
	}
	return <-answer
}

// take makes an event of a request, and pushes it if it may.
func (s *source) take(event origin, now time.Time) hookAnswer {
	text, level := s.event(event)
	switch {
	case level == protocol.OutcomeDrop:
		s.o.Line(fromGateway, "a request made no event: the filter drops it, or its text is empty")
		return hookAnswer{http.StatusAccepted, "dropped"}
	case !s.binding.isBound || level != protocol.LevelKeep && !s.hasSession():
		return hookAnswer{http.StatusServiceUnavailable, askAgain}
	case len(s.outbox.waiting) >= maxHooksWaiting:
		return hookAnswer{http.StatusTooManyRequests,
			"events come faster than sessions take them; send it again later"}
	}
	s.startSpan(event.traceparent)
	s.outbox.add(push{event: text, level: level, traceparent: s.span.Traceparent})
	s.outbox.flush(s, now)
	s.endSpan(now, nil)
	s.progress.Runs++
	s.progress.LastRunAt = now
	s.save()
	return hookAnswer{http.StatusAccepted, HookTaken}
}

// showHook notes why a webhook takes nothing, if so.
func (s *source) showHook() {
	_, missing := hookSecret(s.config.SecretEnv)
	switch {
	case missing != "":
		s.show(missing, time.Time{})
	case !s.hasSession():
		s.show(reasonNoSession, time.Time{})
	default:
		s.show("", time.Time{})
	}
}

// hookEvent is the event of a request. {event} is GitHub's word for it, {body} the whole body; in
// JSON, any other name is a path.
func hookEvent(h http.Header, body []byte) (origin, error) {
	mediaType, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	if mediaType == "application/x-www-form-urlencoded" { // GitHub's other form
		if form, err := url.ParseQuery(string(body)); err == nil && form.Has("payload") {
			mediaType, body = "application/json", []byte(form.Get("payload"))
		}
	}
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	e := origin{text: text, values: map[string]string{"body": text},
		traceparent: spans.FromHeader(h)}
	if word := h.Get("X-GitHub-Event"); word != "" {
		e.values["event"] = word
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // ids are larger than a float is exact
	err := decoder.Decode(&e.body)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = fmt.Errorf("more than one value")
		}
	}
	if err != nil {
		e.body = nil
		if mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") {
			return e, fmt.Errorf("the body is not JSON: %w", err)
		}
	}
	return e, nil
}
