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

// Table writes rows in aligned columns. On a terminal that is narrower than the table it truncates
// the columns that may shrink, the widest first; in a pipe it truncates nothing. text/tabwriter and
// the printers of cli-runtime can do neither: they do not know the width, and count colours as text. It is 81 lines.
type Table struct {
	Console *Console
	Header  []string
	// Shrink are the indexes of the columns that may be truncated.
	Shrink []int
	// widths are the column widths that the rows so far need; nil before the first row.
	widths []int
}

// The distances between columns, and the limit of truncation.
const (
	gap = 3
	// minColumn is the smallest width to which a column shrinks.
	minColumn = 8
)

// Write writes rows, and the header before the first ones. Rows of a later call keep the columns of
// the earlier ones, which grow where a row needs more.
func (t *Table) Write(rows ...[]Cell) {
	if t.widths == nil {
		t.widths = make([]int, len(t.Header))
		header := make([]Cell, len(t.Header))
		for i, name := range t.Header {
			header[i] = Cell{Text: name, Colour: Bold}
		}
		rows = append([][]Cell{header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	widths := t.fit()
	for _, row := range rows {
		for i, cell := range row {
			text := truncate(cell.Text, widths[i])
			pad := "\n"
			if i < len(row)-1 {
				pad = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap)
			}
			t.Console.Printf("%s%s", t.Console.Paint(cell.Colour, text), pad)
		}
	}
}

// fit returns the widths of the columns on the terminal as it is now. It takes one column at a time from the widest that may
// shrink, until the row fits or none is left.
func (t *Table) fit() []int {
	widths := append([]int(nil), t.widths...)
	excess := gap*(len(widths)-1) - t.Console.TextWidth()
	for _, w := range widths {
		excess += w
	}
	for ; excess > 0 && t.Console.TextWidth() > 0; excess-- {
		widest := -1
		for _, i := range t.Shrink {
			if widths[i] > minColumn && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}
