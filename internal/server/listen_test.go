package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

// running serves a gateway on a port of the loopback until the test ends.
func running(t *testing.T, o server.Options) (*gateway.Gateway, *server.Server) {
	t.Helper()
	if o.Gateway == nil {
		o.Gateway = gateway.New(gateway.Options{})
	}
	s := server.New(o)
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return o.Gateway, s
}

// greeted authenticates a provider at a URL.
func greeted(t *testing.T, g *gateway.Gateway, url string, client *http.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if err := ws.Write(ctx, websocket.MessageText,
		[]byte(`{"type":"auth","token":"`+g.InstanceToken()+`"}`)); err != nil {
		t.Fatal(err)
	}
	_, data, err := ws.Read(ctx)
	if err != nil || !strings.Contains(string(data), `"sessions"`) {
		t.Fatalf(`got %q, %v, want no error and "sessions" in it`, data, err)
	}
	if err := ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Error(err)
	}
}

// localhost is 127.0.0.1 or [::1]; the gateway is at both.
func TestListenBoth(t *testing.T) {
	g, s := running(t, server.Options{})
	url := s.URL()
	if !strings.HasPrefix(url, "ws://127.0.0.1:") || strings.HasSuffix(url, "/") {
		t.Fatalf("URL %s, want ws://127.0.0.1: and a port", url)
	}
	greeted(t, g, url, nil)
	port := url[strings.LastIndexByte(url, ':'):]
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil { // the machine has IPv6
		_ = l.Close()
		greeted(t, g, "ws://[::1]"+port, nil)
	}
	greeted(t, g, "ws://localhost"+port+"/", nil)
	if err := server.New(server.Options{Gateway: g}).Listen("127.0.0.1" + port); err == nil {
		t.Error("binding a port that is taken: no error, want one")
	}
}

// Whoever has a loopback of the two at our port would be taken for us by those who
// ask for localhost: we don't start beside it, and say where it is.
func TestListenBesideASquatter(t *testing.T) {
	for held, asked := range map[string]string{"[::1]": "127.0.0.1", "127.0.0.1": "[::1]"} {
		squatter, err := net.Listen("tcp", held+":0")
		if err != nil {
			t.Fatalf("this test needs both loopbacks: %v", err)
		}
		defer func() { _ = squatter.Close() }()
		_, port, _ := net.SplitHostPort(squatter.Addr().String())
		s := server.New(server.Options{Gateway: gateway.New(gateway.Options{})})
		err = s.Listen(asked + ":" + port)
		at, ok := errors.AsType[*server.ListenError](err)
		if !ok || at.Addr != held+":"+port || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("beside %s: got %v, want that %s:%s is in use", held, err, held, port)
		}
		if err := server.CanListen(asked + ":" + port); err == nil {
			t.Errorf("beside %s: CanListen got nil, want an error", held)
		}
		if l, err := net.Listen("tcp", asked+":"+port); err != nil {
			t.Errorf("beside %s: the other port stays taken: %v", held, err)
		} else {
			_ = l.Close()
		}
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	g, s := running(
		t,
		server.Options{
			TLS: &tls.Config{
				MinVersion:   tls.VersionTLS12,
				Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
			},
		},
	)
	if !strings.HasPrefix(s.URL(), "wss://") {
		t.Errorf(`URL %s, want "wss://" at its start`, s.URL())
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		DisableKeepAlives: true,
	}
	greeted(t, g, s.URL(), &http.Client{Transport: transport})
	if r, err := http.Get("http://" + strings.TrimPrefix(s.URL(),
		"wss://") + "/healthz"); err == nil {
		_ = r.Body.Close()
		if r.StatusCode == http.StatusOK {
			t.Error("served without TLS, want a refusal")
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestNameUser(t *testing.T) {
	failed := func(err error) error {
		return server.NameUser(&server.ListenError{Addr: "127.0.0.1:1", Err: err})
	}
	if err := failed(syscall.EACCES); !errors.Is(err, syscall.EACCES) {
		t.Errorf("got %v, want %v", err, syscall.EACCES)
	}
	// Nobody known has it.
	err := failed(syscall.EADDRINUSE)
	if !strings.Contains(err.Error(), "the port is in use by another process; ") {
		t.Errorf(`got %v, want "the port is in use by another process; " in it`, err)
	}
}
