package dashboard

import (
	"fmt"
	"time"

	"github.com/letterbox-go/letterbox/inbox"
)

// The chart is an SVG of one bar per minute; lengths are in its own units.
const (
	chartMinutes = 60
	chartStep    = 12.0
	chartBar     = 9.0
	chartHeight  = 120.0
)

// chart is an hour of per-minute counters.
type chart struct {
	Bars      []bar
	Most      int64 // the highest bar's count
	Processed int64
	Failed    int64
	Died      int64
	From, To  time.Time
	Width     float64
	Height    float64
}

// bar is a minute: failed attempts stand on what was processed.
type bar struct {
	Minute            time.Time
	Processed, Failed int64
	Label             string
	X, Width          float64
	ProcessedY        float64
	ProcessedHeight   float64
	FailedY           float64
	FailedHeight      float64
}

// newChart draws the hour before now, the current minute included.
func newChart(minutes []inbox.Minute, now time.Time) chart {
	last := now.UTC().Truncate(time.Minute)
	for _, m := range minutes { // the database's clock may be ahead
		if m.Minute.After(last) {
			last = m.Minute
		}
	}
	c := chart{
		Bars: make([]bar, chartMinutes), Width: chartMinutes * chartStep, Height: chartHeight,
		From: last.Add(-(chartMinutes - 1) * time.Minute), To: last,
	}
	for _, m := range minutes {
		at := int(m.Minute.Sub(c.From) / time.Minute)
		if m.Minute.Before(c.From) || at >= chartMinutes {
			continue
		}
		c.Bars[at].Processed += m.Processed
		c.Bars[at].Failed += m.Failed + m.Died
		c.Processed += m.Processed
		c.Failed += m.Failed + m.Died
		c.Died += m.Died
	}
	for _, b := range c.Bars {
		c.Most = max(c.Most, b.Processed+b.Failed)
	}
	scale := 0.0
	if c.Most > 0 {
		scale = chartHeight / float64(c.Most)
	}
	for i := range c.Bars {
		b := &c.Bars[i]
		b.Minute = c.From.Add(time.Duration(i) * time.Minute)
		b.X, b.Width = float64(i)*chartStep+(chartStep-chartBar)/2, chartBar
		b.ProcessedHeight = visibleHeight(b.Processed, scale)
		b.FailedHeight = min(visibleHeight(b.Failed, scale), chartHeight)
		b.ProcessedHeight = min(b.ProcessedHeight, chartHeight-b.FailedHeight)
		b.ProcessedY = chartHeight - b.ProcessedHeight
		b.FailedY = b.ProcessedY - b.FailedHeight
		b.Label = fmt.Sprintf("%s UTC: %s processed, %s failed", b.Minute.Format("15:04"), number(b.Processed), number(b.Failed))
	}
	return c
}

// visibleHeight keeps a bar that is not zero from disappearing.
func visibleHeight(n int64, scale float64) float64 {
	if n == 0 {
		return 0
	}
	return max(float64(n)*scale, 2)
}
