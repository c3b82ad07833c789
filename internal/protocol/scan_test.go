package protocol

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// read tells what a way of reading an object finds in it.
func read(
	way func([]byte, func(string, Raw) error) error, data string,
) (found []string, err error) {
	err = way([]byte(data), func(name string, v Raw) error {
		found = append(found, name+"="+string(v))
		return nil
	})
	return found, err
}

// scanSeeds are objects, right and wrong, at the edges of what scan is sure of.
func scanSeeds() []string {
	const scanMembers = len(scanner{}.found)
	var many, wide strings.Builder
	for i := range scanMembers + 1 {
		fmt.Fprintf(&many, `"k%d":%d,`, i, i)
		if i < scanMembers {
			fmt.Fprintf(&wide, `"k%d":%d,`, i, i)
		}
	}
	seeds := []string{
		`{}`, ` {} `, "\t{\r\n\"a\" : 1 , \"b\":[ ] }\n",
		`{"a":{"a":{}},"b":[{},[],"",0,true,false,null]}`,
		`{"a":"\"\\\/\b\f\n\r\t\u00e9\ud800"}`, `{"a":"é€𝄞"}`, `{"":1}`, `{"\u0061":1,"a":2}`,
		`{"\u0061":1}`,
		`{"a":-0.5e+10,"b":-0,"c":1E9,"d":0.0}`, `{"a":123456789012345678901234567890}`,
		`{` + strings.TrimSuffix(many.String(), ",") + `}`, `{` +
			strings.TrimSuffix(wide.String(), ",") + `}`,
		`{"a":{` + strings.TrimSuffix(many.String(), ",") + `}}`,
		strings.Repeat(`{"a":`, scanDepth) + `1` + strings.Repeat(`}`, scanDepth),
		strings.Repeat(`{"a":`, scanDepth-1) + `1` + strings.Repeat(`}`, scanDepth-1),
		`{"a":` + strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100) + `}`,
		// Wrong ones.
		``, ` `, `[]`, `1`, `"a"`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`,
		`{"a":1,}`, `{,}`, `{a:1}`,
		`{"a" 1}`,
		`{"a":1 "b":2}`, `{} {}`, `{}x`, "{}\x00", `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`,
		`{"a":[{"b":1,"b":2}]}`,
		`{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e}`, `{"a":+1}`, `{"a":tru}`,
		`{"a":nul}`, `{"a":truex}`,
		`{"a":NaN}`,
		`{"a":[1,]}`, `{"a":[,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":"\x"}`, `{"a":"\u12"}`,
		`{"a":"\u12g4"}`,
		"{\"a\":\"\x01\"}", `{"a":"\`, "{\"a\":\"\n\"}",
		"{\"a\":\"\xff\"}", "\xef\xbb\xbf{}", `{"a":/**/1}`, `{'a':1}`,
	}
	return seeds
}

// Whatever scan is sure of, the library says too.
func FuzzScan(f *testing.F) {
	for _, s := range scanSeeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		got, err := read(Object, data)
		if !utf8.ValidString(data) {
			if err == nil {
				t.Fatalf("%q: read, and is no UTF-8, want an error", data)
			}
			return
		}
		want, wantErr := read(object, data)
		if fmt.Sprint(err) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q:\nfound %q, %v\nwant  %q, %v", data, got, err, want, wantErr)
		}
	})
}

// The scanner reads the frequent messages without the library.
func TestScanIsSure(t *testing.T) {
	for _, data := range []string{
		`{"type":"tool.result","id":"0199a1b2-0000-7000-8000-000000000000","data":{"text":"a \"line\"\nand another","n":[1,2.5,-3e4]}}`,
		`{"jsonrpc":"2.0","id":7,"method":"tool/call","params":{"sessionId":"s","name":"t","args":{"path":"/a/b","all":true,"none":null}}}`,
	} {
		s := scanner{data: []byte(data)}
		if _, ok := s.members(); !ok {
			t.Errorf("not sure of %s, want it read", data)
		}
	}
}

// An error of the visitor's ends the reading, whichever way it goes.
func TestObjectVisitorEnds(t *testing.T) {
	enough := errors.New("enough")
	for _, data := range []string{`{"a":1,"b":2}`, `{"\u0061":1,"b":2}`} {
		visits := 0
		err := Object([]byte(data), func(string, Raw) error { visits++; return enough })
		if !errors.Is(err, enough) || visits != 1 {
			t.Errorf("%s: %d visits, %v; want one, and its error", data, visits, err)
		}
	}
}

func BenchmarkObject(b *testing.B) {
	for name, data := range map[string]string{
		"result": `{"type":"tool.result","id":"0199a1b2-0000-7000-8000-000000000000","data":{"text":"a line of text","n":[1,2.5,-3e4]}}`,
		"page": `{"type":"tool.result","id":"0199a1b2-0000-7000-8000-000000000000","data":"` +
			strings.Repeat(`a line of text\n`, 10000) + `"}`,
	} {
		for way, read := range map[string]func(
			[]byte, func(string, Raw) error) error{"scan": Object,
			"library": object} {
			b.Run(name+"/"+way, func(b *testing.B) {
				data := []byte(data)
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if err := read(data, func(string, Raw) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
