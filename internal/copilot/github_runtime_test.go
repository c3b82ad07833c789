//go:build runtime

package copilot

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// The tokens of two users of a stand-in for GitHub's cloud.
const (
	tokenOfAda = "ghu_adaOfTheTests"
	tokenOfBob = "ghu_bobOfTheTests"
)

// cloud stands in for GitHub's cloud: it knows two users by their tokens, lists
// models, and lets a scripted model answer.
type cloud struct {
	host  string
	pipes sync.WaitGroup

	mu     sync.Mutex
	tokens []string // of the requests to the model, in order
	hosts  []string // that were asked for
}

const cloudModels = `{"data":[
{"id":"plain","name":"Plain One","version":"1","model_picker_enabled":true,"vendor":"v","object":"model","policy":{"state":"enabled","terms":""},"billing":{"is_premium":true,"multiplier":0.33},
 "capabilities":{"family":"plain","type":"chat","object":"model_capabilities","tokenizer":"o200k_base","limits":{"max_prompt_tokens":90000,"max_context_window_tokens":100000,"max_output_tokens":4000},"supports":{"streaming":true,"tool_calls":true,"vision":true}}},
{"id":"gpt-5","name":"Thinking One","version":"gpt-5","model_picker_enabled":true,"vendor":"OpenAI","object":"model","policy":{"state":"enabled","terms":""},"billing":{"is_premium":true,"multiplier":10},"supported_endpoints":["/chat/completions"],
 "capabilities":{"family":"gpt-5","type":"chat","object":"model_capabilities","tokenizer":"o200k_base","limits":{"max_prompt_tokens":90000,"max_context_window_tokens":100000,"max_output_tokens":4000},"supports":{"streaming":true,"tool_calls":true,"reasoning_effort":["low","medium","high"]}}}
]}`

func startCloud(t *testing.T, model *scriptmodel.Server) *cloud {
	t.Helper()
	c := &cloud{}
	users := map[string]string{tokenOfAda: "ada", tokenOfBob: "bob"}
	srv := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			login, known := users[token]
			c.mu.Lock()
			c.hosts = append(c.hosts, r.Host)
			c.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			switch {
			case !known:
				w.WriteHeader(http.StatusUnauthorized)
				_, _ = io.WriteString(w, `{"message":"Bad credentials"}`)
			case strings.HasSuffix(r.URL.Path, "/copilot_internal/user"):
				_, _ = fmt.Fprintf(
					w,
					`{"login":%q,"access_type_sku":"free_limited_copilot","analytics_tracking_id":"x","chat_enabled":true,"copilot_plan":"individual","endpoints":{"api":"https://%s/capi","telemetry":"https://%[2]s/telemetry","proxy":"https://%[2]s/proxy"}}`,
					login,
					r.Host,
				)
			case strings.HasSuffix(r.URL.Path, "/user"):
				_, _ = fmt.Fprintf(w, `{"login":%q,"id":1}`, login)
			case strings.HasSuffix(r.URL.Path, "/models"):
				_, _ = io.WriteString(w, cloudModels)
			case strings.HasSuffix(r.URL.Path, "/chat/completions"):
				c.mu.Lock()
				c.tokens = append(c.tokens, token)
				c.mu.Unlock()
				model.ServeCompletions(w, r)
			default:
				_, _ = io.WriteString(w, `{}`)
			}
		}))
	srv.TLS = certificates(t)
	// the runtime opens connections that it does not use
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	c.host = strings.TrimPrefix(srv.URL, "https://")
	// Whatever host it is that the runtime connects to, it gets here.
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", c.host)
		if err != nil || r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		c.pipes.Go(func() { _, _ = io.Copy(there, here); _ = there.Close() })
		c.pipes.Go(func() { _, _ = io.Copy(here, there); _ = here.Close() })
	}))
	t.Cleanup(func() { proxy.Close(); srv.CloseClientConnections(); c.pipes.Wait() })
	t.Setenv("HTTPS_PROXY", proxy.URL)
	return c
}

// certificates makes a server's certificate that programs of this test trust.
func certificates(t *testing.T) *tls.Config {
	t.Helper()
	issue := func(
		name string, parent *x509.Certificate, signer *ecdsa.PrivateKey,
	) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(len(name))), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: parent == nil, BasicConstraintsValid: true,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			DNSNames:    []string{"api.github.com", "octo.ghe.com", "api.octo.ghe.com"},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		if parent == nil {
			template.KeyUsage |= x509.KeyUsageCertSign
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	authority, signer := issue("an authority", nil, nil)
	leaf, key := issue("a server", authority, signer)
	file := writeFile(
		t, t.TempDir()+"/ca.pem",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw})),
	)
	for _, name := range []string{"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"} {
		t.Setenv(name, file)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw},
		PrivateKey: key}}}
}

// signedIn makes sessions on GitHub's models, in a cloud of the test's own.
func signedIn(t *testing.T, token string, change ...func(*Options)) *rig {
	t.Helper()
	noAccount(t)
	t.Setenv("ADA_TOKEN", token)
	model, err := scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	c := startCloud(t, model)
	g := newRig(t, func(o *Options) {
		o.ProviderURL, o.ProviderKey = "", ""
		o.Profile = configs.DefaultProfile()
		o.Profile.GitHubTokenEnv = "ADA_TOKEN"
		for _, c := range change {
			c(o)
		}
	})
	g.model, g.cloud = model, c
	return g
}

func (c *cloud) last() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tokens) == 0 {
		return ""
	}
	return c.tokens[len(c.tokens)-1]
}

// GitHub's models come with what they cost and what they know.
func TestGitHubModels(t *testing.T) {
	g := signedIn(t, tokenOfAda)
	models, err := g.r.Models(g.ctx)
	if err != nil || len(models) != 3 { // and the runtime's own "auto"
		t.Fatalf("%+v, %v, want no error and 3 of them", models, err)
	}
	plain, thinker := models[1], models[2]
	if plain.ID != "plain" || plain.Name != "Plain One" || plain.Multiplier != 0.33 ||
		!plain.Vision || len(plain.Efforts) != 0 ||
		plain.MaxPromptTokens != 90000 ||
		plain.MaxContextTokens != 100000 ||
		plain.Policy != "enabled" {
		t.Errorf(
			`%+v, want "Plain One", 0.33, with vision, no efforts, 90000 of 100000 tokens, enabled`,
			plain)
	}
	if thinker.ID != "gpt-5" || thinker.Multiplier != 10 || thinker.Vision ||
		!slices.Equal(thinker.Efforts, []string{"low", "medium", "high"}) {
		t.Errorf(`%+v, want "gpt-5", 10, no vision, efforts low, medium and high`, thinker)
	}
}

// Sessions are on GitHub's models with the token of the variable that the config
// names, or with their own.
func TestGitHubTokens(t *testing.T) {
	g := signedIn(t, tokenOfAda)
	s := g.start(func(r *gateway.StartRequest) { r.Model = "plain" })
	s.turn("hello")
	if s.lastSaid() != "You said: hello" || g.cloud.last() != tokenOfAda {
		t.Errorf(
			`the model said %q to token %q; errors %q, want "You said: hello" and %q`,
			s.lastSaid(), g.cloud.last(), s.errors(), tokenOfAda,
		)
	}
	other := g.start(func(r *gateway.StartRequest) { r.Model, r.GitHubToken = "plain", tokenOfBob })
	other.turn("hello")
	if other.lastSaid() != "You said: hello" || g.cloud.last() != tokenOfBob {
		t.Errorf(
			`the model said %q to token %q; errors %q, want "You said: hello" and %q`,
			other.lastSaid(), g.cloud.last(), other.errors(), tokenOfBob,
		)
	}
	s.turn("hello again")
	if g.cloud.last() != tokenOfAda {
		t.Errorf("the first session goes on with token %q, want %q", g.cloud.last(), tokenOfAda)
	}
	if err := g.r.start(g.ctx, gateway.StartRequest{
		CWD: g.cwd, Model: "plain", GitHubToken: "ghu_nobody",
	}, nil); err == nil ||
		strings.Contains(err.Error(), "ghu_nobody") {
		t.Errorf(`a token of nobody's: %v, want an error and no "ghu_nobody" in it`, err)
	}
}

// A session that brought a token of its own does not go on as somebody else.
func TestResumeWithItsOwnToken(t *testing.T) {
	g := signedIn(t, tokenOfAda)
	s := g.start(func(r *gateway.StartRequest) { r.Model, r.GitHubToken = "plain", tokenOfBob })
	s.turn("hello")
	if err := s.host.Close(g.ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.resume(s.id, gateway.ResumeRequest{},
		nil); coded(err) != protocol.CodeInvalidJSON ||
		!strings.Contains(err.Error(), "githubToken: missing") {
		t.Errorf(
			`resuming without the token: %v, want %v and "githubToken: missing" in it`,
			err, protocol.CodeInvalidJSON,
		)
	}
	again, err := g.resume(
		s.id, gateway.ResumeRequest{StartRequest: gateway.StartRequest{GitHubToken: tokenOfBob}},
		nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	again.turn("hello again")
	if g.cloud.last() != tokenOfBob || again.lastSaid() != "You said: hello again" {
		t.Errorf(
			`the model said %q to token %q, want %q and "You said: hello again"`,
			again.lastSaid(), g.cloud.last(), tokenOfBob,
		)
	}
}

// A model or an effort that GitHub's does not have is refused by name, at the start
// and later.
func TestGitHubModelIsChecked(t *testing.T) {
	g := signedIn(t, tokenOfAda)
	s := g.start(func(r *gateway.StartRequest) { r.Model = "plain" })
	for _, tt := range []struct{ model, effort, want string }{
		{"nothing", "", `model: there is no model "nothing"; there are auto, plain, gpt-5`},
		{"plain", "high", `effort: model "plain" can't be told how hard to think`},
		{"gpt-5", "xhigh", `effort: there is no "xhigh"; there are low, medium, high`},
	} {
		for when, err := range map[string]error{
			"at the start": g.r.start(g.ctx, gateway.StartRequest{CWD: g.cwd, Model: tt.model,
				Effort: tt.effort}, nil),
			"later": s.info.SetModel(g.ctx, tt.model, tt.effort),
		} {
			if coded(err) != protocol.CodeInvalidJSON || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v %s: %v, want %v and %q in it", tt, when, err,
					protocol.CodeInvalidJSON, tt.want)
			}
		}
	}
	if err := s.info.SetModel(g.ctx, "gpt-5", "high"); err != nil {
		t.Fatal(err)
	}
	s.turn("hello")
	if r := g.lastRequest(); r.Model != "gpt-5" ||
		!strings.Contains(string(r.Body), `"reasoning_effort":"high"`) {
		t.Errorf(
			`the next request is to model %q: %.300s, want Model "gpt-5" and "reasoning_effort":"high" in it`,
			r.Model, r.Body,
		)
	}
	// A model that knows no effort takes none over.
	if err := s.info.SetModel(g.ctx, "plain", ""); err != nil {
		t.Fatal(err)
	}
	s.turn("hello again")
	if r := g.lastRequest(); r.Model != "plain" ||
		strings.Contains(string(r.Body), `"reasoning_effort":"`) {
		t.Errorf(
			`the next request is to model %q: %.300s, want Model "plain" and no "reasoning_effort":" in it`,
			r.Model, r.Body,
		)
	}
}

// A token that is named and not there is said by its variable.
func TestGitHubTokenIsMissing(t *testing.T) {
	g := signedIn(t, "")
	_, err := g.r.Models(g.ctx)
	if coded(err) != protocol.CodeInvalidState ||
		!strings.Contains(err.Error(),
			`the environment variable "ADA_TOKEN" of the gateway is not set`) {
		t.Errorf(
			"error: %v, want %v and %q in it",
			err, protocol.CodeInvalidState,
			`the environment variable "ADA_TOKEN" of the gateway is not set`,
		)
	}
}

// The GitHub host is where the runtime signs in, and nowhere else.
func TestGitHubHost(t *testing.T) {
	g := signedIn(t, tokenOfAda, func(o *Options) { o.GitHubHost = "octo.ghe.com" })
	if models, err := g.r.Models(g.ctx); err != nil || len(models) != 3 {
		t.Fatalf("%+v, %v, want no error and 3 of them", models, err)
	}
	g.cloud.mu.Lock()
	defer g.cloud.mu.Unlock()
	if len(g.cloud.hosts) == 0 ||
		slices.ContainsFunc(g.cloud.hosts, func(h string) bool {
			return !strings.HasSuffix(h, "octo.ghe.com")
		}) {
		t.Errorf("asked were %q, want only hosts under octo.ghe.com", g.cloud.hosts)
	}
}
