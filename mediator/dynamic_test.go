package mediator_test

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"

	"github.com/letterbox-go/letterbox/mediator"
)

type dynamicMessage struct{ N int }

func TestATypeBoundAtRunTimeIsServedInBothForms(t *testing.T) {
	t.Parallel()
	var got []any
	requests, events := mediator.NewRequestMap(), mediator.NewEventMap()
	pointer := reflect.TypeFor[*dynamicMessage]()
	if err := errors.Join(
		requests.TryBindType(pointer, func(_ context.Context, request any) (any, error) {
			got = append(got, request)
			return nil, nil
		}),
		events.TryBindType(pointer, "first", func(_ context.Context, event any) error {
			got = append(got, event)
			return nil
		}),
	); err != nil {
		t.Fatal(err)
	}
	value := dynamicMessage{1}
	if _, err := mediator.NewRequestMediator(requests).Send(t.Context(), value); err != nil {
		t.Error(err)
	}
	if err := mediator.NewEventMediator(events).Send(t.Context(), &value); err != nil {
		t.Error(err)
	}
	if len(got) != 2 || got[0] != any(value) || got[1] != any(&value) {
		t.Errorf("got %v", got)
	}
	var taken *mediator.AlreadyBoundError
	if err := mediator.TryBindCommand(requests, func(context.Context, dynamicMessage) error { return nil }); !errors.As(err, &taken) {
		t.Errorf("a second bind: %v", err)
	}
}

func TestWhatCannotBeBoundAtRunTimeIsAnError(t *testing.T) {
	t.Parallel()
	handle := func(context.Context, any) (any, error) { return nil, nil }
	for name, typ := range map[string]reflect.Type{
		"nil":            nil,
		"interface":      reflect.TypeFor[io.Reader](),
		"deeper pointer": reflect.TypeFor[**dynamicMessage](),
	} {
		if err := mediator.NewRequestMap().TryBindType(typ, handle); err == nil {
			t.Errorf("%s was bound", name)
		}
	}
	if err := mediator.NewRequestMap().TryBindType(reflect.TypeFor[dynamicMessage](), nil); err == nil {
		t.Error("a nil handler was bound")
	}
	if err := mediator.NewEventMap().TryBindType(reflect.TypeFor[dynamicMessage](), "", func(context.Context, any) error { return nil }); err == nil {
		t.Error("a handler without a name was bound")
	}
}
