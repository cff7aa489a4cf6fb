package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

const (
	messageName   = "credit_account"
	messageSource = "bench"
	payloadBytes  = 200
)

// message is what every peer carries: 200 bytes as JSON. The id is random, as
// senders' ids are: an index on it is filled in no order.
type message struct {
	ID      string `json:"id"`
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
	Note    string `json:"note"`

	orderingKey string
}

// newMessages returns n messages that nobody has seen yet.
func newMessages(n int) []message {
	messages := make([]message, n)
	for i := range messages {
		messages[i] = newMessage(i)
	}
	return messages
}

func newMessage(i int) message {
	m := message{ID: uuid.NewString(), Account: fmt.Sprintf("account-%04d", i%1000), Cents: int64(i%9000 + 1000)}
	m.Note = strings.Repeat("x", payloadBytes-len(m.encode()))
	return m
}

func (m *message) encode() []byte {
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a number
	}
	return text
}

func decode(payload []byte) (m message, err error) {
	err = json.Unmarshal(payload, &m)
	return m, err
}

// withKeys gives every message one of n ordering keys, in turn.
func withKeys(messages []message, n int) []message {
	for i := range messages {
		messages[i].orderingKey = fmt.Sprintf("key-%d", i%n)
	}
	return messages
}

func sum(messages []message) (cents int64) {
	for i := range messages {
		cents += messages[i].Cents
	}
	return cents
}

// inBatches calls fn with at most size messages at a time.
func inBatches(messages []message, size int, fn func([]message) error) error {
	for len(messages) > 0 {
		n := min(size, len(messages))
		if err := fn(messages[:n]); err != nil {
			return err
		}
		messages = messages[n:]
	}
	return nil
}
