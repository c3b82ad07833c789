package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"tapgw/internal/adminapi"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/recording"
)

// replayToken is the provider's token in a replay.
const replayToken = "ptk-00000000000000000000000000000000"

// ReplayProvider replays the gateway's part of a recording against a provider: it starts the
// command, sends the gateway's messages, and compares the provider's answers. An answer is awaited
// before the messages that followed it. The error says why nothing could be replayed.
func ReplayProvider(ctx context.Context, o ReplayOptions, command []string) (*ReplayReport, error) {
	home, err := os.MkdirTemp("", "tapctl-replay-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the provider: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }()
	listener, err := listenTCP(anyPort)
	if err != nil {
		return nil, err
	}
	s := newStage(listener, []string{replayToken}, nil)
	defer s.close()
	errs := &proc.Tail{Most: stderrLines}
	ended := make(chan error, 1)
	d := direction{
		ours: adminapi.PartyGateway, made: []string{"requestId", "queryId"},
		open: func(ctx context.Context) (replayPeer, error) {
			select {
			case l := <-s.links:
				return l, nil
			case err := <-ended:
				ended <- err // for the next
				return nil, fmt.Errorf("the provider ended: %w", err)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
	r := newReplayer(o, d, strings.Join(command, " "))
	if err := r.makeDirs(home); err != nil {
		return nil, err
	}
	program, err := startProcess(command, s.url, replayToken, home, errs)
	if err != nil {
		return nil, err
	}
	defer program.Kill()
	r.before = func(s replayStep) {
		if r.endsProvider(s) {
			program.Stop()
		}
	}
	stop := context.AfterFunc(ctx, program.Stop)
	defer stop()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		ended <- <-program.Done
	}()
	r.run(ctx)
	r.cutAll()
	program.Stop()
	<-finished
	r.report.Output = append([]string{}, errs.Lines()...)
	return r.report, ctx.Err()
}

// endsProvider reports whether the recorded provider ended here: it was stopped, which is not on
// the wire.
func (r *replayer) endsProvider(s replayStep) bool {
	isEnd := s.action == stepClosed || s.action == stepExpect &&
		s.kind() == string(protocol.TypeGoodbye)
	return isEnd && s.line.Conn == r.steps[len(r.steps)-1].line.Conn
}

// makeDirs makes a directory for each placeholder of one.
func (r *replayer) makeDirs(home string) error {
	var rules []recording.Rule
	for _, s := range r.steps {
		for _, found := range dirPlaceholder.FindAllStringSubmatch(string(s.line.Message), -1) {
			placeholder := found[0]
			if r.dirs[placeholder] != "" {
				continue
			}
			kind := strings.Trim(placeholder, "<>")
			dir := filepath.Join(home, kind) + string(filepath.Separator)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fmt.Errorf("making a directory for the provider's files: %w", err)
			}
			r.dirs[placeholder] = dir
			rules = append(
				rules,
				recording.Rule{Pattern: regexp.MustCompile(regexp.QuoteMeta(dir)), Kind: kind,
					IsSingle: true},
			)
		}
	}
	r.setDirs(rules)
	return nil
}

// setDirs replaces the home directory, and the texts that rules name, in messages that come.
func (r *replayer) setDirs(rules []recording.Rule) {
	if r.Home != "" {
		r.dirs["<home>"] = r.Home
		rules = append(rules, recording.Home(r.Home))
	}
	r.redact = recording.NewRuleRedactor(rules...)
}
