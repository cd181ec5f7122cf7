// Package console is what a person, or a script, sees of the program: colours where there is a
// terminal, columns as wide as it is, a line that tells of progress, JSON for programs.
//
// Standard output has what was asked for and nothing else; progress, warnings and errors go to
// standard error.
package console

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/term"
)

// Format is how results are written.
type Format string

// The formats of results.
const (
	Text Format = ""
	JSON Format = "json"
	Wide Format = "wide"
	Name Format = "name"
)

// Console is where results and progress go.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// OutTerminal and ErrTerminal say whether these are terminals.
	OutTerminal, ErrTerminal, InTerminal bool
	// OutColor and ErrColor say whether colours are written to them.
	OutColor, ErrColor bool
	Format             Format
	// width returns the columns of the terminal, 0 where there is none.
	width func() int
}

// New looks at what the streams are. NO_COLOR (no-color.org) and a dumb terminal have no
// colours.
func New(in io.Reader, out, err io.Writer, getenv func(string) string) *Console {
	c := &Console{In: in, Out: out, Err: err, width: func() int { return 0 }}
	inFile, _ := in.(*os.File)
	outFile, _ := out.(*os.File)
	errFile, _ := err.(*os.File)
	c.InTerminal, c.OutTerminal, c.ErrTerminal = isTerminal(inFile), isTerminal(outFile), isTerminal(errFile)
	colours := getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	c.OutColor, c.ErrColor = colours && c.OutTerminal, colours && c.ErrTerminal
	for _, f := range []*os.File{outFile, errFile} {
		if isTerminal(f) {
			c.width = func() int {
				columns, _, err := term.GetSize(int(f.Fd()))
				if err != nil {
					return 0
				}
				return columns
			}
			break
		}
	}
	return c
}

func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// Width returns how many columns the terminal has now, 0 where there is none.
func (c *Console) Width() int { return c.width() }

// Colour is how a terminal shows text.
type Colour string

// The colours, as a terminal of eight has them.
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Faint  Colour = "2"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
	Cyan   Colour = "36"
)

// Paint colours text for standard output.
func (c *Console) Paint(colour Colour, text string) string { return paint(c.OutColor, colour, text) }

// PaintErr colours text for standard error.
func (c *Console) PaintErr(colour Colour, text string) string {
	return paint(c.ErrColor, colour, text)
}

func paint(on bool, colour Colour, text string) string {
	if !on || colour == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

// Printf writes to standard output.
func (c *Console) Printf(format string, args ...any) {
	fmt.Fprintf(c.Out, format, args...)
}

// Notef writes a line to standard error.
func (c *Console) Notef(format string, args ...any) {
	fmt.Fprintf(c.Err, format+"\n", args...)
}

// WriteJSON writes a result as JSON, indented.
func (c *Console) WriteJSON(v any) error {
	encoder := json.NewEncoder(c.Out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// WriteLine writes one of many results as JSON in one line.
func (c *Console) WriteLine(v any) error {
	encoder := json.NewEncoder(c.Out)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// OneLine returns text of others as it may be shown: in one line, and without what a terminal
// takes for a command.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t' || r == '\u2028' || r == '\u2029':
			return ' '
		case r == unicode.ReplacementChar, unicode.IsControl(r), unicode.In(r, unicode.Cf):
			return -1
		default:
			return r
		}
	}, text)
	return strings.Join(strings.Fields(text), " ")
}

// Wrap breaks text into lines of at most width columns, 0 for one line; each but the first
// begins with an indent.
func Wrap(text string, width int, indent string) string {
	if width <= len(indent)+20 {
		return text
	}
	var out strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		size := len([]rune(word))
		switch {
		case i == 0:
		case column+1+size > width:
			out.WriteString("\n" + indent)
			column = len(indent)
		default:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += size
	}
	return out.String()
}

// StripControl takes out of a line what a terminal takes for a command, and leaves all else as it is.
func StripControl(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return r
		case unicode.IsControl(r), unicode.In(r, unicode.Cf):
			return -1
		default:
			return r
		}
	}, line)
}
