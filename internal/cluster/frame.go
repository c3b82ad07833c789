package cluster

import (
	"encoding/binary"
	"errors"
)

// A NATS message between two gateways is a head and records. The head says between which lives of
// the two it goes, so that a message of an earlier life, and a message that comes twice, is known
// as one:
//
//	kind 1 byte | from 8 | to 8 | seq 8
//
// A record is a message of the pair. Records that wait are sent together, and one that is larger
// than NATS takes is split; the parts of one stand behind each other:
//
//	op 1 byte | more 1 | conn 8 | length 4 | data
const (
	headSize   = 25
	recordSize = 14
)

// Kinds of NATS messages.
const (
	kindHello   = 1 // a gateway says in which life it is, and which life of the other it knows
	kindRecords = 2
)

// op is the kind of a record. "Up" goes from the gateway of a provider to the gateway of its
// sessions, "down" the other way.
type op byte

const (
	opPing      op = iota + 1 // the sender is there
	opOpen                    // up: a provider asks to be let in
	opUp                      // up: a frame of the provider
	opOversized               // up: the beginning of a frame that was too large to keep
	opBinary                  // up: a frame that is no text
	opCloseUp                 // up: the provider is gone
	opDown                    // down: a message for the provider
	opCloseDown               // down: the connection is closed
	opAsk                     // a question of the gateway, with an id
	opAnswer                  // its answer
	opRequest                 // a request of the admin API
	opResponse                // the head of its answer
	opBody                    // a part of the answer
	opEnd                     // the end of the answer
	opTaken                   // how many bytes of the answer were taken
	opCancel                  // the caller no longer waits for the answer
	opKept                    // the sender has kept events
)

// head is the head of a NATS message.
type head struct {
	kind     byte
	from, to uint64 // lives
	seq      uint64 // from 1, of this life's messages
}

// record is one message of a pair of gateways.
type record struct {
	op   op
	more bool // the next record goes on with it
	conn uint64
	data []byte
}

func (h head) append(dst []byte) []byte {
	dst = append(dst, h.kind)
	dst = binary.BigEndian.AppendUint64(dst, h.from)
	dst = binary.BigEndian.AppendUint64(dst, h.to)
	return binary.BigEndian.AppendUint64(dst, h.seq)
}

func (r record) append(dst []byte) []byte {
	more := byte(0)
	if r.more {
		more = 1
	}
	dst = append(dst, byte(r.op), more)
	dst = binary.BigEndian.AppendUint64(dst, r.conn)
	// At most protocol.MaxFrame.
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.data))) //nolint:gosec
	return append(dst, r.data...)
}

var errMalformed = errors.New("the message is malformed")

// readHead reads the head of a message and returns the rest.
func readHead(data []byte) (h head, rest []byte, err error) {
	if len(data) < headSize {
		return h, nil, errMalformed
	}
	h = head{data[0], binary.BigEndian.Uint64(data[1:]), binary.BigEndian.Uint64(data[9:]),
		binary.BigEndian.Uint64(data[17:])}
	if h.kind != kindHello && h.kind != kindRecords || h.from == 0 {
		return h, nil, errMalformed
	}
	return h, data[headSize:], nil
}

// readRecord reads the next record and returns the rest. The record's data is part of the argument.
func readRecord(data []byte) (r record, rest []byte, err error) {
	if len(data) < recordSize || data[1] > 1 {
		return r, nil, errMalformed
	}
	r = record{op: op(data[0]), more: data[1] == 1, conn: binary.BigEndian.Uint64(data[2:])}
	size := uint64(binary.BigEndian.Uint32(data[10:]))
	data = data[recordSize:]
	if r.op < opPing || r.op > opKept || size > uint64(len(data)) {
		return r, nil, errMalformed
	}
	r.data = data[:size:size]
	return r, data[size:], nil
}
