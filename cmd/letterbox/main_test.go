package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/letterbox-go/letterbox/inbox"
	"github.com/letterbox-go/letterbox/internal/testdb"
	"github.com/letterbox-go/letterbox/mediator"
)

type credit struct {
	Amount json.Number `json:"amount"`
	Fail   string      `json:"fail"`
}

// place is a database that the command line is pointed at.
type place struct {
	url  string
	db   *bun.DB
	repo *inbox.Repository
	proc *inbox.Processor
}

// places returns one on each database.
func places(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresPlace(t))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, sqlitePlace(t))
	})
}

func postgresPlace(t *testing.T) *place {
	t.Helper()
	url := testdb.Postgres(t)
	db, err := testdb.OpenPGX(url)
	return newPlace(t, url, db, err)
}

func sqlitePlace(t *testing.T) *place {
	t.Helper()
	file := testdb.SQLiteFile(t)
	db, err := testdb.OpenSQLite(file)
	return newPlace(t, "file:"+file, db, err)
}

func newPlace(t *testing.T, url string, db *bun.DB, err error) *place {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p := &place{url: url, db: db}
	names := inbox.NewNameMap()
	inbox.Register[credit](names, "credit")
	if p.repo, err = inbox.NewRepository(db, names, inbox.Config{}); err != nil {
		t.Fatal(err)
	}
	requests := mediator.NewRequestMap()
	mediator.BindCommand(requests, func(_ context.Context, c credit) error {
		if c.Fail != "" {
			return inbox.Permanent(errors.New(c.Fail))
		}
		return nil
	})
	p.proc, err = inbox.NewProcessor(p.repo, inbox.ProcessorConfig{Requests: mediator.NewRequestMediator(requests)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// call runs the command line through pipes.
func (p *place) call(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return call(t, stdin, append([]string{"--database-url", p.url, "--actor", "eve"}, args...)...)
}

func call(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

func (p *place) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := p.db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (p *place) accept(t *testing.T, entries ...inbox.Entry) {
	t.Helper()
	if _, err := p.repo.Accept(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

const hostile = "\x1b[2J\nboom\u202e<script>alert(1)</script>"

// fill makes an inbox with a message of every kind: 1 processed, 2 dead and
// holding up 3, 4 dead and hostile, 5 due in the future, 6 dead.
func (p *place) fill(t *testing.T) {
	t.Helper()
	if code, _, stderr := p.call(t, "", "migrate", "up"); code != 0 {
		t.Fatal(stderr)
	}
	entry := func(id, key, payload string) inbox.Entry {
		return inbox.Entry{Source: "psp", MessageID: id, OrderingKey: key, Message: inbox.Raw{Name: "credit", Payload: []byte(payload)}}
	}
	entries := []inbox.Entry{
		entry("evt-1", "", `{"amount": 9007199254740993, "note": "<b>\u202e\u001b[2J`+"\u202e"+`</b>"}`),
		entry("evt-2", "acct-1", `{"fail":"no such account"}`),
		entry("evt-3", "acct-1", `{}`),
		entry(`x"y`, "", "\xff\x00\x1b[2J"),
		entry("evt-5", "", `{}`),
		entry("evt-6", "", `plain text`),
	}
	entries[3].Source = "a\u202eb<script>"
	entries[3].Metadata = map[string]string{"note": hostile, "number": "9007199254740993"}
	p.accept(t, entries...)
	p.exec(t, `UPDATE inbox_queue SET due = '2100-01-01T00:00:00.000000Z' WHERE id = 5`)
	if _, err := p.proc.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.exec(t, `UPDATE inbox_attempts SET duration = 2000000, processor = 'p-1'`)
	// An inbox cleans what it stores; others may not.
	for _, table := range []string{"inbox_messages SET last_error", "inbox_attempts SET error"} {
		if _, err := p.db.NewRaw(`UPDATE `+table+` = ? WHERE id = 4`, hostile).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.fill(t)
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"success", []string{"stats"}, 0, ""},
		{"unknown command", []string{"bogus"}, 2, "letterbox --help"},
		{"unknown flag", []string{"list", "--bogus"}, 2, "unknown flag"},
		{"missing argument", []string{"show"}, 2, "accepts 1 arg"},
		{"bad output", []string{"list", "-o", "xml"}, 2, "table or json"},
		{"bad status", []string{"list", "--status", "gone"}, 2, "letterbox list --help"},
		{"bad time", []string{"list", "--after", "yesterday"}, 2, "12h"},
		{"bad id", []string{"show", "x"}, 2, "no ID"},
		{"no such message", []string{"show", "99"}, 1, "letterbox list shows"},
		{"processed message", []string{"retry", "1"}, 1, "it is processed"},
		{"not dead", []string{"edit", "5", "--file", os.DevNull}, 1, "only a dead message"},
		{"bad payload", []string{"edit", "6", "--file", os.DevNull, "--yes"}, 1, "--force"},
		{"no yes", []string{"discard", "6"}, 2, "--yes"},
		{"other prefix", []string{"stats", "--prefix", "outbox"}, 1, "letterbox migrate up"},
		{"bad prefix", []string{"stats", "--prefix", "a?b"}, 2, "--prefix"},
		{"no window", []string{"sweep"}, 2, "--dedupe-window"},
		{"remote dashboard", []string{"dashboard", "--listen", "0.0.0.0:0"}, 2, "--remote"},
	} {
		code, stdout, stderr := p.call(t, "", c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: code %d, want %d and %q\n%s%s", c.name, code, c.code, c.says, stdout, stderr)
		}
		if code != 0 && len(strings.Split(strings.TrimSpace(stderr), "\n")) < 2 {
			t.Errorf("%s: no next step: %s", c.name, stderr)
		}
	}
	for _, args := range [][]string{{"stats"}, {"stats", "--database-url", "mysql://x"}} {
		if os.Getenv("DATABASE_URL") != "" {
			break
		}
		if code, _, stderr := call(t, "", args...); code != 2 || !strings.Contains(stderr, "DATABASE_URL") {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
	missing := "file:" + filepath.Join(t.TempDir(), "none.db")
	if code, _, stderr := call(t, "", "stats", "--database-url", missing); code != 1 || !strings.Contains(stderr, "migrate up") {
		t.Errorf("no file: %d %s", code, stderr)
	}
	if _, err := os.Stat(strings.TrimPrefix(missing, "file:")); err == nil {
		t.Error("the file was made")
	}
}

func TestCriticalFindingIsAFailure(t *testing.T) {
	t.Parallel()
	places(t, func(t *testing.T, p *place) {
		p.fill(t)
		code, stdout, stderr := p.call(t, "", "doctor", "--ignore", "fsync-off")
		if code != 0 || !strings.Contains(stdout, "parked-keys") || !strings.Contains(stdout, "dead-messages") {
			t.Errorf("%d\n%s%s", code, stdout, stderr)
		}
		inertText(t, "doctor", stdout)
		p.exec(t, `DROP INDEX inbox_queue_claim`)
		for _, output := range []string{"table", "json"} {
			code, stdout, stderr = p.call(t, "", "doctor", "--ignore", "fsync-off", "-o", output)
			if code != 1 || !strings.Contains(stdout, "missing-index") || !strings.Contains(stderr, "critical") {
				t.Errorf("%d\n%s%s", code, stdout, stderr)
			}
		}
		var report struct {
			Findings []struct{ ID, Severity, Remedy string }
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || report.Findings[0].Severity != "critical" {
			t.Errorf("%v %+v", err, report)
		}
	})
}

func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://eve:s3cr3t@127.0.0.1:1/db",
		"postgres://eve:s3cr3t@127.0.0.1:bad/db",
		"postgres://eve:s3cr3t%@127.0.0.1/db",
		"postgres://eve:s3cr3t@127.0.0.1/db?sslmode=bogus",
		"postgres://127.0.0.1:1/db?user=eve&password=s3cr3t",
		"mysql://eve:s3cr3t@127.0.0.1/db",
	} {
		for _, args := range [][]string{{"stats", "-v"}, {"doctor", "-o", "json"}, {"migrate", "up"}} {
			code, stdout, stderr := call(t, "", append(args, "--database-url", url)...)
			if code == 0 || strings.Contains(stdout+stderr, "s3cr3t") {
				t.Errorf("%s %v: %d\n%s%s", url, args, code, stdout, stderr)
			}
		}
	}
}

func TestBinary(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "letterbox")
	build := exec.Command("go", "build", "-o", file, ".")
	build.Env = append(os.Environ(), "GOWORK=off") // as go install sees it
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	p := sqlitePlace(t)
	p.fill(t)
	cmd := exec.Command(file, "list", "--status", "dead", "-o", "json")
	cmd.Env = append(os.Environ(), "DATABASE_URL="+p.url)
	text, err := cmd.Output()
	if err != nil || !bytes.Contains(text, []byte("no such account")) {
		t.Errorf("%v\n%s", err, text)
	}
	err = exec.Command(file, "bogus").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("an unknown command: %v", err)
	}
	for shell, says := range map[string]string{"bash": "__start_letterbox", "fish": "complete -c letterbox", "zsh": "#compdef letterbox"} {
		if text, err := exec.Command(file, "completion", shell).Output(); err != nil || !bytes.Contains(text, []byte(says)) {
			t.Errorf("completion for %s: %v", shell, err)
		}
	}
}

// A module with a replace directive cannot be installed.
func TestModuleCanBeInstalled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if word := strings.Fields(line); len(word) > 0 && (word[0] == "replace" || word[0] == "exclude") {
			t.Errorf("go.mod: %s", line)
		}
	}
}

// inertText fails if a text could command a terminal or change its order.
func inertText(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && inert(string(r)) != string(r) {
			t.Errorf("%s: %q at %d of\n%q", what, r, i, text)
			return
		}
	}
}

func FuzzInert(f *testing.F) {
	f.Add(hostile)
	f.Add("\xff\u009b31m\U000e0041")
	f.Fuzz(func(t *testing.T, text string) {
		inertText(t, "inert", inert(text))
		inertText(t, "cell", cell(text))
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		safe := inertJSON(encoded)
		inertText(t, "inertJSON", string(safe))
		var before, after string
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal(safe, &after) != nil || before != after {
			t.Errorf("%q became %q", before, after)
		}
	})
}

func Example_run() {
	fmt.Println(run(context.Background(), []string{"bogus"}, strings.NewReader(""), os.Stdout, os.Stdout))
	// Output:
	// letterbox: unknown command "bogus" for "letterbox"
	// See letterbox --help.
	// 2
}
