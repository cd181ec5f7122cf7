package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// frame is the screen from a time on.
type frame struct {
	at    time.Duration
	lines []string
}

// screen emulates a terminal for programs that rewrite their last line only.
type screen struct {
	lines  [][]cell
	column int
	colour string
	rest   []byte
}

type cell struct {
	r      rune
	colour string
}

func newScreen() *screen { return &screen{lines: [][]cell{nil}} }

func (s *screen) write(data []byte) {
	data = append(s.rest, data...)
	s.rest = nil
	text := []rune(string(data))
	for i := 0; i < len(text); i++ {
		last := len(s.lines) - 1
		switch r := text[i]; r {
		case '\r':
			s.column = 0
		case '\n':
			s.lines, s.column = append(s.lines, nil), 0
		case '\x1b':
			end := i + 1
			for end < len(text) && !letter(text[end]) {
				end++
			}
			if end == len(text) {
				s.rest = []byte(string(text[i:]))
				return
			}
			s.control(string(text[i+1:end]), text[end])
			i = end
		case '\ufffd': // an incomplete character: the rest follows
			s.rest = []byte(string(text[i:]))
		default:
			for len(s.lines[last]) <= s.column {
				s.lines[last] = append(s.lines[last], cell{' ', ""})
			}
			s.lines[last][s.column] = cell{r, s.colour}
			s.column++
		}
	}
}

func (s *screen) control(parameters string, kind rune) {
	last := len(s.lines) - 1
	switch kind {
	case 'K':
		s.lines[last] = s.lines[last][:min(s.column, len(s.lines[last]))]
	case 'm':
		s.colour = classes[strings.TrimPrefix(parameters, "[")]
	}
}

// classes are the CSS classes of colours.
var classes = map[string]string{"1": "b", "2": "f", "31": "r", "32": "g", "33": "y", "36": "c"}

// draw returns the lines as SVG text.
func (s *screen) draw() []string {
	out := make([]string, len(s.lines))
	for i, line := range s.lines {
		var b strings.Builder
		for from := 0; from < len(line); {
			to := from
			var text strings.Builder
			for to < len(line) && line[to].colour == line[from].colour {
				text.WriteRune(line[to].r)
				to++
			}
			if class := line[from].colour; class != "" {
				fmt.Fprintf(&b, `<tspan class="%s">%s</tspan>`, class, html.EscapeString(text.String()))
			} else {
				b.WriteString(html.EscapeString(text.String()))
			}
			from = to
		}
		out[i] = b.String()
	}
	return out
}

// step is the minimum time between two frames.
const step = 100 * time.Millisecond

// thin removes frames that are too short to be seen.
func thin(all []frame) []frame {
	var out []frame
	for i, s := range all {
		if i+1 < len(all) && all[i+1].at-s.at < step {
			all[i+1].at = min(all[i+1].at, s.at+step)
			if len(out) > 0 && s.at-out[len(out)-1].at < step {
				continue
			}
		}
		out = append(out, s)
	}
	if len(out) == 0 || strings.Join(out[len(out)-1].lines, "\n") != strings.Join(all[len(all)-1].lines, "\n") {
		out = append(out, all[len(all)-1])
	}
	return out
}

const (
	lineHeight = 19
	charWidth  = 8.43
	margin     = 14
	// pause is how long the last frame stays before the animation restarts.
	finalPause = 5 * time.Second
)

// svg draws frames one after the other. With reduced motion only the last one is visible.
func svg(frames []frame, columns int) string {
	rows := 0
	for _, f := range frames {
		rows = max(rows, len(f.lines))
	}
	width, height := float64(columns)*charWidth+2*margin, rows*lineHeight+2*margin
	total := frames[len(frames)-1].at + finalPause
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img">
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d8dee9;white-space:pre}
.b{font-weight:bold;fill:#fff}.f{fill:#8a94a6}.r{fill:#ff6b6b}.g{fill:#7bd88f}.y{fill:#f2c94c}.c{fill:#6cc7e8}
g{visibility:hidden;animation:%.1fs step-end infinite}
#f%d{visibility:visible}
@media (prefers-reduced-motion:reduce){g{animation:none!important}}
`, width, height, width, height, total.Seconds(), len(frames)-1)
	for i, f := range frames {
		from := percent(f.at, total)
		to := 100.0
		if i+1 < len(frames) {
			to = percent(frames[i+1].at, total)
		}
		fmt.Fprintf(&b, "#f%d{animation-name:k%d}@keyframes k%d{0%%{visibility:%s}%.3f%%{visibility:visible}%.3f%%,100%%{visibility:%s}}\n",
			i, i, i, map[bool]string{true: "visible", false: "hidden"}[i == 0], from, to, map[bool]string{true: "visible", false: "hidden"}[i == len(frames)-1])
	}
	fmt.Fprintf(&b, "</style>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#1b2230\"/>\n")
	for i, f := range frames {
		fmt.Fprintf(&b, `<g id="f%d">`, i)
		for n, line := range f.lines {
			if line != "" {
				fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, margin, margin+(n+1)*lineHeight-5, line)
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func percent(at, of time.Duration) float64 { return 100 * float64(at) / float64(of) }

func letter(c rune) bool { return 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' }
