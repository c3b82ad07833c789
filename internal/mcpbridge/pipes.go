package mcpbridge

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/proc"
)

const (
	// maxMessage bounds one message of a server, in bytes. A longer one is read no further.
	maxMessage = 16 << 20
	maxNoise   = 1 << 10 // bytes of a line on stdout that is no message
	stopGrace  = 2 * time.Second
	// endTime is how long a program that has closed its stdout has to end, so that its exit code
	// can be reported.
	endTime = 300 * time.Millisecond
)

// overPipes starts the server's program.
func (u *upstream) overPipes() (mcp.Transport, error) {
	o := u.b.o
	// the system would say it of the program
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		return nil, fatalError{fmt.Errorf("cwd: there is no directory %s", o.Dir)}
	}
	program := o.Provider.Command
	p, err := proc.Start(proc.Command{
		Path: program[0], Args: program[1:], Dir: o.Dir, Env: o.Env,
		OnLine:     func(from proc.Stream, line string) { o.Line(string(from), line) },
		ReadStdout: true,
		Keep:       1, // the lines are kept elsewhere
		Grace:      stopGrace,
	})
	if err != nil {
		return nil, fatalError{err}
	}
	stdout := &messages{
		ReadCloser: p.Stdout(), noise: func(line string) { o.Line(string(proc.Stdout), line) },
	}
	o.Line(fromGateway, fmt.Sprintf("started %s as process %d", program[0], p.PID()))
	u.stop = func() {
		_ = stdout.Close() // or the program could wait for its reader
		p.Stop()
	}
	u.reason = func() error {
		select {
		case <-p.Done():
		case <-time.After(endTime): // it has closed its stdout and goes on
			return nil
		}
		if err := p.Err(); err != nil {
			return fmt.Errorf("process %d ended: %w", p.PID(), err)
		}
		return fmt.Errorf("process %d ended by itself", p.PID())
	}
	u.wg.Go(func() {
		<-p.Done()
		select { // a child of the program may hold its stdout open
		case <-u.lost:
		case <-time.After(endTime):
		}
		_ = stdout.Close()
	})
	return lineTransport{out: stdout, in: p.Stdin()}, nil
}

// messages reads the lines of a server that may be messages. It drops others, which careless
// programs print to stdout and which would end the connection.
type messages struct {
	io.ReadCloser
	noise func(line string)

	inMessage, inNoise bool
	line               []byte // of noise; its beginning only
}

// Read implements io.Reader.
func (m *messages) Read(p []byte) (int, error) {
	for {
		n, err := m.ReadCloser.Read(p)
		if n = m.filter(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// filter moves the bytes of messages to the beginning of data and returns how many there are.
func (m *messages) filter(data []byte) (n int) {
	rest := data
	for len(rest) > 0 {
		if !m.inMessage && !m.inNoise {
			if rest = bytes.TrimLeft(rest, " \t\r\n"); len(rest) == 0 {
				break
			}
			m.inMessage = rest[0] == '{' || rest[0] == '['
			m.inNoise = !m.inMessage
		}
		part, isEnd := rest, false
		if at := bytes.IndexByte(rest, '\n'); at >= 0 {
			part, isEnd = rest[:at+1], true
		}
		rest = rest[len(part):]
		if m.inMessage {
			n += copy(data[n:], part)
		} else {
			m.line = append(m.line, part[:min(len(part), maxNoise-len(m.line))]...)
		}
		if isEnd {
			if m.inNoise {
				m.noise(string(bytes.TrimRight(m.line, "\r\n")))
			}
			m.inMessage, m.inNoise, m.line = false, false, m.line[:0]
		}
	}
	return n
}
