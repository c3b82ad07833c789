package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/proc"
	"tapgw/internal/protocol"
)

// ProviderOptions say which provider [Provider] judges, and which of its tools it calls.
type ProviderOptions struct {
	// Command starts the provider. Without it, the kit listens at URL and waits for a provider that
	// a person starts with Token; rules about the provider's process are skipped.
	Command []string
	URL     string
	Token   string
	// Tool is called again and again with Args. "": the kit chooses a tool whose arguments it can
	// make.
	Tool string
	Args json.RawMessage
	// SlowTool runs, with SlowArgs, until it is cancelled. "": rules that need one are skipped.
	SlowTool string
	SlowArgs json.RawMessage
	// Begin is called with each rule when its turn comes; it may be nil.
	Begin func(Rule)
	// Waiting is called when the kit begins to listen at URL; it may be nil.
	Waiting func(url, token string)
	// Pairing shows the code of a provider without a token to the person who types it there. nil:
	// such a provider can't be bound.
	Pairing func(code string)
}

// anyPort is a free port of the loopback address.
const anyPort = "127.0.0.1:0"

// largeRest is the size that the rest of the largest message may have beside its text.
const largeRest = 64 << 10

// quiet is how long the kit waits to see that something does not come which no other message can
// show.
const quiet = 1500 * time.Millisecond

// The sessions of the kit: the one to which it binds the provider, and the one after that.
const (
	firstSession = "kit-session-1"
	nextSession  = "kit-session-2"
)

// kit judges one provider. One goroutine runs the checks; the readers of the connections only
// watch, and answer messages that need no decision.
type kit struct {
	// Fixed at creation.
	ctx    context.Context
	opts   ProviderOptions
	start  func(url, token string) (Program, error) // nil if a person starts it
	listen func(address string) (net.Listener, error)
	large  int // bytes of the largest message

	// Fixed before the first check.
	ledger *ledger
	home   string     // an empty directory
	errs   *proc.Tail // of the programs' stderr

	// The state of the present check.
	stage   *stage
	program *Program      // nil before the first start, and with a URL
	ended   error         // how the program ended; errRuns while it runs
	link    *providerConn // the last connection, or nil
	acked   *providerConn // the last connection with a hello.ack
	hello   frame         // the last one
	session string        // the bound one

	// The findings of earlier checks.
	tool, slow call  // the calls that the kit makes
	noTool     error // why it can't call a tool
	unbound    error // why no check can bind the provider
	serial     bool  // a call that runs holds up others
	absent     bool  // it does not come back
	silent     bool  // it does not answer the end of its session
	stays      bool  // it does not end
	tokens     int   // reconnect tokens so far
}

// call is a tool with arguments.
type call struct {
	name string
	args json.RawMessage
}

var errRuns = errors.New("it runs")

// Provider plays the gateway for a provider and judges it by the rules of [ProviderRules]. each
// gets every result as soon as it is known. The error says why the run could not be finished; rules
// that were not kept are in the report.
func Provider(ctx context.Context, opts ProviderOptions, each func(Result)) (*Report, error) {
	k := &kit{ctx: ctx, opts: opts, listen: listenTCP, large: protocol.MaxFrame - largeRest}
	if opts.URL == "" {
		k.start = func(url, token string) (Program, error) {
			return startProcess(opts.Command, url, token, k.home, k.errs)
		}
	}
	return k.run(each)
}

// run judges the provider.
func (k *kit) run(each func(Result)) (*Report, error) {
	dir, err := os.MkdirTemp("", "conformance-*")
	if err != nil {
		return nil, fmt.Errorf("making a directory for files: %w", err)
	}
	defer os.RemoveAll(dir)
	k.home, k.errs, k.ended = dir, &proc.Tail{Most: stderrLines}, errRuns
	k.slow = call{k.opts.SlowTool, k.opts.SlowArgs}
	persist := filepath.Join(dir, "persist")
	if err := os.Mkdir(persist, 0o700); err != nil {
		return nil, fmt.Errorf("making a directory for files: %w", err)
	}
	k.ledger = newLedger(persist)
	if k.opts.Token == "" {
		k.opts.Token = "ptk-" + uuid.NewString()
	}
	address, subject := anyPort, strings.Join(k.opts.Command, " ")
	if k.opts.URL != "" {
		subject = k.opts.URL
		if address, err = ListenAddress(k.opts.URL); err != nil {
			return nil, err
		}
	}
	if err := k.open(address); err != nil {
		return nil, err
	}
	defer func() { k.drop(); k.stage.close() }()
	if k.opts.URL != "" && k.opts.Waiting != nil {
		k.opts.Waiting(k.stage.url, k.opts.Token)
	}
	report := &Report{Subject: subject}
	err = k.judge(report, each)
	report.Stderr = k.errs.Lines()
	return report, err
}

// open opens the gateway's place.
func (k *kit) open(address string) error {
	listener, err := k.listen(address)
	if err == nil {
		k.stage = newStage(listener, []string{k.opts.Token}, k.heard)
	}
	return err
}

// ListenAddress returns the address at which the kit listens for the URL of [ProviderOptions]: a
// host of this machine alone, and a port. The error names the fault of the URL.
func ListenAddress(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "ws" && u.Scheme != "http" {
		return "", fmt.Errorf("%q is no URL like ws://127.0.0.1:9555", text)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("%s is no address of this machine alone: name 127.0.0.1 and a port",
			u.Host)
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil {
		return "",
			fmt.Errorf(
				"%s has no port up to 65535: name one that is free, like ws://127.0.0.1:9555", text)
	}
	return u.Host, nil
}

// judge runs all checks. Watched rules are judged at the end, when all was seen.
func (k *kit) judge(report *Report, each func(Result)) error {
	stimuli := map[string]error{}
	tell := func(result Result) {
		report.add(result)
		each(result)
	}
	for _, c := range providerChecks() {
		if c.run == nil {
			continue
		}
		begin(k.opts.Begin, c.Rule)
		began := time.Now()
		err := c.run(k)
		if k.ctx.Err() != nil {
			return context.Cause(k.ctx)
		}
		if errors.Is(err, errNoProgram) || errors.Is(err, errNoTool) {
			return err
		}
		if err != nil && !isSkip(err) {
			k.drop()
		}
		if c.watched {
			stimuli[c.ID] = err
			continue
		}
		tell(c.result(err, time.Since(began)))
	}
	k.drop()
	for _, c := range providerChecks() {
		if c.run != nil && !c.watched {
			continue
		}
		seen, err := k.ledger.verdict(c.ID)
		if err == nil {
			err = stimuli[c.ID]
		}
		if err == nil && c.run == nil && !seen {
			err = skipf("%s", c.unseen)
		}
		tell(c.result(err, 0))
	}
	return nil
}

func isSkip(err error) bool {
	_, ok := errors.AsType[*skip](err)
	return ok
}

// launch starts the provider anew, at a port of its own, so that nothing of the one before comes
// there. With a URL it cuts the connection, and the provider comes back by itself. how is how the
// gateway proves itself.
func (k *kit) launch(how proving) error {
	k.drop()
	k.stage.setProof(how)
	if k.start == nil {
		return nil
	}
	k.stage.close()
	k.ledger.forget()
	if err := k.open(anyPort); err != nil {
		return err
	}
	k.stage.setProof(how)
	p, err := k.start(k.stage.url, k.opts.Token)
	if err != nil {
		return err
	}
	k.program, k.ended = &p, errRuns
	return nil
}

// drop ends the connection and the program.
func (k *kit) drop() {
	if k.link != nil {
		k.link.cut()
		k.link = nil
	}
	if k.program != nil {
		k.program.Kill()
		k.program = nil
	}
	k.stage.setProof(provesToken)
	for {
		select {
		case l := <-k.stage.links:
			l.cut()
			continue
		default:
		}
		return
	}
}

// done returns the channel of the program's end. It is nil if the end is known or the kit started
// no program.
func (k *kit) done() <-chan error {
	if k.program == nil || !errors.Is(k.ended, errRuns) {
		return nil
	}
	return k.program.Done
}

// end keeps how the program ended.
func (k *kit) end(err error) { k.ended = orNoError(err) }

// accept waits for the provider's next connection.
func (k *kit) accept() (*providerConn, error) {
	select {
	case k.link = <-k.stage.links:
		return k.link, nil
	default:
	}
	if k.program != nil && !errors.Is(k.ended, errRuns) {
		return nil, fail("a connection", "the provider has ended: %v", k.ended)
	}
	wait := startPatience
	if k.start == nil && len(k.stage.connects()) == 0 {
		wait = time.Hour // a person is about to start it
	}
	select {
	case k.link = <-k.stage.links:
		return k.link, nil
	case err := <-k.done():
		k.end(err)
		return nil, fail("a connection", "the provider ended: %v", k.ended)
	case <-k.ctx.Done():
		return nil, context.Cause(k.ctx)
	case <-time.After(wait):
		return nil, fail("a connection", "none in %v", wait)
	}
}

// next returns the next message of one of the types, and passes over all others.
func (k *kit) next(l *providerConn, types ...protocol.Type) (frame, error) {
	return k.nextWithin(patience, l, types...)
}

// nextWithin is [kit.next] with a patience of its own.
func (k *kit) nextWithin(
	patience time.Duration, l *providerConn, types ...protocol.Type,
) (frame, error) {
	want := fmt.Sprintf("%v", types)
	want = strings.ReplaceAll(strings.Trim(want, "[]"), " ", " or ")
	timeout := time.After(patience)
	for {
		select {
		case f, ok := <-l.frames:
			if !ok {
				return frame{}, fail(want, "the provider closed the connection")
			}
			for _, typ := range types {
				if f.typ() == typ {
					return f, nil
				}
			}
		case <-k.ctx.Done():
			return frame{}, context.Cause(k.ctx)
		case <-timeout:
			return frame{}, fail(want, "nothing like that in %v", patience)
		}
	}
}
