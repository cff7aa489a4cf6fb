package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"testing"
)

// scripted is a driver whose connections answer a query directly with one of
// errs after the other, then with a row, and a prepared one with a row.
type scripted struct {
	errs   []error
	direct int // rows given
	prep   int
}

func (s *scripted) Connect(context.Context) (driver.Conn, error) { return s, nil }
func (s *scripted) Driver() driver.Driver                        { return nil }
func (s *scripted) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }
func (s *scripted) Close() error                                 { return nil }

func (s *scripted) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	s.direct++
	return &oneRow{}, nil
}

func (s *scripted) Prepare(string) (driver.Stmt, error) { return preparedScript{s}, nil }

type preparedScript struct{ *scripted }

func (preparedScript) NumInput() int                              { return -1 }
func (preparedScript) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }

func (p preparedScript) Query([]driver.Value) (driver.Rows, error) {
	p.prep++
	return &oneRow{}, nil
}

type oneRow struct{ read bool }

func (*oneRow) Columns() []string { return []string{"text", "bytes"} }
func (*oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read = true
	dest[0], dest[1] = "a", []byte("b")
	return nil
}

// What database/sql does for a driver that only prepares, and for a connection
// that is found dead, is done for a query that goes past it too.
func TestFirstRowFallsBackToThePool(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		errs         []error
		direct, prep int
		want         error
	}{
		"answered":                {direct: 1},
		"only prepared":           {errs: []error{driver.ErrSkip, driver.ErrSkip}, prep: 1},
		"dead connection":         {errs: []error{driver.ErrBadConn}, direct: 1},
		"several dead":            {errs: []error{driver.ErrBadConn, driver.ErrBadConn}, direct: 1},
		"refused: not sent again": {errs: []error{refused}, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: test.errs}
			pool := sql.OpenDB(s)
			defer func() { _ = pool.Close() }()
			row, err := queryFirst(t.Context(), pool, "SELECT", nil)
			if !errors.Is(err, test.want) || err == nil && !slices.Equal(row, []string{"a", "b"}) {
				t.Errorf("row %q, error %v, want %v", row, err, test.want)
			}
			if s.direct != test.direct || s.prep != test.prep {
				t.Errorf("%d rows directly and %d prepared, want %d and %d", s.direct, s.prep, test.direct, test.prep)
			}
			if n := pool.Stats().InUse; n != 0 {
				t.Errorf("%d connections are still in use", n)
			}
		})
	}
}
