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
// errs after the other, then with a row, and a prepared one with a row. behind is
// the error behind that row.
type scripted struct {
	errs   []error
	behind error
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
	return &oneRow{behind: s.behind}, nil
}

func (s *scripted) Prepare(string) (driver.Stmt, error) { return preparedScript{s}, nil }

type preparedScript struct{ *scripted }

func (preparedScript) NumInput() int                              { return -1 }
func (preparedScript) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }

func (p preparedScript) Query([]driver.Value) (driver.Rows, error) {
	p.prep++
	return &oneRow{behind: p.behind}, nil
}

type oneRow struct {
	read   bool
	behind error
}

func (*oneRow) Columns() []string { return []string{"text", "bytes"} }
func (*oneRow) Close() error      { return nil }

func (r *oneRow) Next(dest []driver.Value) error {
	switch {
	case r.read && r.behind != nil:
		return r.behind
	case r.read:
		return io.EOF
	}
	r.read = true
	dest[0], dest[1] = "a", []byte("b")
	return nil
}

// What database/sql does for a driver that only prepares, for a connection that
// is found dead, and for an error behind the rows, is done for a query that goes
// past it too.
func TestFirstRowDoesWhatThePoolWould(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		errs         []error
		behind       error
		direct, prep int
		want         error
	}{
		"answered":                {direct: 1},
		"only prepared":           {errs: []error{driver.ErrSkip, driver.ErrSkip}, prep: 1},
		"dead connection":         {errs: []error{driver.ErrBadConn}, direct: 1},
		"several dead":            {errs: []error{driver.ErrBadConn, driver.ErrBadConn}, direct: 1},
		"refused: not sent again": {errs: []error{refused}, want: refused},
		"refused behind the row":  {behind: refused, direct: 1, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scripted{errs: test.errs, behind: test.behind}
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
