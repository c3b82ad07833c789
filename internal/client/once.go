package client

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"
)

// onceTransport makes each request on a connection of its own, in the caller's goroutine. For a
// process that makes one request, the goroutines and the threads of [http.Transport] take longer
// than the request.
type onceTransport struct{ *Client }

// RoundTrip implements [http.RoundTripper].
func (t onceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	dial, port := t.dial, "80"
	if r.URL.Scheme == "https" {
		dial, port = t.dialTLS, "443"
	}
	if given := r.URL.Port(); given != "" {
		port = given
	}
	ctx := r.Context()
	conn, err := dial(ctx, "tcp", net.JoinHostPort(r.URL.Hostname(), port))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	answer, err := ask(conn, r)
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, err
	}
	answer.Body = &onceBody{answer.Body, conn, stop}
	return answer, nil
}

func ask(conn net.Conn, r *http.Request) (*http.Response, error) {
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxAnswer)), r)
}

// onceBody is the body of an answer, with the connection from which it comes.
type onceBody struct {
	io.ReadCloser
	conn net.Conn
	stop func() bool // no longer ends the connection with the context
}

func (b *onceBody) Close() error {
	b.stop()
	return b.conn.Close()
}
