// Package records writes down what a gateway does, as lines of JSON in files of the state
// directory, and finds lines again. docs/records.md describes their content, how long they are kept
// and when they reach the disk.
//
// A caller never waits: [Log.Record] puts the record into a bounded queue. A goroutine writes the
// queue and ends when it is empty, so that an idle gateway has no such goroutine. Records that do
// not fit, and those that can't be written, are counted, and [Log.Faults] reports them.
package records

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/visible"
)

// Limits of the queue: records, and bytes of their texts.
const (
	maxQueued      = 4096
	maxQueuedBytes = 8 << 20
	keptQueue      = 256 // records that the idle queue keeps room for
	keptBuffer     = 64 << 10
)

// linger is how long a record waits for others. To wake a goroutine and to write a line costs more
// than a call.
const linger = 20 * time.Millisecond

// Options say how long and how much to keep, and where. MaxAge and MaxBytes are of all files
// together; MaxBytes may be passed by the size of one file.
type Options struct {
	Dir      string
	MaxAge   time.Duration
	MaxBytes int64
	// Off keeps nothing; existing records can be read.
	Off bool
	// FaultsChanged is called when [Log.Faults] has changed, by the goroutine that writes; it may
	// be nil.
	FaultsChanged func()
}

// Log writes the records of one gateway and finds them again. Make one with [New]; it makes its
// directory and a file with the first record. [Log.Close] ends it. All methods may be called from
// any goroutine.
type Log struct {
	o Options

	mu          sync.Mutex // guards the fields down to fileMu
	changed     *sync.Cond // written, or Close
	queue       []adminapi.Record
	spare       []adminapi.Record
	queuedBytes int
	accepted    uint64 // into the queue
	written     uint64 // or lost by the file
	isWriting   bool
	isClosed    bool
	isOff       bool
	faults      faults
	writing     sync.WaitGroup
	urgent      chan struct{} // holds one

	fileMu sync.Mutex // held while a batch is written; never with mu
	file   file
	buffer []byte
}

// faults are the faults of the records of this process.
type faults struct {
	full      int   // records that did not fit into the queue
	unwritten int   // records that could not be written
	err       error // why
	clock     string
}

// New returns a log. It starts nothing and makes no file.
func New(o Options) *Log {
	l := &Log{o: o, isOff: o.Off, urgent: make(chan struct{}, 1)}
	l.file = file{dir: o.Dir, maxAge: o.MaxAge, maxBytes: o.MaxBytes}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Record queues a record, or counts it as lost. It never waits for the disk.
func (l *Log) Record(r adminapi.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOff || l.isClosed {
		return
	}
	size := len(r.Event) + len(r.Prompt) + len(r.Metadata)
	if len(l.queue) >= maxQueued || l.queuedBytes+size > maxQueuedBytes {
		l.faults.full++
		return
	}
	l.queue = append(l.queue, r)
	l.queuedBytes += size
	l.accepted++
	if len(l.queue) == maxQueued/4 || l.queuedBytes > maxQueuedBytes/4 {
		l.hurry()
	}
	if !l.isWriting {
		l.isWriting = true
		l.writing.Go(l.drain)
	}
}

// hurry has the queue written at once.
func (l *Log) hurry() { chans.Wake(l.urgent) }

// drain writes the queue until nothing has come for the time that records linger.
func (l *Log) drain() {
	known := l.Faults()
	for {
		select {
		case <-l.urgent:
		case <-time.After(linger):
		}
		l.mu.Lock()
		batch := l.queue
		if len(batch) == 0 {
			l.isWriting = false
			if max(cap(l.queue), cap(l.spare)) > keptQueue {
				l.queue, l.spare = nil, nil
			}
			l.mu.Unlock()
			l.trim()
			return
		}
		l.queue, l.spare, l.queuedBytes = l.spare, nil, 0
		l.mu.Unlock()
		clock, err := l.write(batch)
		l.mu.Lock()
		l.written += uint64(len(batch))
		if err != nil {
			l.faults.unwritten += len(batch)
			l.faults.err = err
		}
		l.faults.clock = clock
		clear(batch)
		l.spare = batch[:0]
		if l.isClosed {
			l.hurry() // nothing comes any more
		}
		l.changed.Broadcast()
		l.mu.Unlock()
		if now := l.Faults(); now != known && l.o.FaultsChanged != nil {
			known = now
			l.o.FaultsChanged()
		}
	}
}

// write writes a batch, and returns the fault of the clock.
func (l *Log) write(batch []adminapi.Record) (clock string, err error) {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.buffer = l.buffer[:0]
	for i := range batch {
		l.buffer = appendRecord(l.buffer, &batch[i])
	}
	err = l.file.write(l.buffer, batch[0].TS, batch[len(batch)-1].TS)
	return l.file.clock, err
}

// trim gives back the room that many records took.
func (l *Log) trim() {
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	if cap(l.buffer) > keptBuffer {
		l.buffer = nil
	}
}

// Faults describes in one line the faults of the records since the start, or returns "".
func (l *Log) Faults() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.faults
	switch {
	case f.err != nil:
		return fmt.Sprintf(
			"%s since the start could not be written: %v; make room in %s, or see who "+
				"may write there",
			visible.Count(f.unwritten+f.full, "record"), f.err, l.o.Dir)
	case f.full > 0:
		return fmt.Sprintf("%s since the start %s not kept, because the disk of %s was too slow",
			visible.Count(f.full, "record"), visible.IsAre(f.full), l.o.Dir)
	}
	return f.clock
}

// Configure changes MaxAge, MaxBytes and Off for the records from now on.
func (l *Log) Configure(o Options) {
	l.mu.Lock()
	l.isOff = o.Off
	l.mu.Unlock()
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	l.file.maxAge, l.file.maxBytes = o.MaxAge, o.MaxBytes
	if o.Off {
		_ = l.file.close()
	}
}

// Flush waits until the records so far are in their file, or ctx ends.
func (l *Log) Flush(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written < l.accepted {
		l.hurry()
	}
	for goal := l.accepted; l.written < goal && ctx.Err() == nil; {
		l.changed.Wait()
	}
}

// Close writes the queued records, has the disk take them, and ends the log.
func (l *Log) Close() error {
	l.mu.Lock()
	l.isClosed = true
	l.mu.Unlock()
	l.hurry()
	l.writing.Wait()
	l.fileMu.Lock()
	defer l.fileMu.Unlock()
	return l.file.close()
}

// Find returns the records that a query wants, oldest first, with those of this process so far.
func (l *Log) Find(ctx context.Context, q Query) (Found, error) {
	l.Flush(ctx)
	return Find(ctx, l.o.Dir, q)
}

// maxPushed bounds the events that a session's streams get back.
const maxPushed = 4000

// Pushed implements gateway.Recorder. Without readable records it returns an empty list.
func (l *Log) Pushed(session string) []adminapi.Record {
	l.mu.Lock()
	isOff := l.isOff
	l.mu.Unlock()
	if isOff {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l.Flush(ctx)
	found, err := search(ctx, l.o.Dir, newWanted(Query{Kind: adminapi.RecordPush, Session: session},
		true), maxPushed)
	if err != nil {
		return nil
	}
	return found.Records
}

// removeAll removes files; those that are gone already count as removed.
func removeAll(paths []string) (err error) {
	for _, path := range paths {
		if e := os.Remove(path); e != nil && !os.IsNotExist(e) {
			err = e
		}
	}
	return err
}
