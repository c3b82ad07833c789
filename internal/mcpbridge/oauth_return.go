package mcpbridge

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"tapgw/configs"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

const returnPath = "/callback"

// loginReturn is where a browser returns to after a login: a server on this machine, for as long as
// the login runs.
type loginReturn struct {
	url, host string
	provider  string
	server    *http.Server
	served    sync.WaitGroup
	answer    chan url.Values // holds the only one
	ended     chan struct{}   // closed when the login has ended; err is set before
	err       error

	mu    sync.Mutex // guards the fields that follow
	state string     // that the answer must have; "" before a login begins and after it ended
	isIn  bool       // the answer
}

// listenForReturn starts the server. Call close in the end.
func listenForReturn(p configs.Provider) (*loginReturn, error) {
	port := p.MCP.OAuth.Port
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && port != 0 {
		return nil, refusedLogin("the browser can't return to port %d, which oauth.port names: %v",
			port, err)
	} else if err != nil {
		return nil, fmt.Errorf("listening for the browser's return: %w", err)
	}
	r := &loginReturn{
		host: listener.Addr().String(), provider: p.Name, answer: make(chan url.Values, 1),
		ended: make(chan struct{}),
	}
	r.url = "http://" + r.host + returnPath
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: refreshTime, MaxHeaderBytes: 64 << 10}
	r.served.Go(func() { _ = r.server.Serve(listener) })
	return r, nil
}

// expect makes the answer that has this state the one to wait for.
func (r *loginReturn) expect(state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = state
}

// wait waits for the browser.
func (r *loginReturn) wait(ctx context.Context) (*auth.AuthorizationResult, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case q := <-r.answer:
		if code := q.Get("error"); code != "" {
			why := code
			if about := q.Get("error_description"); about != "" {
				why += ", " + about
			}
			return nil, &protocol.Error{Code: protocol.CodeDenied, Message: fmt.Sprintf(
				"the login for %s was refused: %s", r.provider,
				visible.Line(shorten(why, maxReason)))}
		}
		return &auth.AuthorizationResult{Code: q.Get("code"), State: q.Get("state"),
			Iss: q.Get("iss")}, nil
	}
}

// close tells the browser how the login ended, and stops the server.
func (r *loginReturn) close(err error) {
	r.err = err
	close(r.ended)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil { // a connection is open on which nothing comes
		_ = r.server.Close()
	}
	r.served.Wait()
}

// ServeHTTP implements http.Handler. Every web page can send requests here, so only an answer with
// the state counts, once, and a wrong one changes nothing.
func (r *loginReturn) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	dest, origin := req.Header.Get("Sec-Fetch-Dest"), req.Header.Get("Origin")
	q := req.URL.Query()
	switch {
	case req.Host != r.host:
		http.Error(w, "This is not a name of this server.", http.StatusMisdirectedRequest)
	case req.URL.Path != returnPath:
		http.NotFound(w, req)
	case req.Method != http.MethodGet:
		http.Error(w, "GET only.", http.StatusMethodNotAllowed)
	case dest != "" && dest != "document", origin != "" && origin != "null":
		http.Error(w, "A page may lead here, and not ask from within.", http.StatusForbidden)
	default:
		status, text := r.take(req.Context(), q)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text+"\n")
	}
}

// take hands an answer to the login, and waits for how that ends.
func (r *loginReturn) take(ctx context.Context, q url.Values) (status int, text string) {
	r.mu.Lock()
	isRight := r.state != "" && subtle.ConstantTimeCompare([]byte(q.Get("state")),
		[]byte(r.state)) == 1
	isSecond := r.isIn
	r.isIn = r.isIn || isRight
	r.mu.Unlock()
	switch {
	case !isRight:
		return http.StatusBadRequest,
			"This is not the answer to the login that waits. It still waits."
	case isSecond:
		return http.StatusConflict,
			"This login has had its answer already. You can close this page."
	}
	r.answer <- q
	select {
	case <-r.ended:
	case <-ctx.Done():
		return http.StatusOK, ""
	}
	if r.err != nil {
		return http.StatusBadGateway, "The login failed: " + r.err.Error()
	}
	return http.StatusOK, "tapgw is logged in for the provider " + r.provider +
		". You can close this page."
}
