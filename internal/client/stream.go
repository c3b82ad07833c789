package client

import (
	"context"
	"encoding/json"

	"github.com/coder/websocket"
)

// webSocketStream carries one JSON-RPC object in each text frame.
type webSocketStream struct{ ws *websocket.Conn }

// ReadObject implements [jsonrpc2.ObjectStream].
func (s webSocketStream) ReadObject(v any) error {
	_, data, err := s.ws.Read(context.Background())
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// WriteObject implements [jsonrpc2.ObjectStream].
func (s webSocketStream) WriteObject(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), hostConnect)
	defer cancel()
	return s.ws.Write(ctx, websocket.MessageText, data)
}

// Close implements [jsonrpc2.ObjectStream].
func (s webSocketStream) Close() error { return s.ws.CloseNow() }
