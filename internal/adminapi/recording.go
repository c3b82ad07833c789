package adminapi

import (
	"encoding/json"
	"time"
)

// RecordingVersion is the version of the format of recordings: the value of
// [RecordingStart].Recording. A reader refuses any other.
const RecordingVersion = 1

// Parties of a recording: the values of From and To of a [RecordingLine].
const (
	PartyGateway  = "gateway"
	PartyProvider = "provider"
	PartyHost     = "host"
)

// RecordingStart is the first line of a recording (docs/recordings.md): the version of the
// format, the gateway's version, the session, and the providers that are bound to it.
type RecordingStart struct {
	Recording   int                  `json:"recording"`
	Gateway     string               `json:"gateway"`
	TS          time.Time            `json:"ts"`
	Session     Session              `json:"session"`
	Connections []RecordedConnection `json:"connections"`
}

// RecordedConnection is a provider that was bound to the session when its recording began. Hello is
// a message of the type hello that would give it the same tools, gates and streams again.
type RecordedConnection struct {
	Conn     int             `json:"conn"`
	Provider string          `json:"provider"`
	Trust    string          `json:"trust"`
	Hello    json.RawMessage `json:"hello"`
	// Pending are the messages of the type tool.call that it had not answered.
	Pending []json.RawMessage `json:"pending,omitempty"`
}

// RecordingLine is each further line of a recording. It has one of Message, Text, Size,
// Closed, Gap and End. Conn numbers the connections of providers from 1.
type RecordingLine struct {
	TS       time.Time       `json:"ts"`
	Conn     int             `json:"conn,omitempty"`
	Provider string          `json:"provider,omitempty"` // "" until the connection's hello
	From     string          `json:"from,omitempty"`     // gateway, provider, host
	To       string          `json:"to,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"`
	Text     string          `json:"text,omitempty"` // a frame that is no JSON object
	Size     int             `json:"size,omitempty"` // of a frame that was not kept, in bytes
	Closed   *RecordedClose  `json:"closed,omitempty"`
	Gap      uint64          `json:"gap,omitempty"` // lines that were dropped here
	End      string          `json:"end,omitempty"` // why there are no further lines
}

// RecordedClose is the end of a connection. Code is the WebSocket's close code, 0 if the
// gateway did not close the connection.
type RecordedClose struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}
