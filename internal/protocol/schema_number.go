package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// maxDigits bounds the digits, or the places of the exponent, of the numbers that the check calculates with. A
// float64 has fewer.
const maxDigits = 1000

// exactNumber reads a number without rounding. It refuses one with more than maxDigits digits: a short text such as
// 1e1000000000 could fill the memory.
func exactNumber(text string) (*big.Rat, error) {
	if digitsOf(text) > maxDigits {
		return nil, fmt.Errorf("the number %s has more than %d digits or places", shorten(text), maxDigits)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%s is no number", shorten(text))
	}
	return r, nil
}

// digitsOf returns how many digits a number has when it is written without an exponent, or a few more.
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

// isWhole reports whether a number is an integer, as 1.0 and 1e2 are.
func isWhole(text string) bool {
	if !strings.ContainsAny(text, ".eE") {
		return true
	}
	r, err := exactNumber(text)
	return err == nil && r.IsInt()
}

// sameNumber compares two numbers by value.
func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, err := exactNumber(a.String())
	y, err2 := exactNumber(b.String())
	return err == nil && err2 == nil && x.Cmp(y) == 0
}

// checkDigits refuses a number with too many digits anywhere in v; the error names its place.
func checkDigits(v any, at string) error {
	switch v := v.(type) {
	case json.Number:
		if _, err := exactNumber(v.String()); digitsOf(v.String()) > maxDigits {
			return faultAt(at, "%v", err)
		}
	case []any:
		for i, e := range v {
			switch e.(type) {
			case json.Number, []any, map[string]any:
				if err := checkDigits(e, at+"/"+strconv.Itoa(i)); err != nil {
					return err
				}
			}
		}
	case map[string]any:
		for name, e := range v {
			switch e.(type) {
			case json.Number, []any, map[string]any:
				if err := checkDigits(e, at+"/"+escape(name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// shorten cuts a text to 60 characters.
func shorten(text string) string {
	const most = 60
	if r := []rune(text); len(text) > most && len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// decodeNumbers decodes JSON into v and keeps numbers as they are written, as json.Number.
func decodeNumbers(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil || len(bytes.TrimSpace(raw[d.InputOffset():])) > 0 {
		if err := json.Unmarshal(raw, new(any)); err != nil {
			return err // its text says more about JSON that is cut off
		}
		return err
	}
	return nil
}
