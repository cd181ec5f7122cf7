package record

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/berg/redact"
)

// MaxLog is how much of a container's log a record has at most, in bytes.
const MaxLog = 64 << 10

const (
	// flagMark stands for a flag.
	flagPlaceholder = redact.Mark
	// maxTermination is how much of a termination message a kubelet keeps, in bytes:
	// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
	maxTermination = 4096
	// restartMark stands between the log of a run and that of the run before.
	restartSeparator = "--- restarted ---\n"
)

// censor takes the flags of an instance out of what its containers wrote.
type censor struct {
	patterns []redact.Pattern
	// short: a flag cannot be distinguished from ordinary words.
	short bool
	// lost: containers may know a flag that is not known here.
	lost bool
}

// censorFor returns the censor of an instance that ends.
func censorFor(e challengeinstance.Ending) censor {
	c := newCensor(e.Flags()...)
	c.lost = e.FlagLost
	return c
}

func newCensor(flags ...string) censor {
	var c censor
	for _, flag := range flags {
		p := redact.NewPattern(flag)
		c.short = c.short || flag != "" && p.Empty()
		if !p.Empty() {
			c.patterns = append(c.patterns, p)
		}
	}
	return c
}

// maxBytes is about the length of the longest notation of a flag.
func (c censor) maxBytes() (length int) {
	for _, p := range c.patterns {
		length = max(length, p.MaxBytes())
	}
	return length
}

// text takes the flags out of a text that is whole.
func (c censor) text(text string) string { return redact.Remove(text, c.patterns...) }

// words removes the flags from a text about a container: nothing of the text is left where a flag
// cannot be distinguished from words, or is not known.
func (c censor) words(text string) string {
	if c.short || c.lost {
		return ""
	}
	return c.text(stripControl(c.text(text)))
}

// lastWords takes the flags out of a termination message. A kubelet keeps the end of a long one: then
// a flag may have been cut, and a character of it.
func (c censor) lastWords(text string) string {
	if len(text) >= maxTermination {
		text = strings.TrimLeft(strings.ToValidUTF8(text, "\uFFFD"), "\uFFFD")
		text = text[c.remainder(text):]
	}
	return c.words(text)
}

// log returns what may be kept of a log. cut says that the log may have begun before raw: then a
// flag may have been cut, and what is left of it goes. So does what may be the beginning of a flag at
// the end: a program is stopped anywhere, and a runtime writes long lines in parts.
func (c censor) log(raw []byte, cut bool) string {
	text := string(raw)
	if cut {
		text = text[c.remainder(text):]
	}
	text = c.text(text)
	text = text[:len(text)-c.partialSuffix(text)]
	// Once more at the end: what looked like something else may now be a flag.
	return c.text(stripControl(text))
}

// partialSuffix is how many bytes at the end of a text may be the beginning of a flag.
func (c censor) partialSuffix(text string) int {
	for from := max(0, len(text)-c.maxBytes()); from < len(text); from++ {
		for _, p := range c.patterns {
			if _, open := p.At(text[from:]); open {
				return len(text) - from
			}
		}
	}
	return 0
}

// remainder is how many bytes at the beginning of a text go because they may be the end of a flag. A
// flag that begins among them goes whole: its rest would not be known as one.
func (c censor) remainder(text string) (length int) {
	for _, p := range c.patterns {
		length = max(length, p.Rest(text))
	}
	for begin := 0; begin < length; begin++ {
		for _, p := range c.patterns {
			if n, _ := p.At(text[begin:]); n > 0 {
				length = max(length, begin+n)
			}
		}
	}
	return length
}

// stripControl replaces what a terminal would take for a command, what turns the direction of
// writing, and what is no text, by U+FFFD. Nothing is left out: what it stood between must not
// become one.
func stripControl(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return utf8.RuneError
		default:
			return r
		}
	}, text)
}

// end returns the last bytes of a text, whole characters of it.
func end(text string, maxCount int) (last string, cut bool) {
	if len(text) <= maxCount {
		return text, false
	}
	from := len(text) - maxCount
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:], true
}

// beginning returns the first bytes of a text, whole characters of it.
func beginning(text string, maxCount int) string {
	if len(text) <= maxCount {
		return text
	}
	for maxCount > 0 && !utf8.RuneStart(text[maxCount]) {
		maxCount--
	}
	return text[:maxCount]
}

// tail keeps the end of what is written to it, and counts all of it.
type tail struct {
	limit   int
	kept    []byte
	written int64
	// lines are those of the log file that have ended, column is how much of the next one there is.
	lines, column int
}

// maxFileLine is from where on a runtime breaks a line for the log file. Each part counts as a
// line there.
const maxFileLine = 16 << 10

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.written += int64(len(p))
	for _, b := range p {
		switch {
		case b == '\n':
			t.lines, t.column = t.lines+1, 0
		case t.column == maxFileLine:
			t.lines, t.column = t.lines+1, 1
		default:
			t.column++
		}
	}
	if len(p) >= t.limit {
		t.kept = append(t.kept[:0], p[len(p)-t.limit:]...)
		return len(p), nil
	}
	if len(t.kept)+len(p) > 2*t.limit {
		rest := t.kept[len(t.kept)-t.limit:]
		t.kept = t.kept[:copy(t.kept, rest)]
	}
	t.kept = append(t.kept, p...)
	return len(p), nil
}

// bytes are the last that were written.
func (t *tail) bytes() []byte { return t.kept[max(0, len(t.kept)-t.limit):] }

// cut reports whether more was written than is kept.
func (t *tail) cut() bool { return t.written > int64(t.limit) }

// fileLines is how many lines of a log file it was. What a program has begun a line with is one, too.
func (t *tail) fileLines() int {
	if t.column > 0 {
		return t.lines + 1
	}
	return t.lines
}
