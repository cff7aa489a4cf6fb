package mediator

import (
	"context"
	"reflect"
	"slices"
)

// EventMap holds any number of handlers per event type, in the order in which they were bound. The zero value is empty and
// ready to use. An EventMap is safe for concurrent use and must not be copied after its first use.
type EventMap struct {
	handlers table[[]eventHandler]
}

type eventHandler struct {
	name   string
	handle func(ctx context.Context, event any) error
}

// NewEventMap returns an empty map.
func NewEventMap() *EventMap {
	return new(EventMap)
}

// BindEvent adds a handler of the type E, and of its pointer or value, behind those that are bound already. The name says
// which handler failed ([HandlerError]); it is not empty, and unique within the event type. Panics if m or handler is
// nil, if name is empty or taken, or if E is an interface or a deeper pointer; the panic value is the error that
// [TryBindEvent] returns.
func BindEvent[E any](m *EventMap, name string, handler func(context.Context, E) error) {
	must(TryBindEvent(m, name, handler))
}

// TryBindEvent is [BindEvent] with an error in place of the panic. A name that is taken is an [*AlreadyBoundError]. After
// an error the map is as it was.
func TryBindEvent[E any](m *EventMap, name string, handler func(context.Context, E) error) error {
	if err := checkBind[E](kindEvent, m == nil, handler == nil); err != nil {
		return err
	}
	t := reflect.TypeFor[E]()
	if name == "" {
		return bindError(kindEvent, t, "the handler's name is empty")
	}
	return m.bind(t, eventHandler{name, func(ctx context.Context, event any) error {
		return handler(ctx, receive[E](event))
	}})
}

// Handles reports whether the type t has at least one handler. A type and its pointer are one; nil has none.
func (m *EventMap) Handles(t reflect.Type) bool {
	return len(m.handlers.get(keyOf(t))) > 0
}

// HandlerNames returns the names of the handlers of the type t, in the order in which they run; nil if it has none.
func (m *EventMap) HandlerNames(t reflect.Type) []string {
	var names []string
	for _, h := range m.handlers.get(keyOf(t)) {
		names = append(names, h.name)
	}
	return names
}

func (m *EventMap) bind(t reflect.Type, handler eventHandler) error {
	key := keyOf(t)
	return m.handlers.change(key, func(bound []eventHandler) ([]eventHandler, error) {
		if slices.ContainsFunc(bound, func(h eventHandler) bool { return h.name == handler.name }) {
			return nil, &AlreadyBoundError{Kind: kindEvent, Type: key, Handler: handler.name}
		}
		return append(bound, handler), nil // a Send that is walking bound sees no further than its length
	})
}

// dispatch is the innermost step of a Send: it looks the type up and runs the handlers. The response is always nil.
func (m *EventMap) dispatch(ctx context.Context, event any) (any, error) {
	if err := refuseNil(kindEvent, event); err != nil {
		return nil, err
	}
	key := TypeOf(event)
	handlers := m.handlers.get(key)
	if len(handlers) == 0 {
		return nil, &NoHandlerError{Kind: kindEvent, Type: key}
	}
	for _, h := range handlers {
		if err := h.handle(ctx, event); err != nil {
			return nil, &HandlerError{Handler: h.name, Err: err}
		}
	}
	return nil, nil
}
