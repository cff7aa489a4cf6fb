package main

import (
	"errors"
	"image/color"
	"io"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// charted are the cases of the chart: what they are called there.
var charted = []struct{ name, title, unit string }{
	{"drain-each-32", "drain, per-message handler", perSecond},
	{"drain-batch-100", "drain, batch handler of 100", perSecond},
	{"accept-single-16", "accept, one a call, 16 callers", perSecond},
	{"accept-batch-100", "accept, 100 a call", perSecond},
	{"latency-50", "latency p99 at 50/s, less is better", unitP99},
	{"latency-500", "latency p99 at 500/s, less is better", unitP99},
}

var (
	oursColor  = color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}
	limitColor = color.RGBA{R: 0x7f, G: 0x7f, B: 0x7f, A: 0xff}
	peerColor  = color.RGBA{R: 0xf2, G: 0xb1, B: 0x6b, A: 0xff}
)

// writeChart draws the main cases as an SVG, one panel a case, two in a row.
func writeChart(out io.Writer, records []record) error {
	var panels []*plot.Plot
	for _, c := range charted {
		var bars []record
		for _, r := range records {
			if r.Case == c.name && r.Unit == c.unit {
				bars = append(bars, r)
			}
		}
		if len(bars) == 0 {
			continue
		}
		panel, err := barPanel(c.title, c.unit, bars)
		if err != nil {
			return err
		}
		panels = append(panels, panel)
	}
	if len(panels) == 0 {
		return errors.New("chart: none of its cases was run")
	}
	rows := (len(panels) + 1) / 2
	canvas := vgsvg.New(9*vg.Inch, vg.Length(rows)*2.4*vg.Inch)
	tiles := draw.Tiles{
		Rows: rows, Cols: 2, PadX: 16, PadY: 16, PadTop: 6, PadBottom: 6, PadLeft: 6, PadRight: 16,
	}
	for i, panel := range panels {
		panel.Draw(tiles.At(draw.New(canvas), i%2, i/2))
	}
	_, err := canvas.WriteTo(out)
	return err
}

// barPanel draws horizontal bars, the first record on top.
func barPanel(title, unit string, bars []record) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, unit
	p.X.Min = 0
	slices.Reverse(bars)
	names := make([]string, len(bars))
	for i, r := range bars {
		names[i] = r.Peer
		bar, err := plotter.NewBarChart(plotter.Values{r.Value}, vg.Points(12))
		if err != nil {
			return nil, err
		}
		bar.Horizontal, bar.XMin, bar.LineStyle.Width = true, float64(i), 0
		bar.Color = barColor(r.Peer)
		p.Add(bar)
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: r.Value, Y: float64(i)}}, Labels: []string{" " + number(r.Value)}})
		if err != nil {
			return nil, err
		}
		label.Offset.Y = -vg.Points(4)
		p.Add(label)
	}
	p.NominalY(names...)
	p.X.Max *= 1.15 // for the numbers
	return p, nil
}

func barColor(peer string) color.Color {
	switch peer {
	case letterboxPeer, letterboxBunPeer, togetherPeer:
		return oursColor
	case byHandPeer, setBasedPeer:
		return limitColor
	}
	return peerColor
}
