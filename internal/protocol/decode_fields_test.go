package protocol

import (
	"strings"
	"testing"
)

// decodeCase is a message and the error that it must have. The error's message begins with want.
type decodeCase struct {
	data string
	code Code // "" for a message without a fault
	want string
}

// checkDecode decodes messages and compares code, message, replyTo and requestId of their errors.
func checkDecode(t *testing.T, cases []decodeCase) {
	t.Helper()
	for _, tc := range cases {
		m, err := decode(tc.data)
		switch {
		case tc.code == "" && err != nil:
			t.Errorf("%.150s: got %v, want no error", tc.data, err)
		case tc.code == "":
			if m == nil {
				t.Errorf("%.150s: got no message, want one", tc.data)
			}
		case err == nil:
			t.Errorf("%.150s: got no error, want %s: %s", tc.data, tc.code, tc.want)
		case err.Code != tc.code || !strings.HasPrefix(err.Message, tc.want):
			t.Errorf("%.150s:\n got %v\nwant %s: %s", tc.data, err, tc.code, tc.want)
		default:
			f, _ := Open([]byte(tc.data))
			if err.ReplyTo != f.Type || err.RequestID != f.RequestID {
				t.Errorf("%.150s: got replyTo %q and requestId %q, want %q and %q",
					tc.data, err.ReplyTo, err.RequestID, f.Type, f.RequestID)
			}
		}
	}
}

func TestDecodeNamesTheFieldAuth(t *testing.T) {
	checkDecode(t, []decodeCase{
		{`{"type":"auth","token":"t"}`, "", ""},
		{`{"type":"auth","reconnectToken":"t","name":"n","instance":"i"}`, "", ""},
		{`{"type":"auth","mode":"pair"}`, "", ""},
		{`{"type":"auth"}`, CodeInvalidJSON, "auth.token: is required"},
		{`{"type":"auth","token":""}`, CodeInvalidJSON, "auth.token: is required"},
		{`{"type":"auth","token":null}`, CodeInvalidJSON, "auth.token: is required"},
		{`{"type":"auth","token":7}`, CodeInvalidJSON, "auth.token: must be a string"},
		{`{"type":"auth","token":{"a":1}}`, CodeInvalidJSON, "auth.token: must be a string"},
		{`{"type":"auth","Token":"t"}`, CodeInvalidJSON, "auth.token: is required"},
		{`{"type":"auth","mode":"paar"}`, CodeInvalidJSON, "auth.mode: must be"},
		{`{"type":"auth","token":"t","mode":"x"}`, CodeInvalidJSON, "auth.mode: must be"},
		{`{"type":"auth.confirm"}`, CodeInvalidJSON, "auth.confirm.code: is required"},
		{`{"type":"auth.confirm","code":847293}`, CodeInvalidJSON,
			"auth.confirm.code: must be a string"},
	})
}

func TestDecodeNamesTheFieldHello(t *testing.T) {
	long := strings.Repeat("x", 65)
	checkDecode(t, []decodeCase{
		{helloHead + `}`, "", ""},
		{helloHead +
			`,"tools":null,"hooks":null,"metadata":null,"instance":null,"context":null,"subscribe":null,"concurrency":null,"reconnectToken":null,"startup_context":null}`, "", ""},
		{helloHead + `,"tools":[],"unknown":{"a":[1]},"metadata":{}}`, "", ""},
		{`{"type":"hello"}`, CodeInvalidJSON, "hello.protocolVersion: is required"},
		{`{"type":"hello","protocolVersion":2}`, CodeInvalidJSON, "hello.name: is required"},
		{`{"type":"hello","protocolVersion":2,"name":null}`, CodeInvalidJSON,
			"hello.name: is required"},
		{`{"type":"hello","protocolVersion":2,"name":""}`, CodeInvalidJSON,
			"hello.name: is required"},
		{`{"type":"hello","protocolVersion":2,"name":7}`, CodeInvalidJSON,
			"hello.name: must be a string"},
		{`{"type":"hello","protocolVersion":2,"Name":"n"}`, CodeInvalidJSON,
			"hello.name: is required"},
		{`{"type":"hello","protocolVersion":2,"name":"_n"}`, CodeInvalidJSON,
			"hello.name: must be 1 to 64"},
		{`{"type":"hello","protocolVersion":2,"name":".."}`, CodeInvalidJSON,
			"hello.name: must be 1 to 64"},
		{`{"type":"hello","protocolVersion":2,"name":"../x"}`, CodeInvalidJSON,
			"hello.name: must be 1 to 64"},
		{`{"type":"hello","protocolVersion":2,"name":"\n"}`, CodeInvalidJSON,
			"hello.name: must be 1 to 64"},
		{`{"type":"hello","protocolVersion":2,"name":"` + long + `"}`, CodeInvalidJSON,
			"hello.name: must be 1 to 64"},
		{`{"type":"hello","protocolVersion":2,"name":"` + long[:64] + `"}`, "", ""},
		{`{"type":"hello","protocolVersion":3,"name":"n"}`, CodeUnsupportedVersion,
			"hello.protocolVersion: 3 is not supported, this gateway speaks 2"},
		{`{"type":"hello","protocolVersion":1}`, CodeUnsupportedVersion,
			"hello.protocolVersion: 1"},
		{`{"type":"hello","protocolVersion":3,"tools":{"a":1}}`, CodeUnsupportedVersion,
			"hello.protocolVersion: 3"},
		{`{"type":"hello","protocolVersion":"2","name":"n"}`, CodeInvalidJSON,
			"hello.protocolVersion: must be a whole number"},
		{`{"type":"hello","protocolVersion":2.5,"name":"n"}`, CodeInvalidJSON,
			"hello.protocolVersion: must be a whole number"},
		{`{"type":"hello","protocolVersion":2.0,"name":"n"}`, "", ""},
		{`{"type":"hello","protocolVersion":0.2e1,"name":"n"}`, "", ""},
		{`{"type":"hello","protocolVersion":3.0,"tools":{"a":1}}`, CodeUnsupportedVersion,
			"hello.protocolVersion: 3 is not supported"},
		{`{"type":"hello","protocolVersion":9007199254740992.0,"name":"n"}`, CodeInvalidJSON,
			"hello.protocolVersion: must be a whole number"},
		{`{"type":"hello","protocolVersion":null,"name":"n"}`, CodeInvalidJSON,
			"hello.protocolVersion: is required"},
		{`{"type":"hello","protocolVersion":1e99,"name":"n"}`, CodeInvalidJSON,
			"hello.protocolVersion: must be a whole number"},
		{`{"type":"hello","name":"n","protocolVersion":2,"session":["s"]}`, CodeInvalidJSON,
			"hello.session: must be a string"},
		{helloHead + `,"instance":5}`, CodeInvalidJSON, "hello.instance: must be a string"},
		{helloHead + `,"instance":"` + strings.Repeat("i", 257) + `"}`, CodeInvalidJSON,
			"hello.instance: must be at most 256 bytes"},
		{helloHead + `,"metadata":[]}`, CodeInvalidJSON, "hello.metadata: must be an object"},
		{helloHead + `,"context":{}}`, CodeInvalidJSON, "hello.context: must be a string"},
		{helloHead + `,"subscribe":"user.message"}`, CodeInvalidJSON,
			"hello.subscribe: must be an array"},
		{helloHead + `,"subscribe":["user.message","x"]}`, CodeInvalidJSON, "hello.subscribe[1]: "},
		{helloHead + `,"concurrency":{"max":0}}`, CodeInvalidJSON,
			"hello.concurrency.max: must be at least 1"},
		{helloHead + `,"concurrency":{"max":1,"scope":"x"}}`, CodeInvalidJSON,
			"hello.concurrency.scope: must be one of"},
		{helloHead + `,"concurrency":5}`, CodeInvalidJSON, "hello.concurrency: must be an object"},
		{helloHead + `,"context":"` + strings.Repeat("c", MaxContext+1) + `"}`, CodePayloadTooLarge,
			"hello.context: 8193 bytes are over the limit of 8192"},
		{helloHead + `,"startup_context":"` + strings.Repeat("c", MaxContext) + `"}`, "", ""},
		{helloHead + `,"hooks":[]}`, CodeInvalidJSON, "hello.hooks: must be an object"},
		{helloHead + `,"hooks":{"onPreToolUse":[{"match":{}}]}}`, CodeInvalidJSON,
			"hello.hooks.onPreToolUse[0].action: is required"},
		{helloHead + `,"hooks":{"onPreToolUse":[{"match":{},"action":"gate"}]}}`, CodeInvalidJSON,
			"hello.hooks.onPreToolUse[0].gateId: is required"},
		{helloHead + `,"hooks":{"transforms":{"b":{},"a":{"action":"x"}}}}`, CodeInvalidJSON,
			"hello.hooks.transforms.a.action: must be one of"},
	})
}

func TestDecodeNamesTheFieldTools(t *testing.T) {
	long := strings.Repeat("x", 65)
	checkDecode(t, []decodeCase{
		{helloHead + `,"tools":{}}`, CodeInvalidJSON, "hello.tools: must be an array"},
		{helloHead + `,"tools":["x"]}`, CodeInvalidJSON, "hello.tools[0]: must be an object"},
		{helloHead + `,"tools":[null]}`, CodeInvalidJSON, "hello.tools[0].name: is required"},
		{helloHead + `,"tools":[{}]}`, CodeInvalidJSON, "hello.tools[0].name: is required"},
		{helloHead + `,"tools":[` + aTool + `,{"name":"t"}]}`, CodeInvalidJSON,
			`hello.tools[1].name: "t" stands twice`},
		{helloHead + `,"tools":[{"name":"a.b","description":"d","parameters":{}}]}`,
			CodeInvalidJSON,
			`hello.tools[0].name: "a.b" must be 1 to 64`},
		{helloHead + `,"tools":[{"name":"` + long + `","description":"d","parameters":{}}]}`,
			CodeInvalidJSON,
			"hello.tools[0].name: "},
		{helloHead + `,"tools":[{"name":"a","parameters":{}}]}`, CodeInvalidJSON,
			"hello.tools[0].description: is required"},
		{helloHead + `,"tools":[{"name":"a","description":1,"parameters":{}}]}`, CodeInvalidJSON,
			"hello.tools[0].description: must be a string"},
		{helloHead + `,"tools":[{"name":"a","description":"d"}]}`, CodeInvalidJSON,
			"hello.tools[0].parameters: is required"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":null}]}`,
			CodeInvalidJSON,
			"hello.tools[0].parameters: is required"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":"x"}]}`, CodeInvalidJSON,
			"hello.tools[0].parameters: must be an object"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{"type":"string"}}]}`,
			CodeInvalidJSON,
			`hello.tools[0].parameters: tool "a": must be the schema of an object`},
		{helloHead +
			`,"tools":[{"name":"a","description":"d","parameters":{"properties":{"x":{"type":"nix"}}}}]}`,
			CodeInvalidJSON, `hello.tools[0].parameters: tool "a": /properties/x/type: must be`},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":0}]}`,
			CodeInvalidJSON,
			"hello.tools[0].timeout: must be from 1 to 3600000"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":3600001}]}`,
			CodeInvalidJSON,
			"hello.tools[0].timeout: must be from 1"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":3600000}]}`,
			"", ""},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":"5"}]}`,
			CodeInvalidJSON,
			"hello.tools[0].timeout: must be a whole number"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":15000.0}]}`,
			"", ""},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":-1.0}]}`,
			CodeInvalidJSON,
			"hello.tools[0].timeout: must be from 1 to 3600000"},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"timeout":1500.5}]}`,
			CodeInvalidJSON,
			"hello.tools[0].timeout: must be a whole number"},
		{helloHead +
			`,"tools":[{"name":"a","description":"d","parameters":{},"timeout":null,"validate":null}]}`, "",
			""},
		{helloHead + `,"tools":[{"name":"a","description":"d","parameters":{},"validate":"no"}]}`,
			CodeInvalidJSON,
			"hello.tools[0].validate: must be true or false"},
		{helloHead + `,"tools":[` + tools(100) + `]}`, "", ""},
		{helloHead + `,"tools":[` + tools(101) + `]}`, CodePayloadTooLarge,
			"hello.tools: 101 tools are over the limit of 100"},
		// a wrong field comes before a limit
		{helloHead + `,"tools":[` + tools(101) + `],"subscribe":["x"]}`, CodeInvalidJSON,
			"hello.subscribe[0]: "},
	})
}

func TestDecodeNamesTheFieldSession(t *testing.T) {
	checkDecode(t, []decodeCase{
		{`{"type":"goodbye"}`, "", ""},
		{`{"type":"goodbye","reason":null}`, "", ""},
		{`{"type":"goodbye","reason":5}`, CodeInvalidJSON, "goodbye.reason: must be a string"},
		{`{"type":"session.ready"}`, CodeInvalidJSON, "session.ready.sessionId: is required"},
		{`{"type":"shutdown.ready"}`, "", ""},
		{`{"type":"shutdown.ready","sessionId":5}`, CodeInvalidJSON,
			"shutdown.ready.sessionId: must be a string"},
	})
}

func TestDecodeNamesTheFieldResults(t *testing.T) {
	checkDecode(t, []decodeCase{
		{`{"type":"tool.result","id":"c","data":null}`, "", ""},
		{`{"type":"tool.result","id":"c","errorCode":"X"}`, "", ""},
		{`{"type":"tool.result","id":"c","error":"x","data":1}`, "", ""},
		{`{"type":"tool.result","id":"c","data":1,"error":null,"errorCode":null,"file":null,"retryable":null}`, "", ""},
		{`{"type":"tool.result","data":1}`, CodeInvalidJSON, "tool.result.id: is required"},
		{`{"type":"tool.result","id":"","data":1}`, CodeInvalidJSON, "tool.result.id: is required"},
		{`{"type":"tool.result","id":null,"data":1}`, CodeInvalidJSON,
			"tool.result.id: must be a string"},
		{`{"type":"tool.result","id":7,"data":1}`, CodeInvalidJSON,
			"tool.result.id: must be a string"},
		{`{"type":"tool.result","ID":"c","data":1}`, CodeInvalidJSON,
			"tool.result.id: is required"},
		{`{"type":"tool.result","callId":"c","result":1}`, CodeInvalidJSON,
			"tool.result.id: is required"},
		{`{"type":"tool.result","id":"c"}`, CodeInvalidJSON, "tool.result.data: is required"},
		{`{"type":"tool.result","id":"c","error":{"m":1}}`, CodeInvalidJSON,
			"tool.result.error: must be a string"},
		{`{"type":"tool.result","id":"c","errorCode":5}`, CodeInvalidJSON,
			"tool.result.errorCode: must be a string"},
		{`{"type":"tool.result","id":"c","error":"x","retryable":"yes"}`, CodeInvalidJSON,
			"tool.result.retryable: must be true or false"},
		{`{"type":"tool.result","id":"c","file":"x"}`, CodeInvalidJSON,
			"tool.result.file: must be an object"},
		{`{"type":"tool.result","id":"c","file":{}}`, CodeInvalidJSON,
			"tool.result.file.path: is required"},
		{`{"type":"tool.result","id":"c","file":{"path":"/x","size":-1}}`, CodeInvalidJSON,
			"tool.result.file.size: must not be negative"},
		{`{"type":"tool.result","id":"c","file":{"path":"/x","ttl":"1"}}`, CodeInvalidJSON,
			"tool.result.file.ttl: must be a whole number"},
		{`{"type":"tool.progress","id":"c"}`, CodeInvalidJSON,
			"tool.progress.message: is required"},
		{`{"type":"gate.result","callId":"c","decision":"maybe"}`, CodeInvalidJSON,
			"gate.result.decision: must be one of allow, deny, context"},
		{`{"type":"transform.result","callId":"c"}`, CodeInvalidJSON,
			"transform.result.content: is required"},
		{`{"type":"transform.result","callId":"c","content":""}`, "", ""},
	})
}

func TestDecodeNamesTheFieldPush(t *testing.T) {
	checkDecode(t, []decodeCase{
		{`{"type":"push","level":"keep","event":"e"}`, "", ""},
		{`{"type":"push","level":"inject","prompt":"p","stream":null,"metadata":null}`, "", ""},
		{`{"type":"push","event":"e"}`, CodeInvalidJSON,
			"push.level: is required: one of keep, surface, inject"},
		{`{"type":"push","event":"e","level":"drop"}`, CodeInvalidJSON,
			"push.level: must be one of"},
		{`{"type":"push","event":"e","level":"Keep"}`, CodeInvalidJSON,
			"push.level: must be one of"},
		{`{"type":"push","level":"keep"}`, CodeInvalidJSON, "push.event: is required"},
		{`{"type":"push","level":"keep","event":""}`, CodeInvalidJSON, "push.event: is required"},
		{`{"type":"push","level":"keep","event":["e"]}`, CodeInvalidJSON,
			"push.event: must be a string"},
		{`{"type":"push","level":"keep","event":"e","stream":"/"}`, CodeInvalidJSON,
			"push.stream: must be 1 to 64"},
		{`{"type":"push","level":"keep","event":"e","metadata":"m"}`, CodeInvalidJSON,
			"push.metadata: must be an object"},
		{`{"type":"push","level":"keep","event":"e","broadcast":"yes"}`, CodeInvalidJSON,
			"push.broadcast: must be true or false"},
	})
}

func TestDecodeNamesTheFieldUpdates(t *testing.T) {
	checkDecode(t, []decodeCase{
		{`{"type":"tools.update"}`, CodeInvalidJSON, "tools.update.tools: is required"},
		{`{"type":"tools.update","tools":null,"remove":null}`, CodeInvalidJSON,
			"tools.update.tools: is required"},
		{`{"type":"tools.update","tools":[]}`, "", ""},
		{`{"type":"tools.update","remove":[]}`, "", ""},
		{`{"type":"tools.update","remove":"x"}`, CodeInvalidJSON,
			"tools.update.remove: must be an array"},
		{`{"type":"tools.update","remove":[1]}`, CodeInvalidJSON,
			"tools.update.remove[0]: must be a string"},
		{`{"type":"tools.update","tools":[{"name":"a"}],"requestId":"r"}`, CodeInvalidJSON,
			"tools.update.tools[0].description: is required"},
		{`{"type":"tools.update","tools":[` + tools(101) + `]}`, CodePayloadTooLarge,
			"tools.update.tools: 101 tools"},
		{`{"type":"tools.update","tools":[],"requestId":5}`, CodeInvalidJSON,
			"tools.update.requestId: must be a string"},
		{`{"type":"context.update"}`, CodeInvalidJSON, "context.update.context: is required"},
		{`{"type":"context.update","context":""}`, "", ""},
		{`{"type":"filter.set","stream":"s"}`, CodeInvalidJSON, "filter.set.rules: is required"},
		{`{"type":"filter.set","stream":"s","rules":[{"match":"x","outcome":"nothing"}]}`,
			CodeInvalidJSON,
			"filter.set.rules[0].outcome: must be one of drop"},
		{`{"type":"filter.set","stream":"s","rules":[{"match":"` + strings.Repeat("x",
			MaxPattern+1) +
			`","outcome":"keep"}]}`, CodeInvalidJSON,
			"filter.set.rules[0].match: must be at most 1024 bytes"},
		{`{"type":"stream.query"}`, CodeInvalidJSON, "stream.query.queryId: is required"},
		{`{"type":"stream.query","queryId":"q","last":0}`, CodeInvalidJSON,
			"stream.query.last: must be at least 1"},
		{`{"type":"stream.query","queryId":"q","last":1000}`, "", ""}, // clamped, not refused

		{`{"type":"nobody.knows"}`, CodeUnknownType, `unknown message type "nobody.knows"`},
	})
}
