package doctor

import (
	"context"
	"fmt"
	"strings"
)

// tableSize is what a table takes on disk. Rows is the planner's estimate.
type tableSize struct {
	Name    string
	Rows    float64
	Bytes   float64
	Beside  float64 // TOAST and maps
	Indexes float64
}

func (e *examination) postgresSize(ctx context.Context) error {
	var sizes []tableSize
	if err := e.scan(ctx, &sizes, postgresSizes, e.tables.Messages, e.tables.Queue); err != nil {
		return err
	}
	var lines []string
	var bytes float64
	for _, s := range sizes {
		lines = append(lines, fmt.Sprintf("%s: table %s, large values %s, indexes %s", s.Name, size(s.Bytes), size(s.Beside), size(s.Indexes)))
		if strings.HasSuffix(s.Name, "_messages") {
			bytes = s.Bytes + s.Beside + s.Indexes
		}
	}
	return e.sized(ctx, bytes, lines)
}

func (e *examination) sqliteSize(ctx context.Context) error {
	var file struct{ Pages, Free, Bytes int64 }
	if err := e.scan(ctx, &file, sqliteFile); err != nil {
		return err
	}
	return e.sized(ctx, float64((file.Pages-file.Free)*file.Bytes), []string{
		fmt.Sprintf("file %s, of which %s is free for new rows", size(float64(file.Pages*file.Bytes)), size(float64(file.Free*file.Bytes))),
	})
}

// sized reports sizes, with a forecast.
func (e *examination) sized(ctx context.Context, bytes float64, lines []string) error {
	rows := e.stats.Processed + e.stats.Pending + e.stats.Dead
	forecast, err := e.forecast(ctx, float64(rows), bytes)
	if err != nil {
		return err
	}
	estimated := ""
	if e.stats.Estimated {
		estimated = "about "
	}
	lines = append(append(lines, estimated+plural(rows, "message")+" stored"), forecast...)
	e.find("size", Info, "The inbox takes "+size(bytes), "", lines...)
	return nil
}
