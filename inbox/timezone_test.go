package inbox_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// zoneEnv makes TestAcceptInZone the child of TestTimeZoneOfTheProcess.
const zoneEnv = "LETTERBOX_TEST_ZONE"

// futureDue is the same instant in every process.
var futureDue = time.Date(2044, 7, 1, 12, 0, 0, 0, time.UTC)

func TestTimeZoneOfTheProcess(t *testing.T) {
	t.Parallel()
	targets(t, func(t *testing.T, target target) {
		n := openNode(t, target, false)
		text, err := json.Marshal(target)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now().Add(-time.Second)
		zones := []string{"Pacific/Kiritimati", "Asia/Kolkata", "UTC", "America/St_Johns", "Pacific/Pago_Pago"}
		for _, zone := range zones {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAcceptInZone$", "-test.v")
			cmd.Env = append(os.Environ(), "TZ="+zone, zoneEnv+"="+string(text))
			if output, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", zone, err, output)
			}
		}
		after := time.Now().Add(time.Second)

		// Due and received in the order in which they came, whatever the zone.
		if !n.postgres() {
			odd := n.count(t, `SELECT count(*) FROM inbox_queue JOIN inbox_messages USING (id) WHERE due <> '2044-07-01T12:00:00.000000Z' OR received_at NOT GLOB '20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9]Z'`)
			if odd != 0 {
				t.Errorf("%d rows with times in another format", odd)
			}
		}
		late, err := newNodeOn(n.db, inbox.Config{Clock: func() time.Time { return futureDue }})
		if err != nil {
			t.Fatal(err)
		}
		tx, err := n.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		claimed, err := late.repo.GetMany(t.Context(), tx, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) != len(zones) {
			t.Fatalf("%d claimed, want %d", len(claimed), len(zones))
		}
		for i, c := range claimed {
			if c.MessageID != zones[i] || c.ReceivedAt.Before(before) || c.ReceivedAt.After(after) {
				t.Errorf("%s received at %v, want %s between %v and %v", c.MessageID, c.ReceivedAt, zones[i], before, after)
			}
			before = c.ReceivedAt
		}
	})
}

// TestAcceptInZone is a process of its own: the time zone of a process cannot be
// changed while others use it.
func TestAcceptInZone(t *testing.T) {
	text, child := os.LookupEnv(zoneEnv)
	if !child {
		t.Skip("runs as the child of TestTimeZoneOfTheProcess")
	}
	var target target
	if err := json.Unmarshal([]byte(text), &target); err != nil {
		t.Fatal(err)
	}
	zone := os.Getenv("TZ")
	if _, err := time.LoadLocation(zone); err != nil {
		t.Fatal(err)
	}
	n := openNode(t, target, true)
	entries := taskEntries(zone)
	entries[0].Due = futureDue.Local()
	if _, err := n.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}
