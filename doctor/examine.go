package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/letterbox-go/letterbox/inbox"
)

// examination is one run of Examine.
type examination struct {
	config     Config
	repo       *inbox.Repository
	db         *bun.DB
	tables     inbox.Tables
	report     Report
	stats      inbox.Stats
	processors []inbox.ProcessorInfo
	now        time.Time       // by the database's clock
	indexes    map[string]bool // those that are there and valid, without the prefix
}

// check looks for one kind of trouble. What it could not read is an error.
type check struct {
	name string
	run  func(*examination, context.Context) error
}

var (
	everywhere = []check{
		{"queue", (*examination).queue},
		{"dead messages", (*examination).dead},
		{"parked keys", (*examination).parked},
		{"paused names", (*examination).paused},
		{"retention", (*examination).retention},
		{"pool", (*examination).pool},
	}
	onPostgres = []check{
		{"settings", (*examination).settings},
		{"rights", (*examination).rights},
		{"connections", (*examination).connections},
		{"pooler", (*examination).pooler},
		{"clock", (*examination).clock},
		{"snapshots", (*examination).snapshots},
		{"prepared transactions", (*examination).prepared},
		{"replication slots", (*examination).slots},
		{"vacuum", (*examination).vacuum},
		{"indexes", (*examination).postgresIndexes},
		{"plans", (*examination).postgresPlans},
		{"size", (*examination).postgresSize},
	}
	onSQLite = []check{
		{"pragmas", (*examination).pragmas},
		{"indexes", (*examination).sqliteIndexes},
		{"plans", (*examination).sqlitePlans},
		{"size", (*examination).sqliteSize},
	}
)

// Examine looks at the inbox of repo and at its database. An error means that
// the database could not be reached at all, or that config is wrong.
func Examine(ctx context.Context, repo *inbox.Repository, config Config) (Report, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return Report{}, err
	}
	e := &examination{
		config: config, repo: repo, db: repo.Database(), tables: repo.Tables(), indexes: map[string]bool{},
		report: Report{Findings: []Finding{}, ExaminedAt: config.Clock().UTC()},
	}
	postgres := e.db.Dialect().Name() == dialect.PG
	usable, err := e.schema(ctx, postgres)
	if err != nil {
		return Report{}, err
	}
	if usable {
		e.checkAll(ctx, everywhere)
		if postgres {
			e.checkAll(ctx, onPostgres)
		} else {
			e.checkAll(ctx, onSQLite)
		}
	}
	if err := ctx.Err(); err != nil {
		return Report{}, fmt.Errorf("doctor: %w", err)
	}
	e.tidy()
	return e.report, nil
}

// schema finds out what database this is, and whether the tables are there.
func (e *examination) schema(ctx context.Context, postgres bool) (usable bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	product, version := "SQLite", sqliteVersion
	if postgres {
		product, version = "PostgreSQL", postgresVersion
	}
	var number string
	if err := e.scan(ctx, &number, version); err != nil {
		return false, fmt.Errorf("doctor: reach the database: %w", err)
	}
	e.report.Database = product + " " + number
	e.now = e.report.ExaminedAt
	if postgres {
		if err := e.scan(ctx, &e.now, postgresClock); err != nil {
			return false, fmt.Errorf("doctor: read the clock: %w", err)
		}
	}
	current, newest, err := e.repo.SchemaVersion(ctx)
	switch {
	case err != nil:
		return false, fmt.Errorf("doctor: %w", err)
	case current == 0:
		e.find("schema", Critical, "The tables of the inbox do not exist",
			"Run letterbox migrate up, or call Repository.Migrate. If they exist elsewhere, name their schema and prefix.")
	case current < newest:
		e.find("schema", Critical, "The tables are older than this program",
			"Run letterbox migrate up, or call Repository.Migrate. It only adds; older programs can go on meanwhile.",
			fmt.Sprintf("version %d, this program needs %d", current, newest))
	case current > newest:
		e.find("schema", Warning, "The tables are newer than this program",
			"Use a newer release of this program.",
			fmt.Sprintf("version %d, this program knows %d", current, newest))
		return true, nil
	default:
		return true, nil
	}
	return false, nil
}

// checkAll runs checks one after another. One that fails is a finding.
func (e *examination) checkAll(ctx context.Context, checks []check) {
	for _, c := range checks {
		if err := c.run(e, ctx); err != nil && ctx.Err() == nil {
			reason := err.Error()
			if errors.Is(err, context.DeadlineExceeded) {
				reason = fmt.Sprintf("no answer within %v", e.config.Timeout)
			}
			e.find("unchecked", Info, "Something could not be examined: "+c.name,
				"Give the role the right to read it, or a longer time limit.", quote(reason))
		}
	}
}

// find adds a finding, with as much evidence as is wanted.
func (e *examination) find(id string, severity Severity, title, remedy string, evidence ...string) {
	if slices.Contains(e.config.Ignore, id) {
		return
	}
	if more := len(evidence) - e.config.MaxEvidence; more > 0 {
		evidence = append(slices.Clone(evidence[:e.config.MaxEvidence]), fmt.Sprintf("and %d more", more))
	}
	e.report.Findings = append(e.report.Findings, Finding{ID: id, Severity: severity, Title: title, Evidence: evidence, Remedy: remedy})
}

// tidy sorts the findings.
func (e *examination) tidy() {
	slices.SortStableFunc(e.report.Findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
}

// scan runs one query within the time limit.
func (e *examination) scan(ctx context.Context, dest any, query string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	return e.db.NewRaw(query, args...).Scan(ctx, dest)
}

// graded is a warning past a limit, and critical far past it.
func graded[T ~int64](value, limit T) Severity {
	if value > criticalTimes*limit {
		return Critical
	}
	return Warning
}
