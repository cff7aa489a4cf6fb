package doctor

import (
	"context"
	"fmt"
	"time"
)

// retention compares the dedupe window with what the broker may deliver again.
func (e *examination) retention(context.Context) error {
	window := e.repo.Config().Retention.DedupeWindow
	if broker := e.config.BrokerRetention; broker > 0 && window > 0 && window < broker {
		e.find("retention", Critical, "The broker remembers messages for longer than the inbox",
			"Make Retention.DedupeWindow longer than the broker's retention: a message that is delivered again after it was forgotten is processed again.",
			"the inbox forgets after "+age(window), "the broker may deliver again for "+age(broker))
	}
	return nil
}

const day = 24 * time.Hour

// forecastLeast is how much history a forecast needs.
const forecastLeast = 10 * time.Minute

// forecast says how the messages table will grow. rows is how many it has.
func (e *examination) forecast(ctx context.Context, rows, bytes float64) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.config.Timeout)
	defer cancel()
	minutes, err := e.repo.Minutes(ctx, day)
	if err != nil || len(minutes) == 0 {
		return nil, err
	}
	var finished int64
	for _, m := range minutes {
		finished += m.Processed + m.Died
	}
	span := e.now.Sub(minutes[0].Minute)
	if span < forecastLeast || rows < 1 {
		return []string{"the processors have run for too short a time for a forecast"}, nil
	}
	perDay := float64(finished) * float64(day) / float64(span)
	lines := []string{fmt.Sprintf("%.0f messages a day, about %s a day", perDay, size(perDay*bytes/rows))}
	if window := e.repo.Config().Retention.DedupeWindow; window > 0 {
		steady := perDay * window.Hours() / 24
		lines = append(lines, fmt.Sprintf("at this rate %.0f messages, %s, when the dedupe window of %s is full", steady, size(steady*bytes/rows), age(window)))
	}
	return lines, nil
}
