package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// The plot's geometry, in SVG units.
const (
	plotWidth, plotHeight = 720.0, 420.0
	marginLeft            = 70.0
	marginRight           = 90.0
	marginTop             = 40.0
	marginBottom          = 55.0
)

// Plot writes the latencies of the cases, which are in order of their rates, against the rates as SVG, both axes logarithmic.
func (r *Report) Plot(w io.Writer) error {
	r.summarise()
	points := r.Cases
	if len(points) == 0 {
		return errors.New("report: there is nothing to plot")
	}
	minRate, maxRate := math.Inf(1), 0.0
	minY, maxY := math.Inf(1), 0.0
	for _, p := range points {
		minRate, maxRate = min(minRate, p.Records), max(maxRate, p.Records)
		minY, maxY = min(minY, p.P50), max(maxY, p.P999)
	}
	x := axis{math.Floor(math.Log10(minRate)), math.Ceil(math.Log10(maxRate)), marginLeft, plotWidth - marginRight}
	y := axis{math.Floor(math.Log10(minY)), math.Ceil(math.Log10(maxY)), plotHeight - marginBottom, marginTop}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="22" font-size="15">%s</text>`+"\n", marginLeft, r.Title)
	grid(&b, x, y)
	for _, line := range []struct {
		name, colour string
		of           func(Case) float64
	}{
		{"p50", "#1b7837", func(p Case) float64 { return p.P50 }},
		{"p99", "#2166ac", func(p Case) float64 { return p.P99 }},
		{"p99.9", "#b2182b", func(p Case) float64 { return p.P999 }},
	} {
		var path []string
		for _, p := range points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(p.Records), y.at(line.of(p))))
		}
		for _, p := range points {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.Records), y.at(line.of(p)), line.colour)
		}
		last := points[len(points)-1]
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), line.colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n", x.at(last.Records)+6, y.at(line.of(last))+4, line.colour, line.name)
	}
	fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="middle">records per second</text>`+"\n", (marginLeft+plotWidth-marginRight)/2, plotHeight-12)
	fmt.Fprintf(&b, `<text x="18" y="%g" text-anchor="middle" transform="rotate(-90 18 %g)">ack latency</text></svg>`+"\n", plotHeight/2, plotHeight/2)
	_, err := io.WriteString(w, b.String())
	return err
}

// axis maps decades to a range of the picture.
type axis struct{ from, to, low, high float64 }

func (a axis) at(v float64) float64 {
	return a.low + (math.Log10(v)-a.from)/max(1, a.to-a.from)*(a.high-a.low)
}

func grid(b *strings.Builder, x, y axis) {
	for d := x.from; d <= x.to; d++ {
		at := x.at(math.Pow(10, d))
		fmt.Fprintf(b, `<line x1="%.1f" y1="%g" x2="%.1f" y2="%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n",
			at, marginTop, at, plotHeight-marginBottom, at, plotHeight-marginBottom+18, short(math.Pow(10, d)))
	}
	for d := y.from; d <= y.to; d++ {
		at := y.at(math.Pow(10, d))
		fmt.Fprintf(b, `<line x1="%g" y1="%.1f" x2="%g" y2="%.1f" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n",
			marginLeft, at, plotWidth-marginRight, at, marginLeft-6, at+4, micros(math.Pow(10, d)))
	}
}

func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", v)
}

func micros(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%g s", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%g ms", v/1e3)
	}
	return fmt.Sprintf("%g µs", v)
}
