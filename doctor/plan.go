package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/letterbox-go/letterbox/inbox"
)

// planBytes is how large a table has to be before its plan is judged: a small
// one is read at once with good reason.
const planBytes = 4 << 20

// planNode is what EXPLAIN (FORMAT JSON) says of a node.
type planNode struct {
	Type     string     `json:"Node Type"`
	Relation string     `json:"Relation Name"`
	Index    string     `json:"Index Name"`
	Plans    []planNode `json:"Plans"`
}

// reads collects how a table is read.
func (p planNode) reads(table string, found *[]string) {
	if p.Relation == table && !strings.HasPrefix(p.Type, "Bitmap") {
		*found = append(*found, strings.TrimSpace(p.Type+" "+p.Index))
	}
	if p.Index != "" && p.Relation == "" { // the index of a bitmap scan
		*found = append(*found, p.Type+" "+p.Index)
	}
	for _, child := range p.Plans {
		child.reads(table, found)
	}
}

// postgresPlans looks at the two statements that run all the time. They are
// explained as the inbox sends them: bun writes arguments into the text, so
// there is no generic plan that could differ.
func (e *examination) postgresPlans(ctx context.Context) error {
	var sizes []tableSize
	if err := e.scan(ctx, &sizes, postgresSizes, e.tables.Messages, e.tables.Queue); err != nil {
		return err
	}
	prefix := e.repo.Config().Prefix
	large := func(suffix string) bool {
		return slices.ContainsFunc(sizes, func(s tableSize) bool { return s.Name == prefix+"_"+suffix && s.Bytes >= planBytes })
	}
	if large("queue") && e.indexes["queue_claim"] {
		ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
		defer cancel()
		text, err := e.repo.ExplainClaim(ctx, e.pendingNames())
		if err != nil {
			return err
		}
		if err := e.judge("The claim", text, "queue", "queue_claim", true); err != nil {
			return err
		}
	}
	if large("messages") && e.indexes["messages_identity"] {
		var text string
		if err := e.scan(ctx, &text, fmt.Sprintf(postgresLookup, e.tables.Messages)); err != nil {
			return err
		}
		return e.judge("Accepting", text, "messages", "messages_identity", false)
	}
	return nil
}

// judge reports a plan that reads a table in another way than by its index, or,
// where the order matters, along it: a bitmap would fetch the whole backlog.
func (e *examination) judge(statement, text, table, index string, ordered bool) error {
	var plans []struct{ Plan planNode }
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		return fmt.Errorf("read a plan: %w", err)
	}
	prefix := e.repo.Config().Prefix + "_"
	var reads []string
	for _, p := range plans {
		p.Plan.reads(prefix+table, &reads)
	}
	good := func(read string) bool {
		return strings.HasSuffix(read, " "+prefix+index) && !(ordered && strings.HasPrefix(read, "Bitmap"))
	}
	if !slices.ContainsFunc(reads, good) {
		e.badPlan(statement, reads)
	}
	return nil
}

func (e *examination) badPlan(statement string, reads []string) {
	e.find("plan", Warning, statement+" does not use its index",
		"ANALYZE both tables. If that does not help, look for enable_indexscan, enable_seqscan or random_page_cost set for the role or the database.",
		reads...)
}

func (e *examination) sqlitePlans(ctx context.Context) error {
	if !e.indexes["queue_claim"] {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	text, err := e.repo.ExplainClaim(ctx, e.pendingNames())
	if err != nil {
		return err
	}
	if !strings.Contains(text, e.repo.Config().Prefix+"_queue_claim") {
		e.badPlan("The claim", strings.Split(strings.TrimSpace(text), "\n"))
	}
	return nil
}

// pendingNames returns a few names that a claim would look for.
func (e *examination) pendingNames() []string {
	names := e.byAge(func(n inbox.NameStats) bool { return n.Pending > 0 })
	return names[:min(len(names), 10)]
}
