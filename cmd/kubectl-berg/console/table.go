package console

import (
	"strings"
	"unicode/utf8"
)

// Cell is one field of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Table is written in columns. Where a terminal is narrower than the table, the columns that may
// shrink are cut, the widest first; in a pipe nothing is.
type Table struct {
	Header []string
	Rows   [][]Cell
	// Shrink are the columns that may be cut.
	Shrink []int
}

const (
	gap = 3
	// narrowest is as far as a column shrinks.
	narrowest = 8
)

// Row adds a row.
func (t *Table) Row(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Write writes the table to standard output.
func (t *Table) Write(c *Console) { t.write(c, t.widths(c.terminalWidth()), true) }

func (c *Console) terminalWidth() int {
	if !c.OutTerminal {
		return 0
	}
	return c.Width()
}

func (t *Table) write(c *Console, widths []int, header bool) {
	var out strings.Builder
	line := func(cells []Cell) {
		last := len(cells) - 1
		for i, cell := range cells {
			text := cut(cell.Text, widths[i])
			out.WriteString(c.Paint(cell.Colour, text))
			if i < last {
				out.WriteString(strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text))+gap))
			}
		}
		out.WriteByte('\n')
	}
	if header {
		names := make([]Cell, len(t.Header))
		for i, name := range t.Header {
			names[i] = Cell{Text: name, Colour: Bold}
		}
		line(names)
	}
	for _, row := range t.Rows {
		line(row)
	}
	c.Printf("%s", out.String())
}

// Stream writes rows one after the other, in columns that grow when a row needs it.
type Stream struct {
	Console *Console
	Header  []string
	Shrink  []int
	widths  []int
}

// Write writes one row, and the header before the first.
func (s *Stream) Write(cells ...Cell) {
	t := Table{Header: s.Header, Rows: [][]Cell{cells}, Shrink: s.Shrink}
	first := s.widths == nil
	needed := t.widths(s.Console.terminalWidth())
	if first {
		s.widths = needed
	}
	for i := range s.widths {
		if s.Console.terminalWidth() == 0 {
			s.widths[i] = max(s.widths[i], needed[i])
		}
	}
	widths := s.widths
	if s.Console.terminalWidth() > 0 {
		widths = needed
	}
	t.write(s.Console, widths, first)
}

func (t *Table) widths(limit int) []int {
	widths := make([]int, len(t.Header))
	for i, name := range t.Header {
		widths[i] = utf8.RuneCountInString(name)
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	if limit <= 0 {
		return widths
	}
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for total > limit {
		widest := -1
		for _, i := range t.Shrink {
			if widths[i] > narrowest && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// cut shortens text to a number of columns.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return string(runes[:max(0, width-1)]) + "…"
}
