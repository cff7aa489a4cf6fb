package doctor_test

import (
	"testing"

	"github.com/letterbox-go/letterbox/doctor"
	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
)

func TestPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]string{"transaction": {"pooler warning"}, "session": nil} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dsn := testdb.Postgres(t)
			pooler := testdb.StartPooler(t, dsn, testdb.PoolerConfig{Mode: mode})
			db, err := testdb.OpenPGX(pooler.Through(t, dsn))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			p := open(t, db, inbox.Config{})
			report := p.finds(t, doctor.Config{}, want...)
			if len(want) > 0 {
				p.evidence(t, report, "pooler", "LISTEN", "backends")
			}
		})
	}
}
