package inbox

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/letterbox-go/letterbox/mediator"
)

// NameMap maps the stable names under which messages are stored to the Go types
// that handlers receive, and back. The application chooses the names; they are
// never derived from a Go package or type, so that code can be renamed.
//
// A NameMap is safe for concurrent use. Register everything before the first
// message is accepted.
type NameMap struct {
	mu     sync.RWMutex
	byName map[string]*registration // current and former names
	byType map[reflect.Type]*registration
}

// Registration says how messages of one type are stored.
type Registration struct {
	// Name is what new rows carry: valid UTF-8 without control characters.
	Name string
	// FormerNames still decode, are still claimed, and still count for
	// deduplication. Rows keep the name they were stored under. While old and
	// new acceptors run side by side, a message that arrives at both at the
	// same moment is stored twice: finish one roll-out before the next.
	FormerNames []string
	// Codec turns messages into bytes and back. Default: JSON.
	Codec Codec
}

type registration struct {
	Registration
	typ     reflect.Type // never a pointer
	pointer bool         // handlers and middleware see *T
}

// NewNameMap returns an empty map.
func NewNameMap() *NameMap {
	return &NameMap{byName: map[string]*registration{}, byType: map[reflect.Type]*registration{}}
}

// Register stores messages of type T under name, as JSON.
// Panics if the name or the type is taken, or the name is not valid.
func Register[T any](m *NameMap, name string) {
	RegisterWith[T](m, Registration{Name: name})
}

// RegisterWith is Register with former names or another codec.
// Panics where TryRegister returns an error.
func RegisterWith[T any](m *NameMap, r Registration) {
	if err := TryRegister[T](m, r); err != nil {
		panic(err)
	}
}

// TryRegister is RegisterWith for names that are read from outside: a name or
// type that is taken and a name that is not valid are errors.
// A type and a pointer to it are one type.
func TryRegister[T any](m *NameMap, r Registration) error {
	typ := reflect.TypeFor[T]()
	reg := &registration{Registration: r, typ: typ}
	if typ.Kind() == reflect.Pointer {
		reg.typ, reg.pointer = typ.Elem(), true
	}
	if k := reg.typ.Kind(); k == reflect.Interface || k == reflect.Pointer || reg.pointer && typ.Name() != "" {
		return fmt.Errorf("inbox: register %s: not a concrete type", typ)
	}
	if reg.Codec == nil {
		reg.Codec = jsonCodec{}
	}
	names := append([]string{r.Name}, r.FormerNames...)
	for _, name := range names {
		if err := checkIdentifier(name, maxIdentifier, false); err != nil {
			return fmt.Errorf("inbox: register %s: name %q: %w", typ, name, err)
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if other, taken := m.byType[reg.typ]; taken {
		return fmt.Errorf("inbox: register %s as %q: the type is registered as %q", typ, r.Name, other.Name)
	}
	for i, name := range names {
		if other, taken := m.byName[name]; taken {
			return fmt.Errorf("inbox: register %s as %q: the name belongs to %s", typ, name, other.typ)
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("inbox: register %s: name %q is given twice", typ, name)
		}
	}
	for _, name := range names {
		m.byName[name] = reg
	}
	m.byType[reg.typ] = reg
	return nil
}

// NameOf returns the name that a message of this Go type is stored under.
func (m *NameMap) NameOf(message any) (name string, ok bool) {
	reg := m.forType(mediator.TypeOf(message))
	if reg == nil {
		return "", false
	}
	return reg.Name, true
}

// Has reports whether messages can be stored, or were stored, under name.
func (m *NameMap) Has(name string) bool { return m.forName(name) != nil }

// Decode turns the payload of a stored message into the registered type.
// An unregistered name and a payload that the codec refuses are errors.
func (m *NameMap) Decode(name string, payload []byte) (any, error) {
	reg := m.forName(name)
	if reg == nil {
		return nil, fmt.Errorf("inbox: name %q: %w", name, ErrUnregistered)
	}
	return reg.decode(payload)
}

func (m *NameMap) forName(name string) *registration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byName[name]
}

func (m *NameMap) forType(typ reflect.Type) *registration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byType[typ]
}

// registrations returns each registration once, in the order of their names.
func (m *NameMap) registrations() []*registration {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*registration, 0, len(m.byType))
	for _, reg := range m.byType {
		all = append(all, reg)
	}
	slices.SortFunc(all, func(a, b *registration) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return all
}

// names returns the current name, then the former ones.
func (r *registration) names() []string {
	return append([]string{r.Name}, r.FormerNames...)
}

func (r *registration) decode(payload []byte) (message any, err error) {
	target := reflect.New(r.typ)
	if err := r.Codec.Decode(payload, target.Interface()); err != nil {
		return nil, fmt.Errorf("inbox: decode %q: %w", r.Name, err)
	}
	if r.pointer {
		return target.Interface(), nil
	}
	return target.Elem().Interface(), nil
}
