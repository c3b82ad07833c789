package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits bounds the numbers that are calculated with: so many digits, or places
// of an exponent. What a float64 can hold has less.
const maxDigits = 1000

// exact is a number as it is written, or an error where it takes too many digits:
// a short text like 1e1000000000 could fill the memory.
func exact(text string) (*big.Rat, error) {
	if digitsOf(text) > maxDigits {
		return nil, fmt.Errorf("the number %s has more than %d digits or places", short(text), maxDigits)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%s is no number", short(text))
	}
	return r, nil
}

// digitsOf is how many digits a number has when it is written without an exponent,
// or a little more.
func digitsOf(text string) int {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if exponent == "" {
		return len(mantissa)
	}
	places, err := strconv.Atoi(exponent)
	if err != nil || places > 1<<20 || places < -1<<20 {
		return 1 << 20
	}
	return len(mantissa) + max(places, -places)
}

// isWhole reports whether a number is an integer: 1.0 and 1e2 are.
func isWhole(text string) bool {
	if !strings.ContainsAny(text, ".eE") {
		return true
	}
	r, err := exact(text)
	return err == nil && r.IsInt()
}

// sameNumber compares by value.
func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, err := exact(a.String())
	y, err2 := exact(b.String())
	return err == nil && err2 == nil && x.Cmp(y) == 0
}

// countable refuses numbers that can't be calculated with, by their place.
func countable(v any, at string) error {
	switch v := v.(type) {
	case json.Number:
		if _, err := exact(v.String()); digitsOf(v.String()) > maxDigits {
			return faultAt(at, "%v", err)
		}
	case []any:
		for i, e := range v {
			switch e.(type) {
			case json.Number, []any, map[string]any:
				if err := countable(e, at+"/"+strconv.Itoa(i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		for name, e := range v {
			switch e.(type) {
			case json.Number, []any, map[string]any:
				if err := countable(e, at+"/"+escape(name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// short is a text of which only the beginning is shown.
func short(text string) string {
	const most = 60
	if r := []rune(text); len(text) > most && len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// decodeNumbers decodes JSON with its numbers as they are written.
func decodeNumbers(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil || len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		if err := json.Unmarshal(raw, new(any)); err != nil {
			return err // it tells more of what is not whole
		}
		return err
	}
	return nil
}
