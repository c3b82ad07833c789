package providers_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// Each event arrives as its own type and in order, whatever the functions do.
func TestSubscribe(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		heard := make(chan string, 64)
		providers.Subscribe(p, func(_ context.Context, e providers.UserMessage) {
			heard <- fmt.Sprintf("%+v", e)
		})
		providers.Subscribe(p, func(_ context.Context, e providers.UserMessage) {
			heard <- "again " + e.Content
			panic("ouch")
		})
		providers.Subscribe(p, func(_ context.Context, e providers.AssistantMessage) {
			heard <- fmt.Sprintf("%s %q", e.Content, e.ToolRequests)
			runtime.Goexit()
		})
		providers.Subscribe(p, func(_ context.Context, e providers.ToolExecution) {
			heard <- fmt.Sprintf("%s %s %s %s %t %s %v", e.Session, e.Tool, e.Provider, e.Args,
				e.Failed, e.Output, e.Duration)
		})
		providers.Subscribe(p, func(ctx context.Context, e providers.AssistantIntent) {
			heard <- fmt.Sprintf("%+v %v", e, ctx.Err())
		})
		run(t, p)
		peer := g.accept()
		hello := peer.bind()
		if got := fmt.Sprint(
			hello["subscribe"]); got != "[assistant.intent assistant.message tool.execution_complete user.message]" {
			t.Errorf("subscribed to %s, want %q", got,
				"[assistant.intent assistant.message tool.execution_complete user.message]")
		}
		for _, m := range []string{
			`"event":"user.message","data":{"content":"fix it"}`,
			`"event":"user.message","data":{"content":7}`,
			`"event":"weather","data":{}`,
			`"event":"assistant.message","data":{"content":"yes","toolRequests":[{"name":"bash","args":{"a":1}}]}`,
			`"event":"tool.execution_complete","data":{"tool":"greet","provider":"hello","args":{"a":1},"result":{"type":"success","output":"hi"},"durationMs":1.5}`,
			`"event":"tool.execution_complete","data":{"tool":"bash","args":{},"result":{"type":"failure","output":"no"},"durationMs":20}`,
			`"event":"assistant.intent","data":{"intent":"reading"}`,
		} {
			peer.send(`{"type":"session.event","sessionId":"s1",` + m + `}`)
		}
		for _, want := range []string{
			"{Session:s1 Content:fix it}", "again fix it", `yes [{"bash" "{\"a\":1}"}]`,
			`s1 greet hello {"a":1} false hi 1.5ms`, `s1 bash  {} true no 20ms`,
			"{Session:s1 Intent:reading} <nil>",
		} {
			if got := receive(t, heard); got != want {
				t.Errorf("heard %s, want %s", got, want)
			}
		}
	})
}

// A function that hangs delays only the events of its session, and a bounded number of them.
func TestSubscriberHangs(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{Session: providers.AllSessions})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		release := make(chan struct{})
		var first []string
		second := make(chan string, 1)
		providers.Subscribe(p, func(ctx context.Context, e providers.UserMessage) {
			if e.Session == "s2" {
				second <- e.Content
				return
			}
			<-release
			first = append(first, e.Content+" "+fmt.Sprint(context.Cause(ctx)))
		})
		run(t, p)
		peer := g.accept()
		peer.bindAll("s1", "s2")
		say := func(session, text string) {
			peer.send(
				fmt.Sprintf(
					`{"type":"session.event","sessionId":%q,"event":"user.message","data":{"content":%q}}`, session, text))
		}
		for i := range 1002 {
			say("s1", fmt.Sprint(i))
		}
		say("s2", "hello")
		if got := receive(t, second); got != "hello" {
			t.Errorf("heard %q, want %q", got, "hello")
		}
		const want = "user.message of session s1 was dropped: 1000 events wait"
		if err := receive(t, errs); !strings.Contains(err.Error(), want) {
			t.Errorf("OnError heard %v, want %q in it", err, want)
		}
		// The end of the session does not take away the events before it.
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s1","state":"shutdown.pending","deadline":10000}`)
		peer.next("shutdown.ready")
		close(release)
		synctest.Wait()
		if len(first) != 1001 || first[0] != "0 cancelled: session ended" ||
			first[1000] != "1000 cancelled: session ended" {
			t.Errorf(
				`heard %d: %s … %s, want 1001, "0 cancelled: session ended" and "1000 cancelled: session ended"`,
				len(first), first[0], first[len(first)-1],
			)
		}
	})
}

func TestQuery(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, o *providers.Options) {
			type result struct {
				entries []providers.Entry
				err     error
			}
			query := func(ctx context.Context, q providers.Query) <-chan result {
				c := make(chan result, 1)
				go func() {
					entries, err := p.Query(ctx, q)
					c <- result{entries, err}
				}()
				return c
			}
			c := query(t.Context(), providers.Query{Streams: []string{"ci", "git@guardian"},
				Last: 3, Session: "s1"})
			peer.expect(
				`{"type":"stream.query","queryId":"query-1","sessionId":"s1","streams":["ci","git@guardian"],"last":3}`)
			// One at a time: an error does not say which it is about.
			waits := query(t.Context(), providers.Query{})
			synctest.Wait()
			peer.send(`{"type":"stream.history","queryId":"query-0","streams":{}}`)
			peer.send(`{"type":"stream.history","queryId":"query-1","streams":{
			"git@guardian":[{"ts":"2026-04-26T14:00:30Z","event":"behind=2","level":"surface","metadata":{"a":1}}],
			"ci@sample":[{"ts":"2026-04-26T14:01:00.5Z","event":"b","level":"inject","prompt":"go"},{"ts":"2026-04-26T14:00:00Z","event":"a","level":"keep"}]}}`)
			got := receive(t, c)
			var lines []string
			for _, e := range got.entries {
				lines = append(lines, fmt.Sprintf("%s@%s %s %s %s %s %s", e.Stream, e.Provider,
					e.Time.Format(time.TimeOnly), e.Text, e.Level, e.Metadata, e.Prompt))
			}
			want := []string{"ci@sample 14:01:00 b inject  go",
				`git@guardian 14:00:30 behind=2 surface {"a":1} `, "ci@sample 14:00:00 a keep  "}
			if got.err != nil || !slices.Equal(lines, want) {
				t.Errorf("got %q, %v, want %q", lines, got.err, want)
			}

			peer.expect(`{"type":"stream.query","queryId":"query-2"}`)
			peer.send(
				`{"type":"error","code":"UNAUTHORIZED","message":"not yours","replyTo":"stream.query"}`)
			if got := receive(t, waits); codeOf(got.err) != providers.CodeUnauthorized ||
				!strings.HasPrefix(got.err.Error(), "querying: ") {
				t.Errorf("got %v, want UNAUTHORIZED", got.err)
			}
			c = query(t.Context(), providers.Query{})
			peer.next("stream.query")
			peer.send(
				`{"type":"stream.history","queryId":"query-3","streams":{"a@b":[{"ts":"yesterday","event":"x","level":"keep"}]}}`)
			if got := receive(t, c); got.err == nil ||
				!strings.Contains(got.err.Error(), `"yesterday" is not a time`) {
				t.Errorf("got %v, want an error about the time", got.err)
			}
			if got := receive(t, query(t.Context(), providers.Query{Last: -1})); codeOf(
				got.err) != providers.CodeInvalidJSON {
				t.Errorf("got %v, want INVALID_JSON", got.err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			c = query(ctx, providers.Query{})
			peer.next("stream.query")
			waits = query(ctx, providers.Query{})
			synctest.Wait()
			cancel()
			for _, c := range []<-chan result{c, waits} {
				if got := receive(t, c); got.err == nil ||
					!strings.Contains(got.err.Error(), "context canceled") {
					t.Errorf("got %v, want context canceled", got.err)
				}
			}
			c = query(t.Context(), providers.Query{})
			peer.next("stream.query")
			waits = query(t.Context(), providers.Query{})
			synctest.Wait()
			peer.cut()
			for _, c := range []<-chan result{c, waits} {
				if got := receive(t, c); got.err == nil ||
					!strings.Contains(got.err.Error(), "not bound to a session") {
					t.Errorf("got %v, want ErrNotConnected", got.err)
				}
			}
			synctest.Wait()
			if got := receive(t, query(t.Context(), providers.Query{})); got.err == nil {
				t.Error("a query without a session: no error, want one")
			}
		})
}
