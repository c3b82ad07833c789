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

// WholeNumbers is an option of json.Unmarshal that reads 15000.0 and 1.5e4 into integers: JSON has
// one kind of number, and Python writes a product of floats with a fraction.
var WholeNumbers = json.WithUnmarshalers(json.JoinUnmarshalers(
	json.UnmarshalFromFunc(decodeWhole[int]), json.UnmarshalFromFunc(decodeWhole[int64]),
	json.UnmarshalFromFunc(decodeWhole[uint64])))

// maxExact is the first whole number that a float64 can't tell from its neighbours.
const maxExact = 1 << 53

func decodeWhole[T int | int64 | uint64](dec *jsontext.Decoder, to *T) error {
	if dec.PeekKind() != '0' {
		return errors.ErrUnsupported // the library refuses it
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
