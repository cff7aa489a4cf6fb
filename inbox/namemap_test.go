package inbox_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/letterbox-go/letterbox/inbox"
)

type (
	orderPlaced    struct{ N int }
	orderCancelled struct{ N int }
	namedPointer   *orderPlaced
	anyOrder       interface{ Order() }
)

func TestNameMapRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		register func(m *inbox.NameMap) error
		want     string
	}{
		"a name that is taken":           {try[orderCancelled]("placed"), "the name belongs to inbox_test.orderPlaced"},
		"a former name that is taken":    {try[orderCancelled]("cancelled", "placed"), "the name belongs to inbox_test.orderPlaced"},
		"a name that was a former one":   {try[orderCancelled]("was_placed"), "the name belongs to inbox_test.orderPlaced"},
		"a former name taken as former":  {try[orderCancelled]("cancelled", "was_placed"), "the name belongs to inbox_test.orderPlaced"},
		"a type that is taken":           {try[orderPlaced]("other"), `the type is registered as "placed"`},
		"a pointer to a type taken":      {try[*orderPlaced]("other"), `the type is registered as "placed"`},
		"a name given twice":             {try[orderCancelled]("cancelled", "cancelled"), "given twice"},
		"a former name given twice":      {try[orderCancelled]("cancelled", "a", "a"), "given twice"},
		"an interface":                   {try[anyOrder]("any"), "not a concrete type"},
		"any":                            {try[any]("any"), "not a concrete type"},
		"a pointer to an interface":      {try[*anyOrder]("any"), "not a concrete type"},
		"a pointer to a pointer":         {try[**orderCancelled]("any"), "not a concrete type"},
		"a named pointer type":           {try[namedPointer]("any"), "not a concrete type"},
		"an empty name":                  {try[orderCancelled](""), "empty"},
		"an empty former name":           {try[orderCancelled]("cancelled", ""), "empty"},
		"a name with a NUL":              {try[orderCancelled]("a\x00b"), "control character U+0000"},
		"a name with a C1 control":       {try[orderCancelled]("a\u0085b"), "control character U+0085"},
		"a name of invalid UTF-8":        {try[orderCancelled]("a\xff"), "invalid UTF-8"},
		"a name of 257 bytes":            {try[orderCancelled](strings.Repeat("x", 257)), "257 bytes, at most 256"},
		"a former name with a line feed": {try[orderCancelled]("cancelled", "a\nb"), "control character U+000A"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := inbox.NewNameMap()
			inbox.RegisterWith[orderPlaced](m, inbox.Registration{Name: "placed", FormerNames: []string{"was_placed"}})
			err := c.register(m)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "inbox: register ") {
				t.Fatalf("%v, want an error with %q", err, c.want)
			}
			// Nothing of a refused registration remains.
			if _, ok := m.NameOf(orderCancelled{}); ok {
				t.Error("the type is registered all the same")
			}
			if err := try[orderCancelled]("fresh", "cancelled", "a")(m); err != nil {
				t.Errorf("then a good registration: %v", err)
			}
		})
	}

	t.Run("Register panics with the same text", func(t *testing.T) {
		t.Parallel()
		m := inbox.NewNameMap()
		inbox.Register[orderPlaced](m, "placed")
		want := try[orderCancelled]("placed")(m)
		for name, register := range map[string]func(){
			"Register":     func() { inbox.Register[orderCancelled](m, "placed") },
			"RegisterWith": func() { inbox.RegisterWith[orderCancelled](m, inbox.Registration{Name: "placed"}) },
		} {
			if got := panicked(register); fmt.Sprint(got) != want.Error() {
				t.Errorf("%s panics with %v, want %v", name, got, want)
			}
		}
	})
}

// try returns a registration of T that reports its error.
func try[T any](name string, former ...string) func(*inbox.NameMap) error {
	return func(m *inbox.NameMap) error {
		return inbox.TryRegister[T](m, inbox.Registration{Name: name, FormerNames: former})
	}
}

func panicked(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestNameMap(t *testing.T) {
	t.Parallel()

	t.Run("a type and a pointer to it have one name", func(t *testing.T) {
		t.Parallel()
		m := inbox.NewNameMap()
		inbox.Register[orderPlaced](m, "placed")
		inbox.Register[*orderCancelled](m, "cancelled")
		for _, c := range []struct {
			message any
			want    string
		}{{orderPlaced{}, "placed"}, {&orderPlaced{}, "placed"}, {orderCancelled{}, "cancelled"}, {&orderCancelled{}, "cancelled"}} {
			if name, ok := m.NameOf(c.message); !ok || name != c.want {
				t.Errorf("%T is %q, %v", c.message, name, ok)
			}
		}
		for _, message := range []any{nil, 42, new(*orderPlaced), struct{ N int }{}} {
			if name, ok := m.NameOf(message); ok {
				t.Errorf("%T is %q", message, name)
			}
		}
	})

	t.Run("a payload is decoded into what was registered", func(t *testing.T) {
		t.Parallel()
		m := inbox.NewNameMap()
		inbox.RegisterWith[orderPlaced](m, inbox.Registration{Name: "placed", FormerNames: []string{"was_placed"}})
		inbox.Register[*orderCancelled](m, "cancelled")
		for _, name := range []string{"placed", "was_placed"} {
			if got, err := m.Decode(name, []byte(`{"N":7}`)); err != nil || got != any(orderPlaced{7}) {
				t.Errorf("%s: %#v, %v", name, got, err)
			}
		}
		got, err := m.Decode("cancelled", []byte(`{"N":7}`))
		if p, ok := got.(*orderCancelled); !ok || *p != (orderCancelled{7}) {
			t.Errorf("%#v, %v", got, err)
		}
		if _, err := m.Decode("gone", []byte(`{}`)); !errors.Is(err, inbox.ErrUnregistered) {
			t.Errorf("an unknown name: %v", err)
		}
	})

	t.Run("names need no type that JSON calls an object", func(t *testing.T) {
		t.Parallel()
		m := inbox.NewNameMap()
		inbox.Register[int](m, "number")
		inbox.Register[[]string](m, "list")
		inbox.Register[map[string]int](m, "map")
		if got, err := m.Decode("number", []byte(`0`)); err != nil || got != any(0) {
			t.Errorf("%#v, %v", got, err)
		}
		if got, err := m.Decode("list", []byte(`["a"]`)); err != nil || len(got.([]string)) != 1 {
			t.Errorf("%#v, %v", got, err)
		}
	})

	t.Run("it may be used by many goroutines at once", func(t *testing.T) {
		t.Parallel()
		m := inbox.NewNameMap()
		var group sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			group.Go(func() {
				errs[i] = try[orderPlaced](fmt.Sprint("placed ", i))(m)
				m.NameOf(orderPlaced{})
				_, _ = m.Decode("placed 0", []byte(`{}`))
			})
		}
		group.Wait()
		registered := 0
		for _, err := range errs {
			if err == nil {
				registered++
			}
		}
		if registered != 1 {
			t.Errorf("the type was registered %d times", registered)
		}
	})
}
