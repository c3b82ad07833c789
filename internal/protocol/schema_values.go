package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Values of JSON with exact numbers: their types, comparison and display.

// decodeExact decodes JSON as [json.Unmarshal] does, but keeps numbers as they are written, as
// json.Number. It refuses numbers with more digits than maxDigits; the error names the place.
func decodeExact(raw Raw, maxDigits int) (any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	v, err := decodeValue(d, maxDigits)
	if err == nil {
		if _, err = d.ReadToken(); err == io.EOF {
			return v, nil
		}
	}
	if !json.Valid(raw) {
		return nil, json.Unmarshal(raw, new(any)) // whose text says more about JSON that is cut off
	}
	return nil, err
}

func decodeValue(d *jsontext.Decoder, maxDigits int) (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case '{':
		m := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			key := name.String()
			if m[key], err = decodeValue(d, maxDigits); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
		return m, err
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := decodeValue(d, maxDigits)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err = d.ReadToken()
		return list, err
	case '"':
		return t.String(), nil
	case '0':
		text := t.String()
		if digitsOf(text) > maxDigits {
			return nil, faultAt(string(d.StackPointer()), "%v", tooManyDigits(text))
		}
		return json.Number(text), nil
	case 't', 'f':
		return t.Bool(), nil
	}
	return nil, nil
}

// maxDigits bounds the digits, or the places of the exponent, of the numbers that the check
// calculates with. A float64 has fewer.
const maxDigits = 1000

// exactNumber reads a number without rounding. It refuses one with more than maxDigits digits: a
// short text such as 1e1000000000 could fill the memory.
func exactNumber(text string) (*big.Rat, error) {
	if digitsOf(text) > maxDigits {
		return nil, tooManyDigits(text)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil, fmt.Errorf("%s is no number", shorten(text))
	}
	return r, nil
}

func tooManyDigits(text string) error {
	return fmt.Errorf("the number %s has more than %d digits or places", shorten(text), maxDigits)
}

// digitsOf returns how many digits a number has when it is written without an exponent, or a few
// more.
func digitsOf(text string) int {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return len(text)
	}
	places, err := strconv.Atoi(text[i+1:])
	if err != nil || places > 1<<20 || places < -1<<20 {
		return 1 << 20
	}
	return i + max(places, -places)
}

// breaks returns how a number breaks the bound, or "" if it keeps it.
func (b *bound) breaks(n *big.Rat) string {
	if b.keyword == "multipleOf" {
		if new(big.Rat).Quo(n, b.limit).IsInt() {
			return ""
		}
		return "is not a multiple of"
	}
	switch cmp := n.Cmp(b.limit); {
	case b.keyword == "minimum" && cmp < 0:
		return "is less than"
	case b.keyword == "maximum" && cmp > 0:
		return "is greater than"
	case b.keyword == "exclusiveMinimum" && cmp <= 0:
		return "is less than or equal to"
	case b.keyword == "exclusiveMaximum" && cmp >= 0:
		return "is greater than or equal to"
	}
	return ""
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		if isWhole(v.String()) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// isWhole reports whether a number is an integer, as 1.0 and 1e2 are.
func isWhole(text string) bool {
	_, exponent, ok := scientific(text)
	return ok && exponent >= 0
}

// scientific returns the digits of a number, without zeros at its ends and with a sign if it is
// below 0, and the exponent of the last one: 15 and 2 for 1.50e3. They are the same for equal
// numbers. ok is false if the exponent is out of all bounds.
func scientific(text string) (digits string, exponent int, ok bool) {
	mantissa := text
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		var err error
		exponent, err = strconv.Atoi(text[i+1:])
		if err != nil || max(exponent, -exponent) > math.MaxInt32 {
			return text, 0, false
		}
		mantissa = text[:i]
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed) - len(fraction)
	switch {
	case trimmed == "":
		return "0", 0, true
	case negative:
		trimmed = "-" + trimmed
	}
	return trimmed, exponent, true
}

func hasType(v any, want string) bool {
	_, number := v.(json.Number)
	return number && want == "number" || jsonType(v) == want
}

// canonical writes a value as text, the same for equal values. Numbers are equal if their values
// are.
func canonical(v any) string { return string(appendCanonical(nil, v)) }

func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case json.Number:
		digits, exponent, _ := scientific(v.String())
		return strconv.AppendInt(append(append(dst, digits...), 'e'), int64(exponent), 10)
	case string:
		return strconv.AppendQuote(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range sortedKeys(v) {
			dst = append(strconv.AppendQuote(dst, name), ':')
			dst = append(appendCanonical(dst, v[name]), ',')
		}
		return append(dst, '}')
	}
	return fmt.Append(dst, v)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m)) // slices.Sorted takes three times the allocations
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Bounds of how errors show a value.
const (
	maxShown      = 60 // characters
	maxShownItems = 5
)

// display returns a value as errors show it: short, and objects only by their kind.
func display(v any) string { return shorten(string(appendDisplay(nil, v))) }

func appendDisplay(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case map[string]any:
		return append(dst, "an object"...)
	case string:
		return append(dst, shorten(v)...)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ' ')
			}
			if i == maxShownItems || len(dst) > utf8.UTFMax*maxShown {
				dst = append(dst, "…"...)
				break
			}
			dst = appendDisplay(dst, e)
		}
		return append(dst, ']')
	}
	return fmt.Append(dst, v)
}

// shorten cuts a text to maxShown characters.
func shorten(text string) string {
	n, cut := 0, 0
	for i := range text {
		switch n++; n {
		case maxShown:
			cut = i
		case maxShown + 1:
			return text[:cut] + "…"
		}
	}
	return text
}
