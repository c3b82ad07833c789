//go:build runtime && linux

package providers_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/taptest"
)

// benchProvider is a provider in another process, seen from the gateway.
type benchProvider struct {
	b     *testing.B
	cmd   *exec.Cmd
	conns chan *websocket.Conn
	ws    *websocket.Conn
	addr  string
	srv   *http.Server
	// connect and connectCPU are the milliseconds of its import and connection, as it says.
	connect, connectCPU float64
}

// startBench starts a provider and binds it.
func startBench(b *testing.B, dir, kind string) *benchProvider {
	b.Helper()
	p := &benchProvider{b: b, conns: make(chan *websocket.Conn, 1), addr: "127.0.0.1:0"}
	p.listen()
	env := []string{"TAP_GATEWAY_URL=ws://" + p.addr, "TAP_PROVIDER_TOKEN=ptk-1",
		"COPILOT_HOME=" + b.TempDir()}
	p.cmd = nodeCommand(dir, env, "node", filepath.Join("test", "bench.mjs"), kind)
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		_ = p.srv.Close()
	})
	p.bind()
	if _, err := fmt.Fscan(bufio.NewReader(out), &p.connect, &p.connectCPU); err != nil {
		b.Fatal(err)
	}
	return p
}

// listen serves at p.addr.
func (p *benchProvider) listen() {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.b.Fatal(err)
	}
	p.addr = ln.Addr().String()
	p.srv = &http.Server{Handler: taptest.Proving(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ws, err := websocket.Accept(w, r, nil); err == nil {
				p.conns <- ws
			}
		}), "ptk-1")}
	go func() { _ = p.srv.Serve(ln) }()
}

func (p *benchProvider) bind() {
	p.ws = <-p.conns
	p.read()
	p.write(`{"type":"sessions","active":[{"id":"s1","label":"one","cwd":"/s1"}]}`)
	p.read()
	p.write(
		`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1","reconnectToken":"rt-1"}`)
}

func (p *benchProvider) write(text string) {
	if err := p.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		p.b.Fatal(err)
	}
}

func (p *benchProvider) read() []byte {
	_, data, err := p.ws.Read(context.Background())
	if err != nil {
		p.b.Fatal(err)
	}
	return data
}

func (p *benchProvider) call(id int) {
	p.write(
		fmt.Sprintf(
			`{"type":"tool.call","id":"0199b6f2-%012d","sessionId":"s1","tool":"echo","args":{"text":`+
				`"the quick brown fox jumps over the lazy dog, twice a day"}}`, id))
}

// p50 returns the median of n calls, one after the other.
func (p *benchProvider) p50(n int) float64 {
	took := make([]float64, n)
	for i := range took {
		at := time.Now()
		p.call(i)
		if answer := p.read(); !bytes.Contains(answer, []byte("lazy dog")) {
			p.b.Fatalf("a call was answered %s, want its text", answer)
		}
		took[i] = float64(time.Since(at).Microseconds())
	}
	return median(took)
}

// perCPUSecond returns how many calls the provider answers in a second of its own processor time,
// 64 in flight.
func (p *benchProvider) perCPUSecond(n int) float64 {
	before := p.cpu()
	for i := range n + 64 {
		if i < n {
			p.call(i)
		}
		if i >= 64 {
			p.read()
		}
	}
	return float64(n) / (p.cpu() - before)
}

// cpu returns the processor time that all threads of the provider have used, in seconds.
func (p *benchProvider) cpu() float64 {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	if err != nil {
		p.b.Fatal(err)
	}
	var sum float64
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseFloat(strings.Fields(string(stat))[0], 64)
		if err != nil {
			p.b.Fatal(err)
		}
		sum += ns / 1e9
	}
	return sum
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkNode compares the Node SDK with a bare ws client that answers the same frames. Both are
// measured in turn, and the ratio is the median of the rounds' ratios.
func BenchmarkNode(b *testing.B) {
	dir := nodePackage(b)
	var ratios, rate, connect, connectCPU, back []float64
	for range b.N {
		sdk, bare := startBench(b, dir, "sdk"), startBench(b, dir, "bare")
		sdk.p50(2000) // until the compiler has seen them
		bare.p50(2000)
		for range 5 {
			ratios = append(ratios, sdk.p50(1000)/bare.p50(1000))
		}
		rate = append(rate, sdk.perCPUSecond(20_000))
		connect, connectCPU = append(connect, sdk.connect), append(connectCPU, sdk.connectCPU)
		back = append(back, sdk.comesBack())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ratios), "p50-ratio")
	b.ReportMetric(median(rate), "calls/cpu-s")
	b.ReportMetric(median(connect), "connect-ms")
	b.ReportMetric(median(connectCPU), "connect-cpu-ms")
	b.ReportMetric(slices.Max(back), "max-back-ms")
}

// comesBack returns how many milliseconds after the gateway's return the provider is bound.
func (p *benchProvider) comesBack() float64 {
	_ = p.srv.Close()
	_ = p.ws.CloseNow()
	<-time.After(3 * time.Second) // an outage
	at := time.Now()
	p.listen()
	p.bind()
	return float64(time.Since(at).Milliseconds())
}
