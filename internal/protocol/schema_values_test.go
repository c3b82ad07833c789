package protocol

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

func compileT(t testing.TB, raw string) *Schema {
	t.Helper()
	s, err := CompileSchema(Raw(raw))
	if err != nil {
		t.Fatalf("compiling %s: %v", raw, err)
	}
	return s
}

// 19.99 is a multiple of 0.01, though not as a float64, and 19.995 is not.
func TestPricesAreExact(t *testing.T) {
	alone := compileT(t,
		`{"type":"object","properties":{"price":{"type":"number","multipleOf":0.01,"minimum":0}}}`)
	optional := compileT(t,
		`{"properties":{"price":{"anyOf":[{"type":"number","multipleOf":1e-2},{"type":"null"}]}}}`)
	r := rand.New(rand.NewPCG(1, 2))
	prices := 20_000
	if testing.Short() {
		prices = 2_000
	}
	for range prices {
		cents := r.Int64N(1 << r.Int64N(60))
		price := fmt.Sprintf("%d.%02d", cents/100, cents%100)
		for text, want := range map[string]bool{price: true, price + "0": true, price + "5": false,
			fmt.Sprintf("%de-2", cents): true, fmt.Sprintf("%d1e-3", cents): false} {
			for _, s := range []*Schema{alone, optional} {
				if err := s.Check(Raw(`{"price":` + text + `}`)); (err == nil) != want {
					t.Fatalf("%s: %v, want %v", text, err, want)
				}
			}
		}
	}
	if err := optional.Check(Raw(`{"price":null}`)); err != nil {
		t.Error(err)
	}
	if err := alone.Check(Raw(`{"price":19.995}`)); err == nil ||
		err.Error() != "/properties/price: multipleOf: 19.995 is not a multiple of 0.01" {
		t.Error(err)
	}
}

// Bounds, constants and whole numbers hold beyond what a float64 can tell apart,
// also where the schema is one of those that most tools have.
func TestNumbersAreTakenAsWritten(t *testing.T) {
	for _, tc := range []struct {
		says, value string
		fits        bool
	}{
		{`"maximum":9007199254740992`, "9007199254740993", false},
		{`"maximum":9007199254740993`, "9007199254740993", true},
		{`"minimum":9007199254740993`, "9007199254740992", false},
		{`"exclusiveMinimum":9007199254740992`, "9007199254740993", true},
		{`"exclusiveMaximum":0.1`, "0.1", false},
		{`"maximum":0.1`, "0.1", true},
		{`"maximum":0.1`, "0.10000000000000000001", false},
		{`"maximum":0.1000000000000000055511151231257827`, "0.1", true},
		{`"minimum":0.1000000000000000055511151231257827`, "0.1", false},
		{`"minimum":1`, "0.99999999999999999999", false},
		{`"maximum":1`, "1.00000000000000000000", true},
		{`"const":9007199254740993`, "9007199254740992", false},
		{`"const":1.0`, "1", true},
		{`"enum":[0.1,9007199254740993]`, "9007199254740993.0", true},
		{`"enum":[0.1,9007199254740993]`, "9007199254740992", false},
		{`"type":"integer"`, "9007199254740993.5", false},
		{`"type":"integer"`, "1e400", true},
		{`"type":"integer"`, "15000.0", true},
		{`"type":"number","maximum":1e308`, "1e309", false},
		{`"multipleOf":9007199254740993`, "9007199254740994", false},
		{`"multipleOf":1e-320`, "3e-320", true},
	} {
		for _, schema := range []string{`{"type":"object","properties":{"n":{"type":"number",%s}}}`,
			`{"properties":{"n":{%s}}}`, `{"properties":{"n":{"not":{"not":{%s}}}}}`} {
			if strings.Contains(tc.says, `"type"`) {
				schema = strings.Replace(schema, `"type":"number",`, "", 1)
			}
			err := compileT(t, fmt.Sprintf(schema, tc.says)).Check(Raw(`{"n":` + tc.value + `}`))
			if (err == nil) != tc.fits {
				t.Errorf("%s under %s: %v, want %v", tc.value, tc.says, err, tc.fits)
			}
		}
	}
	unique := compileT(t, `{"properties":{"a":{"uniqueItems":true}}}`)
	for list, fits := range map[string]bool{`[1,1.0]`: false,
		`[9007199254740992,9007199254740993]`: true,
		`[{"a":1e2,"b":2},{"b":2,"a":100}]`:   false, `["1",1]`: true} {
		if err := unique.Check(Raw(`{"a":` + list + `}`)); (err == nil) != fits {
			t.Errorf("%s: %v, want %v", list, err, fits)
		}
	}
}

// A number whose digits would fill the memory is refused, in arguments and schemas,
// and the error names its place.
func TestEndlessNumbersAreRefused(t *testing.T) {
	for _, schema := range []string{`{"type":"object","properties":{"n":{"type":"number"}}}`,
		`{"type":"object","properties":{"n":{"type":"integer"}}}`} {
		s := compileT(t, schema)
		for _, n := range []string{"1e1000000000", "-1E-1000000000", "1e99999999999999999999",
			strings.Repeat("1", 2000), "0." + strings.Repeat("3", 2000)} {
			if err := s.Check(Raw(`{"n":` + n + `}`)); err == nil ||
				!strings.HasPrefix(err.Error(), "/n: the number ") || len(err.Error()) > 200 {
				t.Errorf(
					`%.20s under %s: %v, want an error, "/n: the number " at its start and at most 200`,
					n, schema, err,
				)
			}
		}
	}
	for _, says := range []string{`"minimum":1e1000000000`, `"multipleOf":1e-1000000000`} {
		if _, err := CompileSchema(Raw(`{"properties":{"n":{` + says + `}}}`)); err == nil ||
			!strings.Contains(err.Error(), "/properties/n/m") {
			t.Errorf(`%s: %v, want an error and "/properties/n/m" in it`, says, err)
		}
	}
}

// FuzzNumbers holds the bounds against math/big.
func FuzzNumbers(f *testing.F) {
	for _, seed := range [][2]string{{"19.99", "0.01"}, {"9007199254740993", "9007199254740992"},
		{"1e-3", "1e3"},
		{"-0", "0.0"}, {"1E400", "7"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, value, limit string) {
		v, l := Raw(value), Raw(limit)
		if !json.Valid(v) || !json.Valid(l) || v.Kind() != '0' || l.Kind() != '0' ||
			digitsOf(value) > 300 || digitsOf(limit) > 300 {
			return
		}
		n, ok := new(big.Rat).SetString(strings.TrimSpace(value))
		m, ok2 := new(big.Rat).SetString(strings.TrimSpace(limit))
		if !ok || !ok2 {
			t.Fatalf("%q and %q are numbers", value, limit)
		}
		want := map[string]bool{"minimum": n.Cmp(m) >= 0, "maximum": n.Cmp(m) <= 0,
			"exclusiveMinimum": n.Cmp(m) > 0, "exclusiveMaximum": n.Cmp(m) < 0,
			"const": n.Cmp(m) == 0}
		if m.Sign() > 0 {
			want["multipleOf"] = new(big.Rat).Quo(n, m).IsInt()
		}
		for keyword, fits := range want {
			s, err := CompileSchema(fmt.Appendf(nil,
				`{"type":"object","properties":{"n":{"type":"number",%q:%s}}}`, keyword, limit))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Check(fmt.Appendf(nil, `{"n":%s}`, value)); (err == nil) != fits {
				t.Errorf("%s of %s under %s: %v, want %v", keyword, limit, value, err, fits)
			}
		}
	})
}
