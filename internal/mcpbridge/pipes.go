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
	// endTime is how long a program that has closed its stdout has to end, so that its exit code can be reported.
	endTime = 300 * time.Millisecond
)

// overPipes starts the server's program.
func (u *upstream) overPipes() (mcp.Transport, error) {
	o := u.b.o
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() { // the system would say it of the program
		return nil, fatalError{fmt.Errorf("cwd: there is no directory %s", o.Dir)}
	}
	fromServer, stdout := io.Pipe()
	program := o.Provider.Command
	p, err := proc.Start(proc.Command{
		Path: program[0], Args: program[1:], Dir: o.Dir, Env: o.Env,
		OnLine: func(from proc.Stream, line string) { o.Line(string(from), line) },
		Stdout: &messages{to: stdout, noise: func(line string) { o.Line(string(proc.Stdout), line) }},
		Keep:   1, // the lines are kept elsewhere
		Grace:  stopGrace,
	})
	if err != nil {
		return nil, fatalError{err}
	}
	o.Line(fromGateway, fmt.Sprintf("started %s as process %d", program[0], p.PID()))
	u.stop = func() {
		_ = fromServer.Close() // or the program could wait for its reader
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
		_ = stdout.Close()
	})
	return &mcp.IOTransport{Reader: fromServer, Writer: p.Stdin(), MaxLineLength: maxMessage}, nil
}

// messages passes on the lines of a server that may be messages. Others are what a program prints that was not written
// with care, and would end the connection.
type messages struct {
	to    io.Writer
	noise func(line string)

	inMessage, inNoise bool
	line               []byte // of noise
}

// Write implements io.Writer. It keeps no more than the beginning of a line that is no message.
func (m *messages) Write(data []byte) (int, error) {
	n := len(data)
	for len(data) > 0 {
		if !m.inMessage && !m.inNoise {
			if data = bytes.TrimLeft(data, " \t\r\n"); len(data) == 0 {
				break
			}
			m.inMessage = data[0] == '{' || data[0] == '['
			m.inNoise = !m.inMessage
		}
		part, isEnd := data, false
		if at := bytes.IndexByte(data, '\n'); at >= 0 {
			part, isEnd = data[:at+1], true
		}
		data = data[len(part):]
		if m.inMessage {
			if _, err := m.to.Write(part); err != nil {
				return 0, err
			}
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
	return n, nil
}
