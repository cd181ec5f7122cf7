package console

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"
)

// truncate shortens text to a number of columns.
func truncate(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(0, width-1)]) + "…"
}

// Format is the format of a result.
type Format string

// The formats of results.
const (
	Text Format = ""
	JSON Format = "json"
	Wide Format = "wide"
	Name Format = "name"
	// SARIF is for findings in files.
	SARIF Format = "sarif"
)

// Console holds the streams of the program.
type Console struct {
	In       io.Reader
	Out, Err io.Writer
	// OutTerminal, ErrTerminal and InTerminal report whether the streams are terminals.
	OutTerminal, ErrTerminal, InTerminal bool
	// OutColor and ErrColor report whether the streams get colours.
	OutColor, ErrColor bool
	Format             Format
	// YAML writes the objects of the format JSON as YAML.
	YAML bool
	// width returns the number of columns of the terminal, 0 if there is none.
	width func() int
}

// New returns a console on these streams. Nothing is coloured if NO_COLOR is set (no-color.org) or
// the terminal is dumb.
func New(in io.Reader, out, err io.Writer, getenv func(string) string) *Console {
	c := &Console{In: in, Out: out, Err: err, width: func() int { return 0 }}
	inFile, _ := in.(*os.File)
	outFile, _ := out.(*os.File)
	errFile, _ := err.(*os.File)
	c.InTerminal, c.OutTerminal, c.ErrTerminal = isTerminal(inFile), isTerminal(outFile), isTerminal(errFile)
	colours := getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
	c.OutColor, c.ErrColor = colours && c.OutTerminal, colours && c.ErrTerminal
	for _, f := range []*os.File{errFile, outFile} {
		if isTerminal(f) {
			c.width = func() int {
				columns, _, _ := term.GetSize(int(f.Fd())) // 0 with an error
				return columns
			}
		}
	}
	return c
}

// isTerminal accepts nil, for streams that are no files.
func isTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// TextWidth returns the number of columns of standard output now, 0 if it is no terminal.
func (c *Console) TextWidth() int {
	if !c.OutTerminal {
		return 0
	}
	return c.width()
}

// Colour is the style of a text on a terminal, as a number of an escape sequence.
type Colour string

// The colours of a terminal that has eight.
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

// paint leaves an empty text without escape sequences, so that it stays empty.
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

// ShowStatus replaces the last line of a terminal's standard error by text, or removes it if text is
// empty. Elsewhere it writes nothing.
func (c *Console) ShowStatus(text string) {
	if !c.ErrTerminal {
		return
	}
	if width := c.width(); width > 0 {
		text = truncate(text, width-1)
	}
	fmt.Fprint(c.Err, "\r"+text+"\x1b[K")
}

// Confirm asks a question on a terminal and returns nil if the answer is yes. Without a terminal the
// error names the option that answers in advance.
func (c *Console) Confirm(question string) error {
	if !c.InTerminal || !c.ErrTerminal {
		return Errorf(ExitUsage, "%s There is no terminal for the answer: use --yes", question)
	}
	c.Notef("%s [y/N]", question)
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil && answer == "" {
		return Errorf(ExitInterrupted, "no answer: nothing was done")
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return Errorf(ExitInterrupted, "nothing was done")
	}
}

// WriteJSON writes a result as indented JSON, or as a document of YAML.
func (c *Console) WriteJSON(v any) error { return c.encode(v, "  ") }

// WriteLine writes one of many results: as JSON in one line, or as a document of YAML that ends with "---".
func (c *Console) WriteLine(v any) error {
	if err := c.encode(v, ""); err != nil || !c.YAML {
		return err
	}
	_, err := io.WriteString(c.Out, "---\n")
	return err
}

// encode leaves <, > and & as they are: the output is for programs and terminals, not for pages.
func (c *Console) encode(v any, indent string) error {
	if c.YAML {
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = c.Out.Write(text)
		return err
	}
	encoder := json.NewEncoder(c.Out)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// OneLine returns untrusted text in one line and without control characters, which a terminal would
// take for commands.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch r {
		case '\n', '\r', '\u2028', '\u2029':
			return ' '
		case unicode.ReplacementChar:
			return -1
		default:
			return r
		}
	}, text)
	return strings.Join(strings.Fields(StripControl(text)), " ")
}

// StripControl removes control characters from a line, except for tabs.
func StripControl(line string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf)) {
			return -1
		}
		return r
	}, line)
}

// Wrap breaks text into lines of at most width columns; 0 is for one line. Every line but the first
// begins with the indent.
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
