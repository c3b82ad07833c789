package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// frame is a WebSocket frame as a client sends it.
func frame(fin bool, opcode byte, masked bool, payload []byte) []byte {
	b := []byte{opcode, 0}
	if fin {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	b[1] |= 0x80
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

// rawClient has upgraded a connection and speaks frames.
type rawClient struct {
	t    *testing.T
	conn io.ReadWriteCloser
	in   *bufio.Reader
}

func (s *stage) dialRaw(path string) *rawClient {
	c, err := s.pipes.dial(s.ctx, "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(
			c,
			"GET "+path+
				" HTTP/1.1\r\nHost: 127.0.0.1:9400\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		)
	}()
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("upgrade: got %d, want 101", r.StatusCode)
	}
	return &rawClient{s.t, c, in}
}

func (c *rawClient) send(frames ...[]byte) {
	if _, err := c.conn.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Error(err)
	}
}

// next reads a frame of the server.
func (c *rawClient) next() (opcode byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", err
	}
	n := int(head[1])
	switch n {
	case 126:
		var l [2]byte
		if _, err := io.ReadFull(c.in, l[:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint16(l[:]))
	case 127:
		var l [8]byte
		if _, err := io.ReadFull(c.in, l[:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint64(l[:]))
	}
	p := make([]byte, n)
	_, err = io.ReadFull(c.in, p)
	return head[0] & 15, string(p), err
}

// closeCode reads until the server closes the connection and returns the close code, 0 without a
// close frame.
func (c *rawClient) closeCode() int {
	for {
		opcode, payload, err := c.next()
		switch {
		case err != nil:
			return 0
		case opcode == 8 && len(payload) >= 2:
			return int(binary.BigEndian.Uint16([]byte(payload)))
		}
	}
}

const (
	opContinue = 0
	opText     = 1
	opPing     = 9
	opPong     = 10
)

// A message may come in pieces, with pings between.
func TestFragments(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		c := s.dialRaw("/")
		auth := []byte(`{"type":"auth","token":"` + s.gateway.InstanceToken() + `"}`)
		var frames [][]byte
		for i := range auth {
			op := byte(opContinue)
			if i == 0 {
				op = opText
			}
			frames = append(frames, frame(i == len(auth)-1, op, true, auth[i:i+1]),
				frame(true, opPing, true, []byte{byte(i)}))
		}
		go c.send(frames...)
		pongs := 0
		for {
			op, payload, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if op == opPong {
				pongs++
			} else if op == opText {
				if payload != `{"type":"sessions","active":[]}` {
					t.Errorf("got %s, want an empty sessions message", payload)
				}
				break
			}
		}
		if pongs < len(auth)-1 {
			t.Errorf("got %d pongs for %d pings, want at least %d", pongs, len(auth), len(auth)-1)
		}
		_ = c.conn.Close()
	})
}

// A flood of pings is answered, and other connections go on meanwhile.
func TestPingFlood(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		flood := s.dialRaw("/")
		var frames [][]byte
		for range 5000 {
			frames = append(frames, frame(true, opPing, true, []byte("ping")))
		}
		go flood.send(frames...)
		c := s.dialRaw("/")
		go c.send(frame(true, opText, true,
			[]byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
		if _, payload, err := c.next(); err != nil || !strings.Contains(payload, "sessions") {
			t.Errorf("the other connection got %q, %v, want sessions", payload, err)
		}
		for i := range 5000 {
			if op, _, err := flood.next(); err != nil || op != opPong {
				t.Fatalf("pong %d: %d %v, want no error and %d", i, op, err, opPong)
			}
		}
		_ = flood.conn.Close()
		_ = c.conn.Close()
	})
}

// Bytes that are no WebSocket frame, or no frame of a client, end their connection and no other.
func TestBadFrames(t *testing.T) {
	for name, bad := range map[string][]byte{
		"not masked":     frame(true, opText, false, []byte(`{}`)),
		"unknown opcode": frame(true, 3, true, []byte(`{}`)),
		"reserved bit": append([]byte{0x80 | 0x40 | opText},
			frame(true, opText, true, []byte(`{}`))[1:]...),
		"continuation first": frame(true, opContinue, true, []byte(`{}`)),
		"long ping":          frame(true, opPing, true, make([]byte, 126)),
		"ping in pieces":     frame(false, opPing, true, []byte("x")),
		"text in text": append(frame(false, opText, true, []byte(`{`)),
			frame(true, opText, true, []byte(`}`))...),
		"negative length": {0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2,
			3, 4},
		"invalid close code":     frame(true, 8, true, []byte{0, 1}),
		"close of one byte":      frame(true, 8, true, []byte{3}),
		"no frame":               []byte("GET / HTTP/1.1\r\n\r\n"),
		"nothing, and then none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			withStage(t, func(t *testing.T, s *stage) {
				other := s.dialRaw("/")
				c := s.dialRaw("/")
				if bad == nil {
					_ = c.conn.Close()
				} else {
					go func() { _, _ = c.conn.Write(bad) }()
					c.closeCode()
					_ = c.conn.Close()
				}
				synctest.Wait()
				go other.send(
					frame(true, opText, true,
						[]byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)),
				)
				if _, payload, err := other.next(); err != nil ||
					!strings.Contains(payload, "sessions") {
					t.Errorf("the other connection got %q, %v, want sessions", payload, err)
				}
				_ = other.conn.Close()
			})
		})
	}
}

// Text that is not UTF-8 is INVALID_JSON, and the connection goes on.
func TestBadUTF8(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		c := s.dialRaw("/")
		go c.send(frame(true, opText, true, []byte("{\"type\":\"auth\",\"token\":\"\xff\"}")),
			frame(true, opText, true,
				[]byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
		for _, want := range []string{"not valid UTF-8", `"sessions"`} {
			if _, payload, err := c.next(); err != nil || !strings.Contains(payload, want) {
				t.Errorf("got %q, %v; want %s", payload, err, want)
			}
		}
		_ = c.conn.Close()
	})
}

// A frame without end is closed with 1009 after 16 MiB, and with 1008 after 64 KiB if the
// connection has not authenticated.
func TestFrameWithoutEnd(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		for _, want := range []protocol.CloseCode{protocol.ClosePolicy, protocol.CloseTooBig} {
			c := s.dialRaw("/")
			go func() {
				if want == protocol.CloseTooBig {
					c.send(frame(true, opText, true,
						[]byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
				}
				part := make([]byte, 1<<20)
				op := byte(opText)
				for range 64 { // it would go on for ever
					if _, err := c.conn.Write(frame(false, op, true, part)); err != nil {
						return
					}
					op = opContinue
				}
			}()
			if code := c.closeCode(); code != int(want) {
				t.Errorf("closed with %d, want %d", code, want)
			}
			_ = c.conn.Close()
		}
	})
}

// Calls that come in one read reach their provider in one write, and so do its results the host,
// also if a broken frame behind them ends the connection.
func TestFramesGoOutTogether(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		text := func(format string, args ...any) []byte {
			return frame(true, opText, true, fmt.Appendf(nil, format, args...))
		}
		next := func(c *rawClient, want string) (payload string) {
			t.Helper()
			for !strings.Contains(payload, want) {
				var err error
				if _, payload, err = c.next(); err != nil {
					t.Fatalf("waiting for %s: %v", want, err)
				}
			}
			return payload
		}
		host := s.dialRaw("/host")
		go host.send(
			text(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,`+
				`"token":%q,"host":{"name":"x"}}}`, s.gateway.AdminToken()),
			text(
				`{"jsonrpc":"2.0","id":2,"method":"session/register","params":{"id":"e1","label":"l",`+
					`"cwd":"/c"}}`))
		next(host, `"id":2`)
		provider := s.dialRaw("/")
		go provider.send(text(`{"type":"auth","token":%q}`, s.gateway.InstanceToken()),
			text(`{"type":"hello","name":"p","protocolVersion":2,"session":"e1","tools":[`+
				`{"name":"t","description":"d","parameters":{}}]}`))
		next(provider, `"hello.ack"`)
		set := next(host, `"tools/set"`)
		calls := [][]byte{text(`{"jsonrpc":"2.0","id":%s,"result":{}}`, idIn(set))}
		const n = 8
		for id := range n {
			calls = append(calls, text(`{"jsonrpc":"2.0","id":%d,"method":"tool/call","params":{`+
				`"sessionId":"e1","name":"t"}}`, 10+id))
		}
		go host.send(calls...)
		var results [][]byte
		for i := range n {
			id := idIn(next(provider, `"tool.call"`))
			if isLast := provider.in.Buffered() == 0; isLast != (i == n-1) {
				t.Errorf("call %d: it is the last of a write: %t, want all in one", i+1, isLast)
			}
			results = append(results, text(`{"type":"tool.result","id":%s,"data":1}`, id))
		}
		broken := frame(true, opText, false, []byte("without a mask"))
		go provider.send(append(results, broken)...)
		for i := range n {
			next(host, `"data":1`)
			if isLast := host.in.Buffered() == 0; isLast != (i == n-1) {
				t.Errorf("result %d: it is the last of a write: %t, want all in one", i+1, isLast)
			}
		}
		_ = host.conn.Close()
		_ = provider.conn.Close()
	})
}

// idIn returns the id of a message as it is written.
func idIn(message string) protocol.Raw {
	var m struct {
		ID protocol.Raw `json:"id"`
	}
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		panic(err)
	}
	return m.ID
}
