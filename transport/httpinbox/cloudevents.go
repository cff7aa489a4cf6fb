package httpinbox

import (
	"errors"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/letterbox-go/letterbox/transport/tracecontext"
)

const (
	structuredMode = "application/cloudevents+json"
	ceVersion      = "1.0"
)

// CloudEventsConfig holds the settings of CloudEvents. The zero value is ready to use.
type CloudEventsConfig struct {
	// Names maps the type of an event to the name that it is stored under; an
	// event of any other type is answered 422. Nil: the type is not looked at,
	// and Config.Name holds.
	Names map[string]string
}

// CloudEvents takes the identity of CloudEvents 1.0: the id of the event is the
// message id, its source the source. Binary mode and structured mode (JSON) are
// understood; a batch is answered 415.
//
// The message is the data of the event, byte for byte as it stands in the body:
// the handler sees the same in both modes. All attributes but id and source
// become metadata under the names of binary mode (ce-type, ce-subject, ...). An
// event without data is an empty message, which JSON does not allow.
//
// In binary mode header values are percent-decoded, as the protocol binding
// says; a percent sign that begins no such code is refused.
//
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md
func CloudEvents(config CloudEventsConfig) Identifier { return cloudEvents(config) }

type cloudEvents CloudEventsConfig

func (c cloudEvents) names() []string {
	names := make([]string, 0, len(c.Names))
	for _, name := range c.Names {
		names = append(names, name)
	}
	return names
}

func (cloudEvents) envelope(mediaType string) bool { return mediaType == structuredMode }

// preflight refuses what is no event in binary mode.
func (c cloudEvents) preflight(r *http.Request) error {
	if isStructured(r) {
		return nil
	}
	attributes, err := binaryAttributes(r)
	if err != nil {
		return err
	}
	_, err = c.identified(attributes)
	return err
}

func isStructured(r *http.Request) bool {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == structuredMode
}

// Identify reads the attributes from the header or from the body.
func (c cloudEvents) Identify(r *http.Request, body []byte) (Identified, error) {
	if !isStructured(r) {
		attributes, err := binaryAttributes(r)
		if err != nil {
			return Identified{}, err
		}
		return c.identified(attributes)
	}
	event, err := parseStructured(body)
	if err != nil {
		return Identified{}, problem(http.StatusBadRequest, codeCloudEvent, "%v", err)
	}
	found, err := c.identified(event.attributes)
	found.Payload, found.MediaType = event.data, event.contentType
	return found, err
}

// identified checks the required attributes.
func (c cloudEvents) identified(attributes map[string]string) (Identified, error) {
	if version := attributes["specversion"]; version != ceVersion {
		return Identified{}, problem(http.StatusBadRequest, codeCloudEvent, "this is not a CloudEvent of version %s", ceVersion)
	}
	for _, name := range []string{"id", "source", "type"} {
		switch value := attributes[name]; {
		case value == "" && name == "id":
			return Identified{}, problem(http.StatusBadRequest, codeIDMissing, "the attribute id is missing or empty")
		case value == "":
			return Identified{}, problem(http.StatusBadRequest, codeCloudEvent, "the attribute %s is missing or empty", name)
		case strings.ContainsRune(value, '\uFFFD'):
			// What decoders make of text they cannot read: two ids would be one.
			return Identified{}, problem(http.StatusBadRequest, codeCloudEvent, "the attribute %s is not valid text", name)
		}
	}
	found := Identified{MessageID: attributes["id"], Source: attributes["source"], Metadata: map[string]string{}}
	if c.Names != nil {
		if found.Name = c.Names[attributes["type"]]; found.Name == "" {
			return Identified{}, problem(http.StatusUnprocessableEntity, codeName, "events of this type are not taken here")
		}
	}
	for name, value := range attributes {
		if name != "id" && name != "source" {
			found.Metadata["ce-"+name] = value
		}
	}
	// The extension that carries trace context where no header does.
	tracecontext.Put(found.Metadata, attributes[tracecontext.Traceparent], attributes[tracecontext.Tracestate])
	return found, nil
}

// binaryAttributes reads the header fields that begin with ce-.
func binaryAttributes(r *http.Request) (map[string]string, error) {
	attributes := map[string]string{}
	for field, values := range r.Header {
		name, found := strings.CutPrefix(strings.ToLower(field), "ce-")
		if !found {
			continue
		}
		if len(values) != 1 {
			return nil, problem(http.StatusBadRequest, codeCloudEvent, "a ce- header field is there %d times", len(values))
		}
		value, err := decodeAttribute(values[0])
		if err == nil && !validAttributeName(name) {
			err = errors.New("its name is not lower case letters and digits")
		}
		if err != nil {
			return nil, problem(http.StatusBadRequest, codeCloudEvent, "a ce- header field: %v", err)
		}
		attributes[name] = value
	}
	return attributes, nil
}

// decodeAttribute undoes the encoding of a header value: quotes first, then one
// round of percent-decoding.
func decodeAttribute(value string) (string, error) {
	if strings.HasPrefix(value, `"`) {
		unquoted, rest, err := unquoteHeader(value)
		if err != nil || rest != "" {
			return "", errors.New("its value is not one quoted string")
		}
		value = unquoted
	}
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] != '%' {
			b.WriteByte(value[i])
			continue
		}
		if i+2 >= len(value) || hexValue(value[i+1]) < 0 || hexValue(value[i+2]) < 0 {
			return "", errors.New("a percent sign without two hexadecimal digits")
		}
		b.WriteByte(byte(hexValue(value[i+1])<<4 | hexValue(value[i+2])))
		i += 2
	}
	decoded := b.String()
	if !utf8.ValidString(decoded) {
		return "", errors.New("its value is not UTF-8")
	}
	return decoded, nil
}

// unquoteHeader reads a quoted-string of RFC 9110, which unlike one of RFC 8941
// lets any character be escaped.
func unquoteHeader(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], nil
		case '\\':
			i++
			if i == len(s) {
				return "", "", errors.New("a backslash at the end")
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", errors.New("the closing quote is missing")
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

func validAttributeName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}
