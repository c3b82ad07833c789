package conformance

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// GatewayOptions name the gateway that [Gateway] judges. Token is its admin token. Dial opens a WebSocket at "/" or
// "/host", and returns it only after the gateway has proved that it knows the token. URL is for the report. Begin is
// called with each rule when its result comes next; it may be nil.
type GatewayOptions struct {
	URL   string
	Token string
	Dial  func(ctx context.Context, path string, header http.Header) (*websocket.Conn, *http.Response, error)
	Begin func(Rule)
}

// gatewayRulesAtOnce is how many rules run at the same time: most of their time they wait for a deadline of the
// protocol. A gateway has 50 connections, and a rule has four at once at most.
const gatewayRulesAtOnce = 8

// gatewayRule is a rule of which a gateway's providers and session hosts see whether the gateway keeps it. check
// panics with an error of [fail] or [skipf].
type gatewayRule struct {
	Rule
	check func(s *scene)
}

// GatewayRules returns the rules by which [Gateway] judges, in the order in which it reports them.
func GatewayRules() []Rule {
	var all []Rule
	for _, r := range gatewayRules() {
		all = append(all, r.Rule)
	}
	return all
}

// gatewayRules returns all rules, in the order of docs/protocol.md.
func gatewayRules() []gatewayRule {
	var all []gatewayRule
	for _, rules := range [][]gatewayRule{
		stateRules, messageRules, helloRules, trustRules, reconnectRules, endRules, callRules, resultRules,
		instanceRules, pushRules, updateRules, hookRules, promptRules, hostRules,
	} {
		all = append(all, rules...)
	}
	return all
}

// Gateway judges a gateway. The kit is a provider and a session host there, with sessions of its own for most rules,
// which it ends; it touches no others and leaves nothing behind. each gets every result, in the order of the rules. The
// error says why the run could not be finished; the report, nil if it did not begin, has what was judged until then.
func Gateway(ctx context.Context, o GatewayOptions, each func(Result)) (*Report, error) {
	run := &gatewayRun{GatewayOptions: o, namePrefix: "conformance-" + strings.ToLower(rand.Text()[:8])}
	ws, _, err := o.Dial(ctx, "/", nil)
	if err != nil {
		return nil, err
	}
	_ = ws.CloseNow()
	rules := gatewayRules()
	results := make([]chan Result, len(rules))
	slots := make(chan struct{}, gatewayRulesAtOnce)
	var running sync.WaitGroup
	for i, rule := range rules {
		results[i] = make(chan Result, 1)
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] <- run.judge(ctx, rule)
		})
	}
	defer running.Wait()
	report := &Report{Subject: o.URL}
	for i, rule := range rules {
		begin(o.Begin, rule.Rule)
		result := <-results[i]
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		report.add(result)
		each(result)
	}
	return report, nil
}

// gatewayRun is one run of the kit.
type gatewayRun struct {
	GatewayOptions
	namePrefix string // of its providers: no other run has it
}

// A rule that fails after longer than slowAttempt is tried again, at most attempts times: the machine may have stood
// still, so that the kit was too late for a deadline of the protocol, the shortest of which has 2 s. That something did
// not come in all of gatewayPatience is no such failure.
const (
	slowAttempt = 1500 * time.Millisecond
	attempts    = 3
)

// judge judges one rule.
func (g *gatewayRun) judge(ctx context.Context, rule gatewayRule) Result {
	for attempt := 1; ; attempt++ {
		begin := time.Now()
		err := g.attempt(ctx, rule)
		took := time.Since(begin)
		if err == nil || attempt == attempts || took < slowAttempt || took > gatewayPatience {
			return rule.result(err, took)
		}
	}
}

// attempt plays a rule once, and ends all that it began.
func (g *gatewayRun) attempt(ctx context.Context, rule gatewayRule) error {
	if ctx.Err() != nil {
		return skipf("the run was stopped")
	}
	// What the rule began is ended after ctx, too.
	ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &scene{run: g, name: g.namePrefix + "-" + strings.ReplaceAll(rule.ID, ".", "-"), ctx: ending, stop: ctx.Done()}
	err := s.try(func() { rule.check(s) })
	s.stop = nil
	s.close()
	cancel()
	s.reading.Wait()
	return err
}

// try returns the error with which steps of a rule panic.
func (s *scene) try(steps func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *failure:
			err = e
		case *skip:
			err = e
		default:
			panic(e)
		}
	}()
	steps()
	return nil
}
