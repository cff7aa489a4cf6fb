package inbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"sync"
)

// Codec turns a message into the payload that is stored, and back.
// Implementations must be safe for concurrent use.
type Codec interface {
	// Encode receives the message as it was given to Add: a value or a pointer.
	Encode(message any) ([]byte, error)
	// Decode fills message, a pointer to a zero value of the registered type.
	// Its error is permanent: the message dies at once with that reason.
	Decode(payload []byte, message any) error
}

// jsonCodec is encoding/json with two differences: numbers in fields of type any
// arrive as json.Number, digit for digit, and bytes after the value are refused.
type jsonCodec struct{}

func (jsonCodec) Encode(message any) ([]byte, error) { return json.Marshal(message) }

func (jsonCodec) Decode(payload []byte, message any) error {
	if !holdsAny(reflect.TypeOf(message)) {
		return json.Unmarshal(payload, message) // the same in half the time
	}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	if err := decoder.Decode(message); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

var typesWithAny sync.Map // reflect.Type -> bool

// holdsAny reports that a value of the type can hold a number in an interface.
func holdsAny(t reflect.Type) bool {
	known, ok := typesWithAny.Load(t)
	if !ok {
		known = findAny(t, map[reflect.Type]bool{})
		typesWithAny.Store(t, known)
	}
	return known.(bool)
}

func findAny(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Interface:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return findAny(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if findAny(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}
