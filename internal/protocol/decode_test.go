package protocol

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// members reads an object as name=value pairs.
func members(data string) (string, error) {
	var b strings.Builder
	err := Object([]byte(data), func(name string, value Raw) error {
		fmt.Fprintf(&b, "%s=%s;", name, value)
		return nil
	})
	return b.String(), err
}

func TestObject(t *testing.T) {
	for _, tc := range []struct{ data, want string }{
		{`{}`, ""},
		{" \t\r\n{ \n} \n", ""},
		{`{"a":1}`, "a=1;"},
		{`{"b":[1, 2],"a":{"x" : null}}`, `b=[1, 2];a={"x" : null};`}, // order and inner space stay
		{`{"\u0061":true}`, "a=true;"},
		{`{"":""}`, `="";`},
		{`{"a":"\ud83d"}`, `a="\ud83d";`}, // a lone surrogate, written as an escape
		{`{"a":"\ude00\ud83d"}`, `a="\ude00\ud83d";`},
		{`{"a":"\ud83d\ude00"}`, `a="\ud83d\ude00";`},
		{`{"a":1e400,"b":-0,"c":123456789012345678901234567890}`,
			`a=1e400;b=-0;c=123456789012345678901234567890;`},
		{`{"a":"\u0000"}`, `a="\u0000";`},
		{`{"A":1,"a":2}`, `A=1;a=2;`}, // keys differ by case
		{`{"__proto__":1}`, `__proto__=1;`},
	} {
		got, err := members(tc.data)
		if err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.data, got, err, tc.want)
		}
	}
}

func TestObjectRefuses(t *testing.T) {
	deep := func(n int) string {
		return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	if _, err := members(deep(5000)); err != nil {
		t.Errorf("5000 levels: %v", err)
	}
	for _, tc := range []struct{ data, says string }{
		{``, "it ends too early"},
		{`   `, "it ends too early"},
		{`{`, "it ends too early"},
		{`{"a"`, "it ends too early"},
		{`{"a":`, "it ends too early"},
		{`{"a":1`, "it ends too early"},
		{`{"a":1,`, "it ends too early"},
		{`{"a":"x`, "it ends too early"},
		{`{"a":tru`, "it ends too early"},
		{`[]`, "must be a JSON object"},
		{`null`, "must be a JSON object"},
		{`"x"`, "must be a JSON object"},
		{`12`, "must be a JSON object"},
		{`x`, "not valid JSON"},
		{`{}{}`, "something follows the object"},
		{`{} x`, "something follows the object"},
		{"{}\x00", "something follows the object"},
		{`{"a":1}]`, "something follows the object"},
		{`{"a" 1}`, "not valid JSON"},
		{`{"a":1,}`, "not valid JSON"},
		{`{,}`, "not valid JSON"},
		{`{a:1}`, "not valid JSON"},
		{`{'a':1}`, "not valid JSON"},
		{`{1:1}`, "not valid JSON"},
		{`{"a":01}`, "not valid JSON"},
		{`{"a":.5}`, "not valid JSON"},
		{`{"a":+1}`, "not valid JSON"},
		{`{"a":NaN}`, "not valid JSON"},
		{`{"a":0x1}`, "not valid JSON"},
		{`{"a":"\x"}`, "not valid JSON"},
		{"{\"a\":\"\n\"}", "not valid JSON"},
		{`{"a":/*x*/1}`, "not valid JSON"},
		{"\ufeff{}", "not valid JSON"},
		{"{\"a\":\"\xff\"}", "not valid UTF-8"},
		{"{\"a\xc3\":1}", "not valid UTF-8"},
		{"{\"a\":\"\xed\xa0\x80\"}", "not valid UTF-8"}, // a surrogate in UTF-8
		{`{"a":1,"a":2}`, "a: stands twice"},
		{`{"a":1,"\u0061":2}`, "a: stands twice"},
		{`{"x":{"y":[{"k":1,"k":2}]}}`, "x.y[0].k: stands twice"},
		{deep(20000), "not valid JSON"},
	} {
		_, err := members(tc.data)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60q: %v; want %q", tc.data, err, tc.says)
		}
	}
}

// An error of visit ends the reading. The values stay valid after it.
func TestObjectValuesAreTheCallers(t *testing.T) {
	data := []byte(`{"a":"first","b":{"c":1},"d":[true]}`)
	var kept []Raw
	keep := func(_ string, v Raw) error { kept = append(kept, v); return nil }
	if err := Object(data, keep); err != nil {
		t.Fatal(err)
	}
	if err := Object([]byte(`{"zzzzzzz":"yyyyy","b":{"x":2},"d":[null]}`), keep); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s", kept[:3]); got != `["first" {"c":1} [true]]` {
		t.Errorf(`values changed: %s, want ["first" {"c":1} [true]]`, got)
	}
	if grown := append(kept[0], "XXXX"...); len(grown) == 0 ||
		string(data) != `{"a":"first","b":{"c":1},"d":[true]}` {
		t.Errorf("appending to a value wrote into the message: %s, want it as it was", data)
	}
	stop := fmt.Errorf("enough")
	if err := Object(data, func(string, Raw) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v, want the error of visit", err)
	}
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		raw, want string
		ok        bool
	}{
		{`"x"`, "x", true},
		{`""`, "", true},
		{`"\u0041\n\"\\\/"`, "A\n\"\\/", true},
		{`"\ud83d\ude00"`, "😀", true},
		{`"\ud83d"`, "\ufffd", true},
		{`"a\ud83db"`, "a\ufffdb", true},
		{`"\u0000"`, "\x00", true},
		{`1`, "", false},
		{`null`, "", false},
		{`{"a":"x"}`, "", false},
		{``, "", false},
		{`"`, "", false},
	} {
		if got, ok := Text(Raw(tc.raw)); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %q, %v; want %q, %v", tc.raw, got, ok, tc.want, tc.ok)
		}
	}
}

func TestAppendText(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"", `""`},
		{"a", `"a"`},
		{"\"\\\n\t\x01", `"\"\\\n\t\u0001"`},
		{"<b>&", `"<b>&"`}, // no HTML escaping
		{"é😀", `"é😀"`},
		{"a\xffb", "\"a\ufffdb\""},
		{"\u2028", "\"\u2028\""},
	} {
		got := string(AppendText([]byte("x"), tc.text))
		if got != "x"+tc.want {
			t.Errorf("%q: %s; want %s", tc.text, got, tc.want)
		}
		if back, ok := Text(Raw(got[1:])); !ok ||
			(back != tc.text && !strings.Contains(tc.text, "\xff")) {
			t.Errorf("%q: came back as %q, want %q", tc.text, back, tc.text)
		}
	}
}

// Keys are exact in case, and Open reads what it can of a broken message.
func TestOpen(t *testing.T) {
	for _, tc := range []struct {
		data      string
		typ       Type
		requestID string
		callID    string
		fault     string
	}{
		{`{"type":"push","requestId":"r1"}`, TypePush, "r1", "", ""},
		{`{"type":"nobody.knows"}`, "nobody.knows", "", "", ""},
		{`{"id":"c1","type":"tool.result"}`, TypeToolResult, "", "c1", ""},
		{`{"id":"c1","type":"push"}`, TypePush, "", "", ""},
		{`{"type":"push","requestId":7}`, TypePush, "", "", ""},
		{`{"\u0074ype":"pu\u0073h"}`, TypePush, "", "", ""},
		{`{}`, "", "", "", "type: is required"},
		{`{"Type":"push"}`, "", "", "", "type: is required"},
		{`{"TYPE":"push","requestId":"r"}`, "", "r", "", "type: is required"},
		{`{"type":null}`, "", "", "", "type: must be a string"},
		{`{"type":7,"requestId":"r"}`, "", "r", "", "type: must be a string"},
		{`{"type":"push","type":"hello"}`, TypePush, "", "", "type: stands twice"},
		{`{"type":"tool.result","id":"c1","data":`, TypeToolResult, "", "c1", "it ends too early"},
		{`{"type":"tool.result","id":"c1","data":"x","data":"y"}`, TypeToolResult, "", "c1",
			"data: stands twice"},
		{`{"type":"push","requestId":"r","event":tru}`, TypePush, "r", "", "not valid JSON"},
		{"{\"type\":\"push\",\"event\":\"\xff\"}", "", "", "", "not valid UTF-8"},
		{`[1]`, "", "", "", "must be a JSON object"},
		{``, "", "", "", "it ends too early"},
	} {
		f, err := Open([]byte(tc.data))
		if f.Type != tc.typ || f.RequestID != tc.requestID || f.CallID != tc.callID {
			t.Errorf("%s: %q %q %q, want %q", tc.data, f.Type, f.RequestID, f.CallID, tc.callID)
		}
		switch {
		case tc.fault == "" && err != nil:
			t.Errorf("%s: %v, want no error", tc.data, err)
		case tc.fault != "" && (err == nil || err.Code != CodeInvalidJSON ||
			!strings.Contains(err.Message, tc.fault)):
			t.Errorf("%s: %v; want %q", tc.data, err, tc.fault)
		case tc.fault != "" && (err.RequestID != tc.requestID || err.ReplyTo != tc.typ):
			t.Errorf(
				"%s: replyTo %q requestId %q, want %q and %q",
				tc.data, err.ReplyTo, err.RequestID, tc.typ, tc.requestID,
			)
		}
	}
}

func decode(data string) (Message, *Error) {
	f, err := Open([]byte(data))
	if err != nil {
		return nil, err
	}
	return f.Decode()
}

const (
	helloHead = `{"type":"hello","name":"n","protocolVersion":2,"session":"s"`
	aTool     = `{"name":"t","description":"d","parameters":{}}`
)

// tools is a list of n of them, without its brackets.
func tools(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"t%d","description":"d","parameters":{}}`, i)
	}
	return strings.Join(list, ",")
}

// An error does not repeat a type that is too long for a name.
func TestUnknownTypeIsShort(t *testing.T) {
	_, err := decode(`{"type":"` + strings.Repeat("x", 1<<20) + `"}`)
	if err == nil || err.Code != CodeUnknownType || len(err.Message) > 200 || err.ReplyTo != "" {
		t.Errorf(`%.300v, want an error, Code %v, at most 200 and ReplyTo ""`, err, CodeUnknownType)
	}
}

func TestPeek(t *testing.T) {
	big := strings.Repeat("x", 1000)
	for _, tc := range []struct {
		data string
		want Head
	}{
		{`{"type":"tool.result","id":"c1","data":"` + big, Head{Type: TypeToolResult, ID: "c1"}},
		{`{"id":"c1","requestId":"r","type":"push","event":"` + big,
			Head{Type: TypePush, ID: "c1", RequestID: "r"}},
		{`{"data":"` + big, Head{}},
		{`{"data":"` + big + `","type":"tool.result","id":"c1"}`,
			Head{Type: TypeToolResult, ID: "c1"}},
		{`{"data":[1,{"type":"push"}],"id":"c`, Head{}},
		{`{"type":7,"id":{},"x":` + big, Head{}},
		{`{"type":"push","type":"hello"`, Head{Type: TypePush}},
		{`{"type":"push"`, Head{Type: TypePush}},
		{`{"type":"pus`, Head{}},
		{`[{"type":"push"}]`, Head{}},
		{``, Head{}},
		{"\xff\xfe", Head{}},
		{"{\"x\":\"\xff\",\"type\":\"push\"", Head{Type: TypePush}},
	} {
		if got := Peek([]byte(tc.data)); got != tc.want {
			t.Errorf("%.60q: %+v, want %+v", tc.data, got, tc.want)
		}
	}
}

func TestResultCode(t *testing.T) {
	for code, want := range map[Code]Code{
		CodeNotFound: CodeNotFound, CodeTimeout: CodeTimeout, CodeCancelled: CodeCancelled,
		CodeDisconnected: CodeDisconnected,
		CodeUnauthorized: CodeUnauthorized, CodeInternal: CodeInternal,
		"": CodeInternal, "EPERM": CodeInternal, "not_found": CodeInternal,
		CodeDenied:      CodeInternal,
		CodeRateLimited: CodeInternal,
	} {
		if got := code.ResultCode(); got != want {
			t.Errorf("%q: %q, want %q", code, got, want)
		}
	}
}

// Every type belongs to one side, says its own name, and can be written.
func TestTypes(t *testing.T) {
	for typ := range fromProvider() {
		if newMessage(typ).MessageType() != typ || !typ.FromProvider() || typ.FromGateway() {
			t.Errorf("%s: %s, want a message of a provider only", typ,
				newMessage(typ).MessageType())
		}
	}
	for typ := range fromGateway() {
		if newMessage(typ).MessageType() != typ || !typ.FromGateway() || typ.FromProvider() {
			t.Errorf("%s: %s, want a message of the gateway only", typ,
				newMessage(typ).MessageType())
		}
		out := Append(nil, newMessage(typ))
		f, err := Open(out)
		if err != nil || f.Type != typ {
			t.Errorf("%s: written as %s: %v, want no error and Type %v", typ, out, err, typ)
		}
	}
	if len(fromProvider())+len(fromGateway()) != 30 {
		t.Errorf(
			"%d and %d types, the documents' tables have 17 and 13, want 30 of them",
			len(fromProvider()), len(fromGateway()),
		)
	}
}

func TestAppend(t *testing.T) {
	for _, tc := range []struct {
		m    Message
		want string
	}{
		{&Sessions{Active: []SessionInfo{}}, `{"type":"sessions","active":[]}`},
		{&SessionLifecycle{SessionID: "s", State: LifecycleShutdownPending, Deadline: 10000},
			`{"type":"session.lifecycle","sessionId":"s","state":"shutdown.pending","deadline":10000}`},
		{&ToolCall{ID: "1", SessionID: "a\"b", Tool: "t"},
			`{"type":"tool.call","id":"1","sessionId":"a\"b","tool":"t","args":{}}`},
		{&ToolCall{ID: "1", SessionID: "s", Tool: "t", Args: Raw(`{ "x" : 1e400 }`),
			Traceparent: "00-a"},
			`{"type":"tool.call","id":"1","sessionId":"s","tool":"t","args":{ "x" : 1e400 },"traceparent":"00-a"}`},
		{&Error{Code: CodeInvalidJSON, Message: "<a> & \u2028"},
			"{\"type\":\"error\",\"code\":\"INVALID_JSON\",\"message\":\"<a> & \u2028\"}"},
		{&Error{Code: CodeInvalidJSON, Message: "bad \xff byte"},
			"{\"type\":\"error\",\"code\":\"INVALID_JSON\",\"message\":\"bad \ufffd byte\"}"},
		{&Goodbye{}, `{"type":"goodbye"}`},
		{&SessionEvent{SessionID: "s", Event: "e", Data: Raw(`{"x":"\ud83d"}`)},
			`{"type":"session.event","sessionId":"s","event":"e","data":{"x":"\ud83d"}}`},
	} {
		if got := string(Append(nil, tc.m)); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}

// A call that is read from its members is the one that the JSON library reads.
func TestCallFromMembers(t *testing.T) {
	for _, data := range []string{
		`{"type":"tool.call","id":"1","sessionId":"s","tool":"t","args":{"a":[1,{"b":null}]},"traceparent":"00-a"}`,
		`{"type":"tool.call"}`,
		`{"type":"tool.call","id":"1","sessionId":null,"tool":"t","args":null}`,
		`{"type":"tool.call","id":"\ud83d \u00e9","sessionId":"a\"b","tool":"\\t","args":[]}`,
		`{"type":"tool.call","id":1,"tool":"t"}`,
		`{"type":"tool.call","id":"1","tool":["t"],"args":{}}`,
		`{"type":"tool.call","id":"1","Tool":"t","unknown":{"tool":"u"}}`,
	} {
		var want ToolCall
		wantErr := json.Unmarshal([]byte(data), &want, allowEscapes, WholeNumbers)
		m, err := decode(data)
		if (err != nil) != (wantErr != nil) {
			t.Errorf("%s: %v, want %v", data, err, wantErr)
			continue
		}
		if got, _ := m.(*ToolCall); err == nil && !reflect.DeepEqual(*got, want) {
			t.Errorf("%s: %+v, want %+v", data, got, want)
		}
	}
}
