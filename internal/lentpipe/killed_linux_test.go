package lentpipe

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tapgw/internal/jsonrpc"
)

// envBorrow makes this program a borrower of the pipe that it names.
const envBorrow = "TAPGW_TEST_BORROW"

func TestMain(m *testing.M) {
	if offer := os.Getenv(envBorrow); offer != "" {
		if err := echo(offer); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// echo borrows a pipe, and answers each part that it reads with a small message.
func echo(offer string) error {
	ends, err := ParseEnds(offer)
	if err != nil {
		return err
	}
	b, err := Borrow(ends, func([]byte) error { return errors.New("a large message") })
	if err != nil {
		return err
	}
	fmt.Println("borrowed")
	b.Begin()
	buf := make([]byte, 1000)
	for {
		if _, err := b.Read(buf); err != nil {
			return err
		}
		answer := fmt.Appendf(nil, `{"method":"answer","pad":%q}`, strings.Repeat("x", rand.IntN(3000)))
		if _, err := b.Write(jsonrpc.AppendFrame(nil, answer)); err != nil {
			return err
		}
	}
}

// TestKilledBorrower kills borrowers again and again, in the middle of messages. The owner reads all that the CLI has
// sent, once and in its order, and the CLI gets whole messages.
func TestKilledBorrower(t *testing.T) {
	in, cli := pipe(t)
	toCLI, out := pipe(t)
	own, err := Own(in)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	stop, sent := make(chan struct{}), make(chan int)
	go func() { // the CLI sends
		for i := 0; ; i++ {
			size := rand.IntN(500) //nolint:gosec // a size
			if i%20 == 0 {
				size = 100_000
			}
			_, _ = cli.Write(jsonrpc.AppendFrame(nil, fmt.Appendf(nil, "%d %s", i, strings.Repeat("y", size))))
			select {
			case <-stop:
				_ = cli.Close()
				sent <- i + 1
				return
			default:
			}
		}
	}()
	received := make(chan error, 1)
	answers := 0
	go func() { // the CLI reads
		r := bufio.NewReader(toCLI)
		for {
			data, err := jsonrpc.ReadFrame(r, maxDirect)
			if err != nil {
				received <- err
				return
			}
			if !bytes.HasPrefix(data, []byte(`{"method":"answer"`)) || !bytes.HasSuffix(data, []byte(`"}`)) {
				received <- fmt.Errorf("the CLI reads %q", data)
				return
			}
			answers++
		}
	}()
	r, w := io.Pipe() // what the owner reads
	type count struct {
		frames int
		err    error
	}
	counted := make(chan count, 1)
	go func() {
		in := bufio.NewReader(r)
		for i := 0; ; i++ {
			data, err := jsonrpc.ReadFrame(in, 1<<20)
			if err == nil && !bytes.HasPrefix(data, fmt.Appendf(nil, "%d ", i)) {
				err = fmt.Errorf("message %d is %.20q", i, data)
			}
			if err != nil {
				_ = r.CloseWithError(err)
				counted <- count{i, err}
				return
			}
		}
	}()
	for range 25 {
		ends, taken, fill, err := Offer(own, out)
		if err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0]) //nolint:gosec // this program
		child.Env = append(os.Environ(), envBorrow+"="+ends.String())
		child.Stderr = os.Stderr
		said, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
			t.Fatalf("the borrower does not borrow: %v", err)
		}
		_ = fill.Close()
		timer := time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, //nolint:gosec // a time
			func() { _ = child.Process.Kill() })
		_, err = io.Copy(w, taken)
		if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the borrower ended by itself: %v", err)
		}
		timer.Stop()
		_ = taken.Close()
		if err != nil {
			t.Fatalf("reading what was taken: %v", err)
		}
	}
	close(stop)
	_, _ = io.Copy(w, own)
	_ = w.Close()
	want, got := <-sent, <-counted
	if got.frames != want || !errors.Is(got.err, io.EOF) {
		t.Errorf("the owner has read %d messages whole (%v), want all %d", got.frames, got.err, want)
	}
	_ = out.Close()
	if err := <-received; !errors.Is(err, io.EOF) || answers == 0 {
		t.Errorf("the CLI got %d answers and then %v, want some and the end between two messages", answers, err)
	}
}
