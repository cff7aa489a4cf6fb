// Package mediator sends a message to the handlers bound to its Go type.
//
// A request (a command or a query) has exactly one handler and returns a response. An event has any number of handlers,
// each with a name, and returns nothing. A message is a plain Go value: it implements and embeds nothing of
// this package.
//
// # Quick start
//
//	requests := mediator.NewRequestMap()
//	mediator.BindRequest(requests, creditAccount) // func(context.Context, CreditAccount) (Receipt, error)
//	mediator.BindCommand(requests, closeAccount)  // func(context.Context, CloseAccount) error
//
//	m := mediator.NewRequestMediator(requests, logged)
//	receipt, err := mediator.Send[Receipt](ctx, m, CreditAccount{ID: "a-1", Cents: 500})
//
//	events := mediator.NewEventMap()
//	mediator.BindEvent(events, "notify", notifyCustomer) // func(context.Context, AccountCredited) error
//	mediator.BindEvent(events, "audit", auditCredit)
//
//	err = mediator.NewEventMediator(events).Send(ctx, AccountCredited{ID: "a-1", Cents: 500})
//
// # Pointers and values
//
// A pointer and a value of one type are one type: T and *T share their handlers, so binding one and then the other is a
// second bind. The handler decides what it receives:
//
//   - the same form as sent: the message itself; a *T sent to a handler of *T is the same pointer, never a copy;
//   - *T sent to a handler of T: the value it points to;
//   - T sent to a handler of *T: the address of a copy, a fresh one for each handler.
//
// Protobuf messages, and whatever else must not be copied, are bound and sent as pointers. Binding refuses interfaces,
// pointers to pointers and named pointer types. A nil message, or a nil pointer, is a [*NilMessageError].
//
// # Middleware
//
// A [Middleware] wraps a whole Send. See there for the order and for what it may do.
//
// # Errors
//
// A request's error is returned as its handler made it; an event's is wrapped in a [*HandlerError], which names the
// handler. A message that nobody handles is a [*NoHandlerError], for events too: nothing is dropped in silence, and a
// sender that does not mind asks Handles first or looks for that error.
//
// # Concurrency
//
// Maps and mediators are safe for concurrent use. A Send runs its handlers in the calling goroutine, one after another,
// and starts no goroutine. It holds no lock while they run and looks the type up without locking or allocating. Binding
// while sending is allowed, from within a handler too: a bind is seen by every Send that looks the type up after it,
// through mediators made earlier as well, and changes nothing for a Send that has already done so. Each bind copies
// the map, which is meant for start-up, not for traffic.
//
// # What it does not do
//
//   - It recovers no panics: they reach the caller of Send. The inbox recovers them for the messages it processes.
//   - It reads nothing from the context, not even whether it is done: that is for handlers and middleware.
//   - It retries nothing, opens no transaction and stores nothing.
//   - It has no handlers for interfaces, for "every message", or for names: the Go type is the only key.
package mediator
