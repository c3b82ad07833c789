package protocol

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// WholeNumbers reads 15000.0 and 1.5e4 as the whole numbers that they are: JSON has
// one kind of number, and Python writes a product with a fraction.
var WholeNumbers = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(whole[int]), json.UnmarshalFromFunc(whole[int64]), json.UnmarshalFromFunc(whole[uint64])))

// maxExact is past the whole numbers that a number with a fraction or an exponent
// can tell from their neighbours.
const maxExact = 1 << 53

func whole[T int | int64 | uint64](dec *jsontext.Decoder, to *T) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported // the library's to refuse
	}
	v, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if bytes.ContainsAny(v, ".eE") {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) >= maxExact || T(f) < 0 != (f < 0) {
			return &json.SemanticError{JSONKind: '0', GoType: reflect.TypeFor[T]()}
		}
		*to = T(f)
		return nil
	}
	return json.Unmarshal(v, to)
}
