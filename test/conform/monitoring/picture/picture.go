// Package picture draws a dashboard as SVG, with what its panels showed in a stretch of time. It looks like Grafana where that
// helps to read it: the places of panels are those of Grafana's grid.
package picture

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// Board is a dashboard with its data.
type Board struct {
	Title, Text string
	// Begin and End are the time that its graphs show.
	Begin, End time.Time
	Panels     []Panel
}

// Panel is a number, a graph over time, or the heading of a row.
type Panel struct {
	// Type is that of Grafana: stat, timeseries or row.
	Type, Title string
	// X, Y, W and H are its place on a grid that is 24 wide.
	X, Y, W, H int
	// Unit is one of Grafana's.
	Unit    string
	Stacked bool
	// Steps are the colors of a number, by the value from which on they hold.
	Steps []Step
	// Lines are in the order of the legend. A number is the last value of the first one.
	Lines []Line
}

// Step is the color of a number of this size or more.
type Step struct {
	Color string
	From  float64
}

// Line is a series.
type Line struct {
	Legend string
	// Values are at equal distances from Begin to End, NaN where there is none.
	Values []float64
}

// Sizes in pixels. Documents show a picture some 900 wide.
const (
	column, unit = 42, 26
	margin       = 12
	header       = 52
	gap          = 3 // around a panel
)

// style has the colors of a light page, and those of a dark one where the reader prefers it. The background is drawn, so that
// either is legible on any page.
const style = `
text{font:12px system-ui,"Segoe UI",Helvetica,Arial,sans-serif;fill:#24292f}
.page{fill:#f4f5f5}.panel{fill:#fff;stroke:#d8dadf}.grid{stroke:#e4e6ea}.quiet{fill:#57606a;font-size:11px}
.title{font-weight:600}.row{font-weight:600;font-size:14px}.board{font-weight:600;font-size:18px}.number{font-size:26px;font-weight:600}
.line{fill:none;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}.area{stroke:none;fill-opacity:.22}
.green{fill:#1a7f37}.orange{fill:#bc4c00}.red{fill:#cf222e}
@media(prefers-color-scheme:dark){text{fill:#d8d9da}.page{fill:#111217}.panel{fill:#181b1f;stroke:#2c3235}.grid{stroke:#2c3235}
.quiet{fill:#9fa7b3}.green{fill:#56d364}.orange{fill:#ff9830}.red{fill:#ff7383}}
`

// palette has colors that are legible on both backgrounds.
var palette = []string{"#3f9b4f", "#d08a00", "#2f7ed8", "#d8472b", "#a8489b", "#1f9e9e", "#7a5fc7", "#b5651d", "#6b7c85", "#c2417c"}

// Draw returns the picture. Equal boards have equal pictures, to the byte.
func Draw(b Board) []byte {
	rows := 0
	for _, p := range b.Panels {
		rows = max(rows, p.Y+p.H)
	}
	width, height := 24*column+2*margin, header+rows*unit+margin
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">`, width, height, width, height)
	fmt.Fprintf(&out, "<title>%s</title><style>%s</style>\n", html.EscapeString(b.Title), style)
	fmt.Fprintf(&out, `<rect class="page" width="%d" height="%d"/>`, width, height)
	text(&out, margin+gap, 24, "board", b.Title)
	text(&out, margin+gap, 42, "quiet", b.Text)
	for _, p := range b.Panels {
		out.WriteString("\n")
		f := frame{
			out: &out, panel: p, begin: b.Begin, end: b.End,
			x: float64(margin + p.X*column + gap), y: float64(header + p.Y*unit + gap), w: float64(p.W*column - 2*gap), h: float64(p.H*unit - 2*gap),
		}
		f.draw()
	}
	out.WriteString("\n</svg>\n")
	return out.Bytes()
}

// frame is the place of a panel in pixels.
type frame struct {
	out        *bytes.Buffer
	panel      Panel
	begin, end time.Time
	x, y, w, h float64
}

func (f frame) draw() {
	if f.panel.Type == "row" {
		text(f.out, f.x, f.y+15, "row", "▾ "+f.panel.Title)
		return
	}
	fmt.Fprintf(f.out, `<rect class="panel" x="%s" y="%s" width="%s" height="%s" rx="2"/>`, short(f.x), short(f.y), short(f.w), short(f.h))
	text(f.out, f.x+8, f.y+17, "title", f.panel.Title)
	switch {
	case !f.panel.HasData():
		fmt.Fprintf(f.out, `<text class="quiet" x="%s" y="%s" text-anchor="middle">No data</text>`, short(f.x+f.w/2), short(f.y+f.h/2+8))
	case f.panel.Type == "stat":
		f.number()
	default:
		f.graph()
	}
}

// HasData reports whether there is any value.
func (p Panel) HasData() bool {
	for _, l := range p.Lines {
		for _, v := range l.Values {
			if !math.IsNaN(v) {
				return true
			}
		}
	}
	return false
}

func (f frame) number() {
	values := f.panel.Lines[0].Values
	last := values[len(values)-1]
	color := ""
	for _, s := range f.panel.Steps {
		if last >= s.From {
			color = " " + s.Color
		}
	}
	fmt.Fprintf(f.out, `<text class="number%s" x="%s" y="%s" text-anchor="middle">%s</text>`, color, short(f.x+f.w/2), short(f.y+f.h/2+20), Format(last, f.panel.Unit))
}

// plot is where the lines of a graph are, and its scale.
type plot struct {
	frame
	top, bottom, left, right float64
	high                     float64
	points                   int
}

func (f frame) graph() {
	lines := f.panel.stack()
	g := plot{frame: f, top: f.y + 30, bottom: f.y + f.h - 52, left: f.x + 66, right: f.x + f.w - 10, points: len(lines[0].Values)}
	high := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				high = max(high, v)
			}
		}
	}
	step := niceStep(high, f.panel.Unit)
	g.high = max(step, math.Ceil(high/step-1e-9)*step)
	for v := 0.0; v <= g.high*1.0001; v += step {
		y := g.at(v)
		fmt.Fprintf(f.out, `<path class="grid" d="M%s %sH%s"/><text class="quiet" x="%s" y="%s" text-anchor="end">%s</text>`,
			short(g.left), short(y), short(g.right), short(g.left-6), short(y+4), Format(v, f.panel.Unit))
	}
	g.clock()
	for i := len(lines) - 1; i >= 0; i-- { // the lowest of a stack is in front
		color := palette[i%len(palette)]
		if f.panel.Stacked {
			below := make([]float64, len(lines[i].Values))
			if i > 0 {
				below = lines[i-1].Values
			}
			g.band(below, lines[i].Values, color)
		}
		g.line(lines[i].Values, color)
	}
	g.legend(lines)
}

// stack adds up lines that are parts of a whole: there, a value that is missing is 0.
func (p Panel) stack() []Line {
	if !p.Stacked {
		return p.Lines
	}
	var all []Line
	for _, l := range p.Lines {
		values := make([]float64, len(l.Values))
		for i, v := range l.Values {
			if !math.IsNaN(v) {
				values[i] = v
			}
			if len(all) > 0 {
				values[i] += all[len(all)-1].Values[i]
			}
		}
		all = append(all, Line{l.Legend, values})
	}
	return all
}

func (g plot) at(v float64) float64 { return g.bottom - (g.bottom-g.top)*min(v, g.high)/g.high }

func (g plot) across(i int) float64 {
	return g.left + (g.right-g.left)*float64(i)/float64(max(g.points-1, 1))
}

// clock writes four or five times of the day, at whole minutes.
func (g plot) clock() {
	length := g.end.Sub(g.begin)
	step := time.Minute
	for _, minutes := range []int{2, 3, 5, 10, 15, 30, 60, 120, 240} {
		if length/step > 5 {
			step = time.Duration(minutes) * time.Minute
		}
	}
	for t := g.begin.Truncate(step).Add(step); t.Before(g.end); t = t.Add(step) {
		x := g.left + (g.right-g.left)*float64(t.Sub(g.begin))/float64(length)
		fmt.Fprintf(g.out, `<path class="grid" d="M%s %sV%s"/>`, short(x), short(g.top), short(g.bottom))
		fmt.Fprintf(g.out, `<text class="quiet" x="%s" y="%s" text-anchor="middle">%s</text>`, short(x), short(g.bottom+15), t.UTC().Format("15:04"))
	}
}

// line draws values. It is broken where there is none.
func (g plot) line(values []float64, color string) {
	var path strings.Builder
	for i := 0; i < len(values); i++ {
		if math.IsNaN(values[i]) {
			continue
		}
		first := i
		for i+1 < len(values) && !math.IsNaN(values[i+1]) {
			i++
		}
		path.WriteString("M" + strings.Join(g.stretch(values, first, i), "L"))
		if first == i {
			path.WriteString("h0") // a point
		}
	}
	fmt.Fprintf(g.out, `<path class="line" stroke="%s" d="%s"/>`, color, &path)
}

// band fills what is between a line of a stack and the one below.
func (g plot) band(below, values []float64, color string) {
	last := len(values) - 1
	back := g.stretch(below, 0, last)
	slices.Reverse(back)
	fmt.Fprintf(g.out, `<path class="area" fill="%s" d="M%sZ"/>`, color, strings.Join(append(g.stretch(values, 0, last), back...), "L"))
}

// stretch has the points that are needed: not those between others of the same height.
func (g plot) stretch(values []float64, first, last int) []string {
	var points []string
	for i := first; i <= last; i++ {
		y := short(g.at(values[i]))
		if i > first && i < last && y == short(g.at(values[i-1])) && y == short(g.at(values[i+1])) {
			continue
		}
		points = append(points, short(g.across(i))+" "+y)
	}
	return points
}

// legend names the lines in two rows, and says how many more there are.
func (g plot) legend(lines []Line) {
	const perLetter, between, more = 6.3, 26, 75
	first, y, last := g.x+10, g.bottom+31, false
	x := first
	for i, l := range lines {
		wide := between + perLetter*float64(len([]rune(l.Legend)))
		if !last && x > first && x+wide > g.x+g.w {
			x, y, last = first, y+15, true
		}
		limit := g.x + g.w
		if i < len(lines)-1 {
			limit -= more
		}
		if last && x > first && x+wide > limit {
			text(g.out, x, y, "quiet", fmt.Sprintf("and %d more", len(lines)-i))
			return
		}
		fmt.Fprintf(g.out, `<path class="line" stroke="%s" style="stroke-width:3" d="M%s %sh10"/>`, palette[i%len(palette)], short(x), short(y-4))
		text(g.out, x+14, y, "quiet", l.Legend)
		x += wide
	}
}

func text(out *bytes.Buffer, x, y float64, class, words string) {
	fmt.Fprintf(out, `<text class="%s" x="%s" y="%s">%s</text>`, class, short(x), short(y), html.EscapeString(words))
}

// short is a coordinate, to a tenth of a pixel.
func short(v float64) string { return trim(fmt.Sprintf("%.1f", v)) }

func trim(number string) string {
	if !strings.Contains(number, ".") {
		return number
	}
	return strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
}
