package dashboard

import (
	"encoding/hex"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// What the API answers; openapi.yaml describes the same. Times that are not set
// and empty optional fields are left out.

type apiStats struct {
	Pending          int64                     `json:"pending"`
	Failing          int64                     `json:"failing"`
	Parked           int64                     `json:"parked"`
	ParkedKeys       int64                     `json:"parked_keys"`
	Dead             int64                     `json:"dead"`
	Processed        int64                     `json:"processed"`
	Estimated        bool                      `json:"estimated"`
	OldestDueSeconds float64                   `json:"oldest_due_seconds"`
	Names            map[string]apiNameStats   `json:"names"`
	Sources          map[string]apiSourceStats `json:"sources"`
	SourcesPartial   bool                      `json:"sources_partial"`
	Paused           []string                  `json:"paused"`
	Unclaimed        []string                  `json:"unclaimed"`
}

type apiNameStats struct {
	Pending          int64   `json:"pending"`
	Failing          int64   `json:"failing"`
	Parked           int64   `json:"parked"`
	Dead             int64   `json:"dead"`
	OldestDueSeconds float64 `json:"oldest_due_seconds"`
	Registered       bool    `json:"registered"`
	Paused           bool    `json:"paused"`
	Claimed          bool    `json:"claimed"`
}

type apiSourceStats struct {
	Pending int64 `json:"pending"`
	Dead    int64 `json:"dead"`
}

func newAPIStats(s inbox.Stats) apiStats {
	out := apiStats{
		Pending: s.Pending, Failing: s.Failing, Parked: s.Parked, ParkedKeys: s.ParkedKeys, Dead: s.Dead,
		Processed: s.Processed, Estimated: s.Estimated, OldestDueSeconds: s.OldestDue.Seconds(),
		Names: map[string]apiNameStats{}, Sources: map[string]apiSourceStats{}, SourcesPartial: s.SourcesPartial,
		Paused: notNil(s.Paused), Unclaimed: notNil(s.Unclaimed),
	}
	for name, n := range s.Names {
		out.Names[name] = apiNameStats{
			Pending: n.Pending, Failing: n.Failing, Parked: n.Parked, Dead: n.Dead, OldestDueSeconds: n.OldestDue.Seconds(),
			Registered: n.Registered, Paused: n.Paused, Claimed: n.Claimed,
		}
	}
	for source, n := range s.Sources {
		out.Sources[source] = apiSourceStats(n)
	}
	return out
}

// notNil makes an empty list of none.
func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

type apiMinute struct {
	Minute    time.Time `json:"minute"`
	Name      string    `json:"name"`
	Processed int64     `json:"processed"`
	Failed    int64     `json:"failed"`
	Died      int64     `json:"died"`
}

type apiProcessor struct {
	ID            string    `json:"id"`
	Host          string    `json:"host"`
	PID           int64     `json:"pid"`
	Workers       int       `json:"workers"`
	Names         []string  `json:"names"`
	Alive         bool      `json:"alive"`
	StartedAt     time.Time `json:"started_at"`
	SeenAt        time.Time `json:"seen_at"`
	CautiousUntil time.Time `json:"cautious_until,omitzero"`
}

type apiSummary struct {
	ID               int64     `json:"id"`
	Source           string    `json:"source"`
	MessageID        string    `json:"message_id"`
	Name             string    `json:"name"`
	OrderingKey      string    `json:"ordering_key"`
	Status           string    `json:"status"`
	Discarded        bool      `json:"discarded"`
	Parked           bool      `json:"parked"`
	Blocking         bool      `json:"blocking"`
	Attempts         int       `json:"attempts"`
	Interruptions    int       `json:"interruptions"`
	LastError        string    `json:"last_error"`
	ReceivedAt       time.Time `json:"received_at"`
	Due              time.Time `json:"due,omitzero"`
	DiedAt           time.Time `json:"died_at,omitzero"`
	ProcessedAt      time.Time `json:"processed_at,omitzero"`
	DiscardedAt      time.Time `json:"discarded_at,omitzero"`
	PayloadRemovedAt time.Time `json:"payload_removed_at,omitzero"`
}

func newAPISummary(s inbox.Summary) apiSummary {
	return apiSummary{
		ID: s.ID, Source: s.Source, MessageID: s.MessageID, Name: s.Name, OrderingKey: s.OrderingKey,
		Status: s.Kind.String(), Discarded: s.Discarded, Parked: s.Parked, Blocking: s.Blocking,
		Attempts: s.Attempts, Interruptions: s.Interruptions, LastError: s.LastError,
		ReceivedAt: s.ReceivedAt, Due: s.Due, DiedAt: s.DiedAt, ProcessedAt: s.ProcessedAt,
		DiscardedAt: s.DiscardedAt, PayloadRemovedAt: s.PayloadRemovedAt,
	}
}

type apiList struct {
	Messages []apiSummary `json:"messages"`
	Next     int64        `json:"next,omitempty"`
}

type apiDetail struct {
	apiSummary
	BlockedBy   int64             `json:"blocked_by,omitempty"`
	Metadata    map[string]string `json:"metadata"`
	RawMetadata string            `json:"raw_metadata"`
	Fingerprint string            `json:"fingerprint"`
	PayloadSize int               `json:"payload_size"`
	History     []apiAttempt      `json:"history"`
	TraceURL    string            `json:"trace_url,omitempty"`
}

type apiAttempt struct {
	Number          int       `json:"number"`
	StartedAt       time.Time `json:"started_at"`
	DurationSeconds float64   `json:"duration_seconds"`
	Processor       string    `json:"processor"`
	Error           string    `json:"error"`
}

func newAPIDetail(m messageView) apiDetail {
	out := apiDetail{
		apiSummary: newAPISummary(m.Summary), BlockedBy: m.BlockedBy, Metadata: m.Metadata, RawMetadata: m.RawMetadata,
		Fingerprint: hex.EncodeToString(m.Fingerprint), PayloadSize: m.Size, History: []apiAttempt{}, TraceURL: m.TraceURL,
	}
	for _, a := range m.History {
		out.History = append(out.History, apiAttempt{a.Number, a.StartedAt, a.Duration.Seconds(), a.Processor, a.Error})
	}
	return out
}

type apiPayload struct {
	Payload  []byte `json:"payload"`
	Redacted bool   `json:"redacted"`
}

type apiDeadError struct {
	Name      string    `json:"name"`
	Error     string    `json:"error"`
	Count     int64     `json:"count"`
	ExampleID int64     `json:"example_id"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

type apiParkedKey struct {
	Key       string    `json:"key"`
	ID        int64     `json:"id"`
	Source    string    `json:"source"`
	MessageID string    `json:"message_id"`
	Name      string    `json:"name"`
	LastError string    `json:"last_error"`
	Since     time.Time `json:"since"`
	Dead      int64     `json:"dead"`
	Waiting   int64     `json:"waiting"`
}

type apiPausedName struct {
	Name     string    `json:"name"`
	Actor    string    `json:"actor"`
	PausedAt time.Time `json:"paused_at"`
}

type apiJobStatus struct {
	ID        string    `json:"id"`
	Actor     string    `json:"actor"`
	Running   bool      `json:"running"`
	Stopped   bool      `json:"stopped"`
	Total     int64     `json:"total"`
	Done      int64     `json:"done"`
	PerSecond int       `json:"per_second"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	Problem   string    `json:"problem,omitempty"`
}

func newAPIJob(s jobStatus) apiJobStatus {
	return apiJobStatus{
		ID: s.ID, Actor: s.Actor, Running: s.Running(), Stopped: s.Stopped, Total: s.Total, Done: s.Done,
		PerSecond: s.PerSecond, StartedAt: s.StartedAt, EndedAt: s.EndedAt, Problem: s.Problem,
	}
}
