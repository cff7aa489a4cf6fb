package protocodec_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/inbox/inboxtest"
	"github.com/letterbox-go/letterbox/inbox/protocodec"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

func ExampleCodec() {
	names := inbox.NewNameMap()
	inbox.RegisterWith[*wrapperspb.StringValue](names, inbox.Registration{
		Name:  "text",
		Codec: protocodec.Codec{},
	})
	message, err := names.Decode("text", []byte("\x0a\x05hello"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(message.(*wrapperspb.StringValue).GetValue())
	// Output: hello
}

func TestCodec(t *testing.T) {
	t.Parallel()
	codec := protocodec.Codec{}

	t.Run("what was encoded is decoded", func(t *testing.T) {
		t.Parallel()
		list, err := structpb.NewStruct(map[string]any{"a": 1.5, "b": []any{"x", nil, true}, "c": map[string]any{"é": "\x00"}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ message, target proto.Message }{
			{wrapperspb.String("\x00 é"), &wrapperspb.StringValue{}},
			{wrapperspb.Bytes([]byte{0, 0xff}), &wrapperspb.BytesValue{}},
			{wrapperspb.Int64(9007199254740993), &wrapperspb.Int64Value{}},
			{timestamppb.New(time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC)), &timestamppb.Timestamp{}},
			{list, &structpb.Struct{}},
			{&wrapperspb.StringValue{}, &wrapperspb.StringValue{}},
		} {
			payload, err := codec.Encode(c.message)
			if err != nil {
				t.Fatalf("%v: %v", c.message, err)
			}
			if err := codec.Decode(payload, c.target); err != nil {
				t.Fatalf("%v: %v", c.message, err)
			}
			if !proto.Equal(c.message, c.target) {
				t.Errorf("decoded %v, want %v", c.target, c.message)
			}
		}
	})

	t.Run("equal values have equal bytes", func(t *testing.T) {
		t.Parallel()
		values := map[string]any{}
		for i := range 50 {
			values[fmt.Sprint("key ", i)] = float64(i)
		}
		first, err := structpb.NewStruct(values)
		if err != nil {
			t.Fatal(err)
		}
		want, err := codec.Encode(first)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 { // the order of a map differs from time to time
			got, err := codec.Encode(proto.Clone(first))
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("another encoding of the same value (%v)", err)
			}
		}
	})

	t.Run("unknown fields survive", func(t *testing.T) {
		t.Parallel()
		payload := []byte("\x0a\x01a\xa0\x06\x2a") // field 100: 42
		var m wrapperspb.StringValue
		if err := codec.Decode(payload, &m); err != nil {
			t.Fatal(err)
		}
		if got, err := codec.Encode(&m); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("encoded %q, %v, want %q", got, err, payload)
		}
	})

	t.Run("what is no message is an error", func(t *testing.T) {
		t.Parallel()
		for _, message := range []any{nil, "text", struct{}{}, new(int), (*string)(nil)} {
			if payload, err := codec.Encode(message); err == nil {
				t.Errorf("%T was encoded as %q", message, payload)
			}
			if err := codec.Decode(nil, message); err == nil {
				t.Errorf("decoded into %T", message)
			}
		}
	})

	t.Run("foreign bytes are an error", func(t *testing.T) {
		t.Parallel()
		for _, payload := range []string{"\x0a\x05hi", "\xff", "{}", "\x0a\x02\xff\xfe"} {
			if err := codec.Decode([]byte(payload), &wrapperspb.StringValue{}); err == nil {
				t.Errorf("decoded %q", payload)
			}
		}
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	t.Run("a handler receives the message that was accepted", func(t *testing.T) {
		t.Parallel()
		names := inbox.NewNameMap()
		inbox.RegisterWith[*wrapperspb.Int64Value](names, inbox.Registration{Name: "number", Codec: protocodec.Codec{}})
		requests := mediator.NewRequestMap()
		var got []int64
		mediator.BindCommand(requests, func(_ context.Context, m *wrapperspb.Int64Value) error {
			got = append(got, m.GetValue())
			return nil
		})
		repo, err := inbox.NewRepository(testdb.SQLite(t), names, inbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		proc, err := inbox.NewProcessor(repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
		if err != nil {
			t.Fatal(err)
		}
		inboxtest.Deliver(t, repo, proc, wrapperspb.Int64(9007199254740993), inbox.Raw{Name: "number", Payload: []byte{0x08, 0x07}})
		if len(got) != 2 || got[0] != 9007199254740993 || got[1] != 7 {
			t.Errorf("received %v", got)
		}
		entries := []inbox.Entry{{MessageID: "1", Message: wrapperspb.Int64(1)}, {MessageID: "1", Message: wrapperspb.Int64(1)}, {MessageID: "1", Message: wrapperspb.Int64(2)}}
		outcomes, err := repo.Accept(t.Context(), entries)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []inbox.OutcomeKind{inbox.Stored, inbox.Duplicate, inbox.Mismatch} {
			if outcomes[i].Kind != want {
				t.Errorf("entry %d is %v, want %v", i, outcomes[i].Kind, want)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x0a\x05hello"))
	f.Add([]byte("\x0a\x05"))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, payload []byte) {
		codec := protocodec.Codec{}
		var first, second structpb.Struct
		if codec.Decode(payload, &first) != nil {
			return
		}
		again, err := codec.Encode(&first)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		if err := codec.Decode(again, &second); err != nil || !proto.Equal(&first, &second) {
			t.Errorf("decoded %v, and after encoding %v (%v)", &first, &second, err)
		}
	})
}
