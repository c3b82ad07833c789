package mcpbridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const methodCallTool = "tools/call"

// lineTransport is the SDK's transport to a server on pipes: messages with a line feed at the end.
// It reads the usual answer of a call itself. The SDK's own transport decodes an answer in six
// steps, each of which takes 32 KiB of memory.
type lineTransport struct {
	out io.ReadCloser // of the server
	in  io.WriteCloser
}

// Connect implements [mcp.Transport].
func (t lineTransport) Connect(context.Context) (mcp.Connection, error) {
	return &lineConn{lineTransport: t, reader: bufio.NewReaderSize(t.out, 32<<10)}, nil
}

// lineConn is a connection of a lineTransport.
type lineConn struct {
	lineTransport
	isClosed atomic.Bool
	reader   *bufio.Reader
	batch    []jsonrpc.Message // the rest of a batch
	writing  sync.Mutex        // held while a message is written
}

// SessionID implements [mcp.Connection]: pipes have no sessions.
func (c *lineConn) SessionID() string { return "" }

// Close implements [mcp.Connection]. It ends a Read that waits.
func (c *lineConn) Close() error {
	if c.isClosed.Swap(true) {
		return nil
	}
	return errors.Join(c.out.Close(), c.in.Close())
}

// Read implements [mcp.Connection].
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(c.batch) == 0 {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if answer := decodeAnswer(line); answer != nil {
			return answer, nil
		}
		if c.batch, err = decodeLine(line); err != nil {
			return nil, err
		}
	}
	message := c.batch[0]
	c.batch = c.batch[1:]
	return message, nil
}

// line reads the next line. The last one may lack its line feed.
func (c *lineConn) line() (line []byte, err error) {
	for {
		part, err := c.reader.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return nil, fmt.Errorf("a message has more than %d MiB", maxMessage>>20)
		}
		line = append(line, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case c.isClosed.Load():
			return nil, io.EOF
		default:
			return nil, err
		}
	}
}

// decodeLine decodes a message, or a batch of them.
func decodeLine(line []byte) (messages []jsonrpc.Message, err error) {
	batch := []json.RawMessage{line}
	if line[0] == '[' {
		batch = nil
		err = json.Unmarshal(line, &batch)
	}
	if err != nil || len(batch) == 0 || !json.Valid(line) {
		return nil, errors.New("a message is not JSON")
	}
	for _, data := range batch {
		message, err := jsonrpc.DecodeMessage(data)
		if err != nil {
			return nil, err
		}
		messages = append(messages, message)
	}
	return messages, nil
}

// Write implements [mcp.Connection].
func (c *lineConn) Write(ctx context.Context, message jsonrpc.Message) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	data, err := encodeMessage(message)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.in.Write(append(data, '\n'))
	return err
}

// encodeMessage encodes a message. The SDK would read and write the arguments of a call again.
func encodeMessage(message jsonrpc.Message) ([]byte, error) {
	call, _ := message.(*jsonrpc.Request)
	if call == nil || call.Method != methodCallTool {
		return jsonrpc.EncodeMessage(message)
	}
	id, isNumber := call.ID.Raw().(int64)
	if !isNumber {
		return jsonrpc.EncodeMessage(message)
	}
	data := make([]byte, 0, len(call.Params)+100)
	data = strconv.AppendInt(append(data, `{"jsonrpc":"2.0","id":`...), id, 10)
	data = append(append(data, `,"method":"tools/call","params":`...), call.Params...)
	return append(data, '}'), nil
}

// callAnswer carries the result of a call through the SDK as an error, because the SDK hands errors
// on as they are. [takeAnswer] makes it the result again.
type callAnswer struct{ result *mcp.CallToolResult }

func (*callAnswer) Error() string { return "the answer is the result of a call" }

// decodeAnswer decodes the answer to a call that has texts and nothing else. It returns nil for any
// other line, which is for the SDK.
func decodeAnswer(line []byte) jsonrpc.Message {
	var in struct {
		Version string `json:"jsonrpc"`
		ID      *int64 `json:"id"`
		Result  *struct {
			Content []struct {
				Type string  `json:"type"`
				Text *string `json:"text"`
			} `json:"content"`
			IsError bool           `json:"isError"`
			Type    string         `json:"resultType"`
			Meta    jsontext.Value `json:"_meta"` // the bridge does not read it
		} `json:"result"`
	}
	if !bytes.Contains(line, []byte(`"content"`)) ||
		jsonv2.Unmarshal(line, &in, jsonv2.RejectUnknownMembers(true)) != nil ||
		in.Version != "2.0" || in.ID == nil || in.Result == nil || in.Result.Content == nil ||
		in.Result.Type != "" && in.Result.Type != "complete" {
		return nil
	}
	result := &mcp.CallToolResult{IsError: in.Result.IsError}
	for _, content := range in.Result.Content {
		if content.Type != "text" || content.Text == nil {
			return nil
		}
		result.Content = append(result.Content, &mcp.TextContent{Text: *content.Text})
	}
	id, err := jsonrpc.MakeID(float64(*in.ID))
	if err != nil {
		return nil
	}
	return &jsonrpc.Response{ID: id, Error: &callAnswer{result}}
}

// takeAnswer is the SDK's middleware for requests that returns the result in a [callAnswer].
func takeAnswer(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		if answer, ok := errors.AsType[*callAnswer](err); ok && method == methodCallTool {
			return answer.result, nil
		}
		return result, err
	}
}
