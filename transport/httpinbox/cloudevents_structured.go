package httpinbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"unicode/utf8"
)

// structured is an event as its JSON format holds it.
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md
type structured struct {
	attributes  map[string]string
	data        []byte // never nil
	contentType string
}

// parseStructured reads an event strictly: a member that is there twice would
// mean different events to different readers.
func parseStructured(body []byte) (structured, error) {
	members, err := parseObject(body)
	if err != nil {
		return structured{}, err
	}
	event := structured{attributes: map[string]string{}, data: []byte{}, contentType: "application/json"}
	for name, raw := range members {
		if name == "data" || name == "data_base64" {
			continue
		}
		if !validAttributeName(name) {
			return structured{}, errors.New("the name of an attribute is not lower case letters and digits")
		}
		value, present, err := attributeValue(raw)
		if err != nil {
			return structured{}, fmt.Errorf("the attribute %s: %w", name, err)
		}
		if present {
			event.attributes[name] = value
		}
	}
	if contentType, ok := event.attributes["datacontenttype"]; ok {
		event.contentType = contentType
		delete(event.attributes, "datacontenttype")
	}
	return event, event.setData(members)
}

// setData takes the bytes of the message out of the envelope.
func (e *structured) setData(members map[string]json.RawMessage) error {
	data, plain := members["data"]
	encoded, binary := members["data_base64"]
	switch {
	case plain && binary:
		return errors.New("both data and data_base64")
	case binary:
		var text string
		if err := json.Unmarshal(encoded, &text); err != nil {
			return errors.New("data_base64 is not a string")
		}
		var err error
		if e.data, err = base64.StdEncoding.AppendDecode(e.data, []byte(text)); err != nil {
			return errors.New("data_base64 is not base64")
		}
	case plain && isJSON(e.contentType):
		e.data = data
	case plain:
		// Of another media type: a string holds the text itself.
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return errors.New("data is not a string, but its media type is not JSON")
		}
		e.data = []byte(text)
	}
	return nil
}

// parseObject reads one JSON object without repeated members. Values keep their
// bytes.
func parseObject(body []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not UTF-8")
	}
	if !json.Valid(body) {
		return nil, errors.New("the body is not JSON")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("the body is not a JSON object")
	}
	members := map[string]json.RawMessage{}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, errors.New("the body is not JSON")
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, errors.New("the body is not JSON")
		}
		key, _ := name.(string)
		if _, twice := members[key]; twice {
			return nil, errors.New("a member of the event is there twice")
		}
		members[key] = value
	}
	if _, err := decoder.Token(); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New("the body is not JSON")
	}
	return members, nil
}

// attributeValue returns the text of a string, number or boolean; null means
// that the attribute is not there.
func attributeValue(raw json.RawMessage) (value string, present bool, err error) {
	switch raw[0] {
	case '"':
		err = json.Unmarshal(raw, &value)
		return value, true, err
	case 'n':
		return "", false, nil
	case '{', '[':
		return "", false, errors.New("neither text, number nor boolean")
	}
	return string(raw), true, nil
}

// isJSON reports application/json, text/json and everything that ends in +json.
func isJSON(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	_, subtype, _ := strings.Cut(mediaType, "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}
