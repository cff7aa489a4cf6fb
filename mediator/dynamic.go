package mediator

import (
	"context"
	"reflect"
)

// TryBindType is [TryBindRequest] for a type that only the running program knows, as adapters of other libraries have it.
// The handler receives the request as it was sent: a T or a *T.
func (m *RequestMap) TryBindType(t reflect.Type, handler Next) error {
	if err := checkType(kindRequest, t, m == nil, handler == nil); err != nil {
		return err
	}
	return m.bind(t, requestHandler{one: handler})
}

// TryBindType is [TryBindEvent] for a type that only the running program knows. The handler receives the event as it was
// sent: a T or a *T.
func (m *EventMap) TryBindType(t reflect.Type, name string, handler func(ctx context.Context, event any) error) error {
	if err := checkType(kindEvent, t, m == nil, handler == nil); err != nil {
		return err
	}
	if name == "" {
		return bindError(kindEvent, t, "the handler's name is empty")
	}
	return m.bind(t, eventHandler{name, handler})
}

func checkType(kind string, t reflect.Type, nilMap, nilHandler bool) error {
	switch {
	case nilMap:
		return bindError(kind, t, "the map is nil")
	case nilHandler:
		return bindError(kind, t, "the handler is nil")
	case t == nil || !bindable(keyOf(t)):
		return bindError(kind, t, "it is nil, an interface or a deeper pointer; bind T or *T")
	}
	return nil
}
