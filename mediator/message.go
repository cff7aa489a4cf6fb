package mediator

import "reflect"

// The two kinds of message, as error texts and the Kind fields say them.
const (
	kindRequest = "request"
	kindEvent   = "event"
)

// TypeOf returns the type under which a message finds its handlers: T for a T and for a *T alike. It is nil for an untyped
// nil. Types that cannot be bound (pointers to pointers or interfaces, named pointer types) are returned as they are.
func TypeOf(message any) reflect.Type {
	return keyOf(reflect.TypeOf(message))
}

// keyOf strips one level of pointer, where the result is a type that can be bound.
func keyOf(t reflect.Type) reflect.Type {
	if t == nil || t.Kind() != reflect.Pointer || t.Name() != "" {
		return t
	}
	if elem := t.Elem(); bindable(elem) {
		return elem
	}
	return t
}

// bindable reports whether t is the key type of some handler: neither pointer nor interface.
func bindable(t reflect.Type) bool {
	return t.Kind() != reflect.Pointer && t.Kind() != reflect.Interface
}

// refuseNil returns a *NilMessageError for an untyped nil and for a nil pointer. Nil maps, slices and functions are
// values like any other.
func refuseNil(kind string, message any) error {
	if message == nil {
		return &NilMessageError{Kind: kind}
	}
	if v := reflect.ValueOf(message); v.Kind() == reflect.Pointer && v.IsNil() {
		return &NilMessageError{Kind: kind, Type: v.Type()}
	}
	return nil
}

// receive returns the message in the form M that its handler asks for. The message is not nil, and has M's key type.
func receive[M any](message any) M {
	switch m := message.(type) {
	case M:
		return m
	case *M:
		return *m
	}
	// M is *T and the message a T, which cannot be said in type parameters.
	p := reflect.New(reflect.TypeOf(message))
	p.Elem().Set(reflect.ValueOf(message))
	return p.Interface().(M)
}
