package inbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
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
