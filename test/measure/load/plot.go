package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
)

// The plot has one row for each scenario in which latency was measured against the
// bare client: on the left latency over time, on the right its percentiles.
const (
	panelWidth, panelHeight = 420, 200
	marginLeft, marginTop   = 64, 56
	gapX, gapY              = 76, 84
)

var colours = map[string]string{theOperator: "#c2410c", theBare: "#1d4ed8"}

// plot draws the latencies of a report as SVG.
func plot(r Report) []byte {
	var rows []Scenario
	for _, s := range r.Scenarios {
		if len(lastTurns(s)) == 2 {
			rows = append(rows, s)
		}
	}
	width := marginLeft + 2*panelWidth + gapX + 24
	height := marginTop + len(rows)*(panelHeight+gapY)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`, width, height)
	x := marginLeft
	for _, who := range []string{theOperator, theBare} {
		fmt.Fprintf(&b, `<line x1="%d" y1="16" x2="%d" y2="16" stroke="%s" stroke-width="2"/><text x="%d" y="20">%s</text>`, x, x+24, colours[who], x+30, who)
		x += 130
	}
	fmt.Fprintf(&b, `<text x="%d" y="20" fill="#555">time from creation to Starting, in milliseconds; thick: p50, thin: p99</text>`, x)
	for i, s := range rows {
		y := marginTop + i*(panelHeight+gapY)
		drawScenario(&b, s, y)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// lastTurns returns the last turn of each of the two in which instances started.
func lastTurns(s Scenario) map[string]Turn {
	turns := map[string]Turn{}
	for _, t := range s.Turns {
		if len(t.Series) > 0 {
			turns[t.Who] = t
		}
	}
	return turns
}

func drawScenario(b *bytes.Buffer, s Scenario, y int) {
	turns := lastTurns(s)
	low, high, end := math.Inf(1), 0.0, 0.0
	for _, t := range turns {
		for _, p := range t.Series {
			low, high, end = min(low, p.P50), max(high, p.P99), max(end, p.Second)
		}
		for _, v := range t.Latency["starting"].Curve {
			low, high = min(low, v), max(high, v)
		}
	}
	low = math.Pow(10, math.Floor(math.Log10(max(low, 1))))
	high = math.Pow(10, math.Ceil(math.Log10(max(high, low*10))))
	over := panel{x: marginLeft, y: y, low: low, high: high, end: max(end, 1)}
	curve := panel{x: marginLeft + panelWidth + gapX, y: y, low: low, high: high, end: 100}
	over.frame(b, s.Title+": over time", "s")
	curve.frame(b, "percentiles", "%")
	for _, who := range []string{theBare, theOperator} {
		var p50, p99, percentiles []float64
		var at, ranks []float64
		for _, p := range turns[who].Series {
			at, p50, p99 = append(at, p.Second), append(p50, p.P50), append(p99, p.P99)
		}
		for i, v := range turns[who].Latency["starting"].Curve {
			ranks, percentiles = append(ranks, float64(2*i)), append(percentiles, v)
		}
		over.line(b, at, p50, colours[who], 2)
		over.line(b, at, p99, colours[who], 0.8)
		curve.line(b, ranks, percentiles, colours[who], 2)
	}
}

// panel is one system of axes: x linear from 0 to end, y logarithmic.
type panel struct {
	x, y           int
	low, high, end float64
}

func (p panel) frame(b *bytes.Buffer, title, unit string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`, p.x, p.y-10, html.EscapeString(title))
	for v := p.low; v <= p.high*1.001; v *= 10 {
		_, y := p.at(0, v)
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`, p.x, y, p.x+panelWidth, y, p.x-6, y+4, v)
	}
	for i := range 6 {
		v := p.end * float64(i) / 5
		x, _ := p.at(v, p.low)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#eee"/><text x="%.1f" y="%d" text-anchor="middle">%g %s</text>`, x, p.y, x, p.y+panelHeight, x, p.y+panelHeight+18, round(v, 1), unit)
	}
}

func (p panel) at(x, y float64) (float64, float64) {
	y = min(max(y, p.low), p.high)
	return float64(p.x) + panelWidth*x/p.end,
		float64(p.y) + panelHeight*(1-math.Log(y/p.low)/math.Log(p.high/p.low))
}

func (p panel) line(b *bytes.Buffer, xs, ys []float64, colour string, width float64) {
	fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="%g" points="`, colour, width)
	for i := range xs {
		x, y := p.at(xs[i], ys[i])
		fmt.Fprintf(b, "%.1f,%.1f ", x, y)
	}
	b.WriteString(`"/>`)
}
