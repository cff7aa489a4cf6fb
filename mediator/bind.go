package mediator

import (
	"fmt"
	"reflect"
)

// checkBind returns what is wrong with binding a handler of M, or nil.
func checkBind[M any](kind string, nilMap, nilHandler bool) error {
	t := reflect.TypeFor[M]()
	switch {
	case nilMap:
		return bindError(kind, t, "the map is nil")
	case nilHandler:
		return bindError(kind, t, "the handler is nil")
	case t.Kind() == reflect.Interface:
		return bindError(kind, t, "it is an interface; bind the concrete types")
	case !bindable(keyOf(t)):
		return bindError(kind, t, "it is a pointer to a pointer or to an interface, or a named pointer type; bind T or *T")
	}
	return nil
}

func bindError(kind string, t reflect.Type, problem string) error {
	return fmt.Errorf("mediator: bind %s %s: %s", kind, t, problem)
}

// must turns the error of a Try function into the panic of its namesake.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
