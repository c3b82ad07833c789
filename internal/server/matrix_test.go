package server_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"tapgw/internal/protocol"
)

const (
	corpusDir  = "../../testdata/wire"
	matrixPath = "../../docs/wire-matrix.md"
)

// rules are those of the core profile, of v2 and of what settles both: a
// sentence each, and the conversations of the corpus that show it, or where none
// can, a Go test as PACKAGE.TestName.
var rules = []struct {
	title string
	rules [][2]string
}{
	{"Endpoint and frames", [][2]string{
		{"A WebSocket upgrade at / is a provider", "core-call"},
		{"A Host that is no loopback name and not configured is 421, a foreign origin elsewhere than at / is 403",
			"internal/server.TestGuard internal/server.TestKnownHost internal/server.TestForeignOrigin"},
		{"50 provider connections; the 51st upgrade is 503 with Retry-After; /host does not count",
			"internal/server.TestConnectionCap internal/server.TestPlaces"},
		{"Before it has authenticated a connection may send 64 KiB", "internal/server.TestLittleBeforeAuth"},
		{
			"Pages of other origins have a few places of their own until they are let in, and pair by a count of each " +
				"origin, and by one of all",
			"internal/server.TestPlaces internal/server.TestPagesKeepToThemselves " +
				"internal/server.TestPairingIsNotGuessed",
		},
		{"Who has not authenticated within 10 s is closed with 1008", "auth-timeout"},
		{"While draining, upgrades are refused and every connection ends with 1001",
			"drain internal/server.TestDraining"},
		{"A binary frame of UTF-8 is text, any other is INVALID_JSON",
			"binary call-failfast request-id internal/server.TestBadFrames"},
		{"Messages of a connection are taken, and sent, in order", "v2-updates push-inject"},
		{"tool.result: 5 MiB, everything else: 2 MiB, at the limit and one past; neither is fatal", "sizes"},
		{"A frame of more than 16 MiB closes with 1009", "sizes"},
		{
			"A peer that does not read is closed and holds up nobody",
			"internal/server.TestFrozenProvider internal/server.TestSlowConsumerByBytes " +
				"internal/server.TestSlowConsumerByTime",
		},
		{"Two connections and two sessions never hear of each other's matters", "crosstalk"},
	}},
	{"Authentication and tokens", [][2]string{
		{"The instance token makes a project provider, of any one session", "auth v2-trust-project"},
		{"A spawn token binds its own session and dies with it", "scope v2-trust-project"},
		{"The admin token makes an internal provider", "auth v2-trust-internal"},
		{"A token that proves nothing is AUTH_FAILED and closes with 1008", "auth"},
		{"A foreign origin may pair or use a paired or reconnect token, no other", "auth-foreign v2-pairing"},
		{"auth may carry a reconnectToken in place of a token; one that is unknown or expired is AUTH_FAILED",
			"reconnect auth v2-pairing"},
		{
			"More than 20 wrong secrets a minute of one address and further wrong ones are 429 for a minute; a right one " +
				"is never refused",
			"internal/server.TestSecrets internal/server.TestWrongTokensAddUp",
		},
		{"Malformed auth is answered and may be tried again", "auth"},
	}},
	{"Names", [][2]string{
		{
			"Names and streams are known in lower case, other characters as '-'; acks and queries say how; two spellings " +
				"clash",
			"names-spelled",
		},
		{"What pairing approved is the only name that hello may say; else UNAUTHORIZED", "names-owned"},
		{"A provider file's name is its provider's alone", "internal/gateway.TestFileKeepsItsName"},
		{"A name in a session, with its streams and filters, belongs to one identity", "names-owned"},
	}},
	{"Pairing", [][2]string{
		{
			"auth with mode pair is answered auth.pairing; the code goes to the timeline and to who lists pairings, " +
				"never to the provider",
			"pairing v2-pairing",
		},
		{"The code goes to the session that auth names, else the foreground one, else the newest",
			"pairing v2-pairing"},
		{"Without a session, or with one that does not exist, INVALID_SESSION", "pairing v2-pairing"},
		{"The right code gives sessions with a token", "pairing v2-pairing"},
		{"One try a connection: a wrong code is AUTH_FAILED and closes with 1008", "pairing v2-pairing-limits"},
		{"A code is good for 2 minutes", "pairing v2-pairing-limits"},
		{"5 attempts a minute, counted at auth; the sixth is RATE_LIMITED and stays open", "pairing v2-pairing-limits"},
		{"The paired token opens another connection, of a foreign origin too", "v2-pairing"},
		{"Code and token end with their session, also for a later session of the same id", "v2-pairing"},
	}},
	{"Trust", [][2]string{
		{
			"internal: tools, pushes, rules, callbacks, every static transform, every stream, every event, context, any " +
				"session and all",
			"v2-trust-internal",
		},
		{"project: all of that but others' streams and all sessions", "v2-trust-project"},
		{"external: tools, pushes, static append, own streams, tool events, the paired session",
			"v2-trust-external pairing"},
		{
			"external: rules, callbacks, prepend and replace, context, other events are UNAUTHORIZED in hello and in " +
				"updates",
			"v2-trust-external",
		},
		{"all sessions: UNAUTHORIZED below internal; others' streams: UNAUTHORIZED below internal",
			"v2-trust-project v2-trust-external v2-streams"},
		{"A session outside a provider's scope is INVALID_SESSION in each of the eight session-scoped messages",
			"v2-trust-project scope v2-all"},
		{"cwd is shown of sessions that the provider may bind", "scope v2-trust-external"},
		{"A file reference from a provider without persistDir is UNAUTHORIZED", "pairing v2-progress-file"},
	}},
	{"States", [][2]string{
		{"Every message in every state: legal, INVALID_STATE or UNKNOWN_TYPE; none of the refused changes anything",
			"states internal/server.TestEveryMessageInEveryState"},
		{"A provider without a session to choose waits; the first comes as sessions, later changes as sessions.updated",
			"waiting"},
		{"A hello with all while there is no session is forgotten", "waiting all"},
		{"The list begins with what the provider may bind, then the foreground session, then the newest",
			"scope waiting"},
		{"A new label, foreground, beginning or end of a session is told to all", "waiting host-session"},
		{"A failed hello leaves AwaitHello or Unbound, free to try again", "hello-fields hello-limits rebind"},
		{"An Unbound provider gets sessions as well as sessions.updated when there is a session that it may bind",
			"session-switch lifecycle"},
		{"goodbye closes with 1000", "states lifecycle reconnect"},
	}},
	{"Validation", [][2]string{
		{"Order: size, JSON, type, state, fields, authority, limits; the first failure answers",
			"states v2-trust-external sizes hello-fields"},
		{"An error has replyTo, and the requestId that the message had", "request-id"},
		{"An error has providerId and sessionId where there are any", "hello-fields states v2-all"},
		{"A missing or wrong field is INVALID_JSON and named",
			"hello-fields push-levels v2-hooks-update v2-filters v2-streams"},
		{"A missing type is INVALID_JSON, an unknown one UNKNOWN_TYPE", "auth states"},
		{"Unknown fields are ignored; keys are exact in case and stand once", "auth hello-fields"},
		{"null in an optional field is absence", "hello-fields v2-hooks-update v2-streams v2-pairing-limits"},
		{"Another protocolVersion is UNSUPPORTED_VERSION and closes", "hello-fields"},
		{"Names of tools, providers and streams have their characters and lengths",
			"hello-fields push-levels v2-filters"},
		{"A tool's parameters must compile as JSON Schema of an object; the error names the tool and the place",
			"hello-schemas internal/protocol.TestCompileSchemaNamesThePlace"},
		{"A schema that never ends is refused",
			"hello-schemas internal/protocol.TestCompileSchemaRefusesWhatNeverEnds"},
		{"A pattern that only JavaScript's engine takes is accepted and not checked, the rest of its schema is",
			"hello-schemas internal/protocol.TestForeignPatterns"},
		{"What is empty or null in a list of names is INVALID_JSON", "limits"},
	}},
	{"Limits, at the limit and one past it", [][2]string{
		{"tool.result 5 MiB, all other messages 2 MiB, a frame 16 MiB", "sizes"},
		{"A result in a file: 64 MiB", "internal/server.TestPersistRead"},
		{"context and startup_context: 8 KiB each", "hello-limits v2-context"},
		{"A pattern of a rule, a glob or a filter: 1 KiB", "v2-hooks-args v2-hooks-match v2-filters"},
		{"Text that a pattern is tried on: 64 KiB", "v2-hooks-args v2-filters"},
		{"Names of tools, providers and streams: 64 characters; of instances: 256 bytes, of whose title 200 are shown",
			"limits v2-instances-schema"},
		{"Tools of a provider: 100", "hello-limits tools-update v2-updates"},
		{"Hook rules of a provider: 50", "v2-hooks-update limits"},
		{"Sections that a provider changes: 50; rules of a filter: 100", "limits"},
		{"Streams of a provider in a session: 20", "push-streams limits"},
		{"Events of a stream: 200; of a provider's streams in a session: 64 MiB",
			"push-ring internal/gateway.TestStreamBytes"},
		{"Events of a query: 20 when left out, 100 of a stream, 4 MiB of text",
			"v2-streams v2-streams-ring internal/gateway.TestHistoryFits"},
		{"Pushes: 10 a second for each (provider, session)", "push-rate"},
		{"Injects that wait: 10; cycles without the user: 3", "push-inject push-cycles"},
		{"Calls that wait for a slot: 10 in each scope", "concurrency v2-concurrency-scopes"},
		{"Calls that ended and are remembered: 1024", "internal/gateway.TestTombstones"},
		{"hello, bound or unbound: 10 a minute", "rebind"},
		{"Pairings: 5 a minute", "pairing v2-pairing-limits"},
		{"Connections: 50", "internal/server.TestConnectionCap"},
		{"What waits to be read: 8 MiB, 10 s",
			"internal/server.TestSlowConsumerByBytes internal/server.TestSlowConsumerByTime"},
		{"Wrong tokens of one address: 20 a minute", "internal/server.TestSecrets"},
		{"Steps, errors and depth of one check of arguments; patterns of one schema",
			"hello-schemas internal/protocol.TestCheckIsBounded internal/protocol.TestPatternsAreBounded"},
		{"A tool's timeout: 1 ms to 1 h, 300 s when left out", "limits call-timeout"},
		{"auth: 10 s; a pairing code: 2 minutes", "auth-timeout v2-pairing-limits"},
		{"A gate: 5 s; a transform: 2 s", "gates v2-hooks-gates v2-transforms"},
		{"A reconnect token: 30 s; a host that drops: 30 s", "reconnect host-drop"},
		{"The end of a session: 10 s", "lifecycle v2-all"},
		{"The slot of a cancelled call: 5 s", "v2-concurrency-time"},
		{"A new tool list: 200 ms after the last change, 1 s after the first", "refresh"},
	}},
	{"Binding", [][2]string{
		{
			"hello.ack has protocolVersion, providerId, sessionId, reconnectToken, and persistDir but for external " +
				"providers",
			"core-call v2-trust-external",
		},
		{"At bind the provider gets started, and idle if the session is idle", "lifecycle v2-filters"},
		{"hello.session left out binds the identity's only session; with none it is INVALID_JSON",
			"scope v2-pairing hello-fields"},
		{"A session that does not exist, or ends, is INVALID_SESSION", "states hello-fields rebind drain"},
		{"A rebind takes the old state away before the new is there; calls are CANCELLED with reason rebind",
			"rebind v2-concurrency-scopes"},
		{"A failed rebind leaves Unbound; 10 a minute, the 11th is RATE_LIMITED and changes nothing", "rebind"},
		{"Tools of two providers may not have one name in one session: TOOL_CONFLICT", "hello-limits all v2-all"},
		{"Names that begin with list_ and another provider's name are TOOL_CONFLICT",
			"hello-limits v2-instances-schema"},
		{
			"A session's list is given to it 200 ms after the last change, 1 s after the first at most; an unchanged one " +
				"not",
			"refresh v2-updates",
		},
		{"A host that takes tools live is given each list at once", "refresh"},
	}},
	{"Identity and reconnecting", [][2]string{
		{"Two connections of one name without instance may coexist; the same explicit instance is DUPLICATE_INSTANCE",
			"identity v2-instances-routing"},
		{"A reconnect token works once, while the connection is up and for 30 s after", "reconnect"},
		{"It takes over: the older connection is closed with 4001, its calls are DISCONNECTED",
			"identity reconnect v2-instances-routing"},
		{"The providerId stays, and so does each part that the hello leaves out; a part that is empty is gone",
			"restore identity v2-instances-routing v2-all"},
		{"A used or expired token in hello counts as absent; goodbye voids it", "reconnect"},
		{"Calls in flight at a disconnect are DISCONNECTED and not replayed",
			"core-call identity v2-instances-routing"},
	}},
	{"Sessions' ends", [][2]string{
		{
			"shutdown.pending with a deadline of 10,000 ms; the gateway goes on when all have answered, or at the " +
				"deadline",
			"lifecycle v2-all",
		},
		{"shutdown.ready, goodbye and a closed socket are answers", "lifecycle"},
		{"A goodbye that answers shutdown.pending leaves the reconnect token good", "session-switch"},
		{"A provider of the session that ended is Unbound and may hello again", "lifecycle states"},
		{"Calls in flight are CANCELLED at the end", "states v2-hooks-calls"},
		{"A provider that the user stops is closed", "stop"},
	}},
	{"All sessions", [][2]string{
		{"hello.ack.sessionId is all; tools, rules and context are in every session", "all v2-all"},
		{"A new session gets them at session.ready, not before, gates included", "all v2-all"},
		{"session.ready of a single-session provider for its own session is a no-op", "states"},
		{
			"A push without a target is INVALID_SESSION, a broadcast to no session too unless it is to be kept; " +
				"broadcast goes to every bound session, a budget each",
			"all v2-all v2-receipts",
		},
		{"An update while there is no session is confirmed for all", "all"},
		{"Updates with a sessionId change that session alone, without one all, with an ack each",
			"all v2-all v2-context"},
		{"stream.query needs a sessionId", "v2-streams"},
		{"shutdown.ready for each session that ends; the connection stays", "all v2-all"},
		{"A conflict in one session fails the whole hello, or the session.ready", "all v2-all"},
	}},
	{"Calls", [][2]string{
		{
			"args are checked against the schema before dispatch, INVALID_ARGUMENTS names the property; validate false " +
				"opts out",
			"core-call hello-schemas",
		},
		{"A tool that does not exist is NOT_FOUND", "core-call"},
		{"data goes to the session as it came", "call-results"},
		{"errorCode without error, and data beside error, are errors; an unknown code is INTERNAL", "call-results"},
		{
			"A call ends at its timeout: tool.cancel, TIMEOUT; 300 s, the tool's own from 1 ms to 1 h, or the caller's " +
				"smaller one",
			"call-timeout hello-fields v2-hooks-calls",
		},
		{"An interrupt, or the caller giving up: tool.cancel with reason interrupted, CANCELLED", "call-cancel"},
		{"The first terminal message wins; late and double results are ignored in silence",
			"call-late call-timeout call-cancel"},
		{
			"A result for an id that was never issued is UNKNOWN_CALL_ID and fails fast: the one pending call, or the " +
				"connection with 4002",
			"call-failfast v2-concurrency-change",
		},
		{"Malformed and oversized input that may be an answer fails fast the same way", "call-failfast sizes"},
		{"Each call ends exactly once", "internal/gateway.TestCallsEndOnce"},
		{"traceparent goes on in tool.call and gate.check", "v2-hooks-calls host-calls v2-host-hooks"},
		{"tool.progress shows in the timeline and extends nothing; for an unknown id it is ignored",
			"v2-progress-file"},
		{"A file result is read from the provider's persistDir, and nowhere else, up to 64 MiB",
			"v2-progress-file internal/server.TestPersistRead"},
		{"persistDir is made at hello, for its user alone", "internal/server.TestPersistMake"},
	}},
	{"Concurrency", [][2]string{
		{"max calls at once, others wait in order, 10 at most; the next is RATE_LIMITED; without max there is no limit",
			"concurrency v2-concurrency-scopes"},
		{"Scopes instance, provider and tool", "v2-concurrency-scopes"},
		{"A cancelled call's slot is free at its answer, or after 5 s",
			"concurrency v2-concurrency-time v2-concurrency-scopes"},
		{"A queued call's timeout runs from when it was queued; the provider never hears of one that is given up",
			"v2-concurrency-time concurrency"},
		{"A disconnect frees what the connection held", "v2-concurrency-scopes"},
		{"What waits goes by the tools and rules that are there when it is its turn", "v2-concurrency-change"},
	}},
	{"Instances", [][2]string{
		{"Instances share their tools: one copy with target, whose description names them by title or url",
			"v2-instances-schema"},
		{"list_NAME_instances answers instance, metadata and lastActiveAt", "instances v2-instances-routing"},
		{"target chooses and is taken out of args; an unknown one is NOT_FOUND",
			"instances v2-instances-schema v2-instances-routing"},
		{"Without target: the most recently active instance", "v2-instances-routing"},
		{"Schemas that differ, and a target of one's own, are TOOL_CONFLICT", "instances v2-instances-schema"},
		{"retryable: once, on the next most recently active instance, within the call's time, never with a target",
			"instances v2-instances-routing"},
		{"An instance that leaves takes its calls and its name along", "instances v2-instances-routing"},
	}},
	{"Updates", [][2]string{
		{"With requestId an ack per session, without silence; errors either way",
			"tools-update v2-updates v2-hooks-update"},
		{"Revisions rise for each (provider, session), over rebinds and reconnects", "v2-updates"},
		{"Updates are done in order, each before the next is read", "v2-updates"},
		{"tools.update replaces; with remove it is a delta", "tools-update v2-updates"},
		{"Calls in flight to a removed tool run to their own end; later ones go by the new list", "tools-update-calls"},
		{"hooks.update: rules present replace, absent stay; transforms merge, null removes", "v2-hooks-update"},
		{"context.update replaces, an empty text clears", "v2-context"},
		{"After the ack no dispatch goes by the old state", "tools-update-calls v2-hooks-change"},
		{"What fails leaves the old state whole, in all sessions", "tools-update v2-hooks-update v2-filters all"},
	}},
	{"Hook rules", [][2]string{
		{"match.tool: exact, a glob with *, and the host's aliases", "v2-hooks-match v2-host-hooks"},
		{
			"match.args: a JavaScript regular expression on JSON.stringify(args); other spellings of the same are the " +
				"same",
			"v2-hooks-args",
		},
		{"match.file: a glob on path, file, filePath or file_path; match.provider: who owns the tool",
			"v2-hooks-match"},
		{
			"A pattern that takes too long, or args over 64 KiB, match for deny and gate, not for context, and are " +
				"counted",
			"v2-hooks-args v2-hooks-match",
		},
		{"A pattern of 1 KiB is taken, a longer or wrong one is INVALID_JSON and named",
			"v2-hooks-args v2-hooks-match"},
		{"deny blocks with its reason and asks nobody", "gates v2-hooks-gates"},
		{"context allows and adds its content", "gates v2-hooks-args"},
		{"gate asks with gate.check; allow, deny, or context with the reason", "gates v2-hooks-gates"},
		{"All gates of a call are asked at once; any deny wins; contexts join in registration order", "v2-hooks-gates"},
		{"No answer within 5 s denies with the reason of v2; failOpen allows", "gates v2-hooks-gates"},
		{"A disconnect, a rebind or a malformed answer denies", "gates v2-hooks-gates"},
		{"gate.result for an unknown or finished id is ignored and counted", "v2-hooks-gates"},
		{"Rules that join while gates are asked are asked too", "v2-hooks-change"},
		{
			"A host without hooks has the gates asked inside the call: DENIED; cancel, interrupt and the session's end " +
				"stop the asking",
			"gates v2-hooks-calls",
		},
		{"A host with hooks asks by itself, but not for a call from elsewhere", "gates v2-hooks-calls v2-host-hooks"},
		{"A rule that can match no tool of the session warns in its timeline", "v2-hooks-match v2-hooks-calls"},
	}},
	{"Prompt", [][2]string{
		{"context with every prompt, startup_context with the first, in the order of joining, an empty line between",
			"context v2-context"},
		{"Who comes back does not give its startup_context again", "v2-context"},
		{"append, prepend, replace, in registration order", "transforms v2-transforms"},
		{"callback: transform.request with what stands so far; 2 s of silence or a lost connection keep it",
			"transforms v2-transforms"},
		{"transform.result for an unknown or finished id is ignored", "v2-transforms"},
		{"safety and identity take only append, from anyone: UNAUTHORIZED", "v2-transforms-protected transforms"},
		{"What a host is answered for them ends with its own text", "v2-host-hooks"},
	}},
	{"Pushes", [][2]string{
		{"keep stores, surface shows too, inject goes to the session too; a prompt implies a turn", "push-levels"},
		{
			"event or prompt is required; without event the prompt is stored; the stream is the provider's name by " +
				"default",
			"push-levels",
		},
		{"10 a second for each (provider, session), RATE_LIMITED and not stored beyond", "push-rate"},
		{"An inject waits for idle; 10 are held, the next is RATE_LIMITED", "push-inject"},
		{"After three cycles without the user, injects are surfaced with a warning until the user speaks",
			"push-cycles v2-receipts"},
		{"A host without send: injects are surfaced; without log: the gateway's own timeline only",
			"push-hosts v2-receipts"},
		{"Receipts: stored, surfaced, queued and then delivered, surfaced with the reason, or dropped", "v2-receipts"},
		{"Shown text loses what could control a terminal", "push-levels v2-progress-file"},
	}},
	{"Streams and filters", [][2]string{
		{"A filter's outcome replaces the level; first match wins; none keeps the level; drop stores nothing",
			"streams v2-filters"},
		{"A filter's pattern that takes too long, or a text over 64 KiB, is no match", "v2-filters"},
		{"No rules take the filter away; a wrong one leaves the old", "streams v2-filters"},
		{"A filter of another provider's stream is UNAUTHORIZED", "v2-filters"},
		{"200 events for each stream; streams belong to the name and live as long as the session",
			"push-ring push-streams v2-streams"},
		{"stream.query: newest first, 20 when left out, 100 at most, 0 refused; keys are stream@provider",
			"streams v2-streams v2-streams-ring"},
	}},
	{"Events and lifecycle", [][2]string{
		{"started, idle and shutdown.pending come without being asked for", "lifecycle"},
		{"The four events with their payloads, to who subscribed, in order", "v2-subscribe v2-host-hooks"},
		{"External providers hear of tools only", "v2-subscribe v2-trust-external"},
	}},
	{"Session hosts", [][2]string{
		{"initialize first, with the admin token; a refused one closes", "host-initialize"},
		{"session/register, update and end; another host's session is -32004; -32602 names the field", "host-session"},
		{"tool/call: a failed tool is a result with errorCode; tool/cancel by callId", "host-calls v2-host-hooks"},
		{"hook/preToolUse, hook/userPrompt with source, prompt/transform, session/event", "v2-host-hooks host-calls"},
		{"tools/set, session/send, session/log, session/interrupt; a host that refuses loses nothing", "host-requests"},
		{"A host that counts injects is told at idle how many come", "host-injects"},
		{"A host that drops has 30 s to come back", "host-drop"},
		{"A file result is text for text types, else mimeType, size and base64", "v2-host-hooks"},
	}},
}

// corpusUse says which files hold what, by what they show.
type corpusUse map[string][]string

func (u corpusUse) add(what, file string) {
	if !slices.Contains(u[what], file) {
		u[what] = append(u[what], file)
	}
}

var (
	sentType     = regexp.MustCompile(`^\S+>(?:pad \d+)? \{.*"type":"([a-z._]+)"`)
	receivedType = regexp.MustCompile(`^\S+< \{"type":"([a-z.]+)"`)
	receivedCode = regexp.MustCompile(`^\S+< .*"(?:code|errorCode)":"([A-Z_]+)"`)
	outcomeCode  = regexp.MustCompile(`^\S+= ([A-Z_]+) "`)
	closeCode    = regexp.MustCompile(`^\S+<close (\d+) `)
)

// readCorpus finds which message types, codes and close codes occur in which
// conversation, and the names of all of them.
func readCorpus(t *testing.T) (types, codes, closes corpusUse, names []string) {
	types, codes, closes = corpusUse{}, corpusUse{}, corpusUse{}
	files, err := filepath.Glob(filepath.Join(corpusDir, "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		names = append(names, name)
		for line := range strings.Lines(string(archive.Files[0].Data)) {
			for _, find := range []struct {
				re  *regexp.Regexp
				use corpusUse
			}{{sentType, types}, {receivedType, types}, {receivedCode, codes}, {outcomeCode, codes}, {closeCode,
				closes}} {
				if m := find.re.FindStringSubmatch(line); m != nil {
					find.use.add(m[1], name)
				}
			}
		}
	}
	return types, codes, closes, names
}

var goTest = regexp.MustCompile(`^(internal/[a-z]+)\.(Test[A-Za-z0-9]+)$`)

// shown checks what a rule is shown by and writes it for the document.
func shown(t *testing.T, rule, by string, names []string, used map[string]bool) string {
	var cells []string
	for what := range strings.FieldsSeq(by) {
		if m := goTest.FindStringSubmatch(what); m != nil {
			if !hasTest(t, m[1], m[2]) {
				t.Errorf("%q: there is no %s in %s", rule, m[2], m[1])
			}
			cells = append(cells, fmt.Sprintf("`%s` in [%s](../%s)", m[2], m[1], m[1]))
			continue
		}
		if !slices.Contains(names, what) {
			t.Errorf("%q: there is no conversation %s", rule, what)
		}
		used[what] = true
		cells = append(cells, corpusLink(what))
	}
	if len(cells) == 0 {
		t.Errorf("%q is shown by nothing", rule)
	}
	return strings.Join(cells, ", ")
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(src, []byte("\nfunc "+name+"(t *testing.T)"))
	})
}

func corpusLink(name string) string {
	return fmt.Sprintf("[%s](../testdata/wire/%s.txtar)", name, name)
}

// TestWireMatrix holds the corpus to the rules: each rule is shown by something
// that is there, each conversation shows a rule, and every message type and code
// occurs. It writes, with -update, or compares docs/wire-matrix.md.
func TestWireMatrix(t *testing.T) {
	types, codes, closes, names := readCorpus(t)
	var doc strings.Builder
	doc.WriteString("# What shows each rule of the provider protocol\n\n" +
		"Made by `go test ./internal/server -run WireMatrix -update`; the rules are in internal/server/matrix_test.go. " +
		"A name is a conversation in testdata/wire, played over a real WebSocket, in process as text, and in process as messages that were never text.\n")
	used := map[string]bool{}
	for _, section := range rules {
		fmt.Fprintf(&doc, "\n## %s\n\n| Rule | Shown by |\n|---|---|\n", section.title)
		for _, r := range section.rules {
			fmt.Fprintf(&doc, "| %s | %s |\n", r[0], shown(t, r[0], r[1], names, used))
		}
	}
	for _, name := range names {
		if !used[name] {
			t.Errorf("%s.txtar shows no rule: add it to one in matrix_test.go", name)
		}
	}
	table := func(title, what string, use corpusUse, all []string) {
		fmt.Fprintf(&doc, "\n## %s\n\n| %s | Occurs in |\n|---|---|\n", title, what)
		for _, one := range all {
			if len(use[one]) == 0 {
				t.Errorf("%s %s occurs in no conversation", what, one)
			}
			var cells []string
			for i, name := range use[one] {
				if i == 4 { // more would make the page change with every conversation
					cells = append(cells, "and more")
					break
				}
				cells = append(cells, corpusLink(name))
			}
			fmt.Fprintf(&doc, "| `%s` | %s |\n", one, strings.Join(cells, ", "))
		}
	}
	stateTable(&doc)
	table("Messages from the provider", "Message", types, texts(slices.Collect(maps.Keys(fromProvider))))
	table("Messages from the gateway", "Message", types, texts(fromGateway))
	table("Codes", "Code", codes, texts(allCodes))
	table("Close codes", "Code", closes, []string{"1000", "1001", "1008", "1009", "4001", "4002"})

	if *update {
		if err := os.WriteFile(matrixPath, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(matrixPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != doc.String() {
		t.Errorf("%s is stale: go test ./internal/server -run WireMatrix -update", matrixPath)
	}
}

// stateTable writes what TestEveryMessageInEveryState tries.
func stateTable(doc *strings.Builder) {
	doc.WriteString(
		"\n## States and messages\n\n`TestEveryMessageInEveryState` in [internal/server](../internal/server) sends each in each, over every transport. " +
			"What only the gateway sends, and what nobody knows, is UNKNOWN_TYPE in all of them; a closed connection " +
			"says no more.\n\n| Message |",
	)
	for _, st := range connStates {
		doc.WriteString(" " + st.name + " |")
	}
	doc.WriteString("\n|---|" + strings.Repeat("---|", len(connStates)) + "\n")
	for _, typ := range texts(slices.Collect(maps.Keys(fromProvider))) {
		fmt.Fprintf(doc, "| `%s` |", typ)
		for _, st := range connStates {
			cell := "INVALID_STATE"
			if slices.Contains(st.legal, protocol.Type(typ)) {
				cell = "legal"
			}
			doc.WriteString(" " + cell + " |")
		}
		doc.WriteString("\n")
	}
}

// allCodes are those of errors and of outcomes.
var allCodes = []protocol.Code{
	protocol.CodeAuthFailed, protocol.CodeDuplicateInstance, protocol.CodeInvalidJSON, protocol.CodeInvalidSession,
	protocol.CodeInvalidState,
	protocol.CodePayloadTooLarge, protocol.CodeRateLimited, protocol.CodeToolConflict, protocol.CodeUnauthorized,
	protocol.CodeUnknownCallID,
	protocol.CodeUnknownType, protocol.CodeUnsupportedVersion, protocol.CodeCancelled, protocol.CodeDenied,
	protocol.CodeDisconnected,
	protocol.CodeInternal, protocol.CodeInvalidArguments, protocol.CodeNotFound, protocol.CodeTimeout,
}

// texts are names in order.
func texts[T ~string](list []T) []string {
	all := make([]string, len(list))
	for i, one := range list {
		all[i] = string(one)
	}
	slices.Sort(all)
	return all
}
