package record

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance"
	"github.com/bergctf/berg-operator/internal/berg/redact"
)

// MaxLog is how much of a container's log a record has at most, in bytes.
const MaxLog = 64 << 10

const (
	// flagPlaceholder stands for a flag.
	flagPlaceholder = redact.Mark
	// maxTermination is how much of a termination message a kubelet keeps, in bytes:
	// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
	maxTermination = 4096
	// restartSeparator stands between the logs of two runs.
	restartSeparator = "--- restarted ---\n"
)

// censor removes the flags of an instance from the output of its containers.
type censor struct {
	flags *redact.Set
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
	short := func(flag string) bool { return flag != "" && redact.TooShort(flag) }
	return censor{flags: redact.NewSet(flags...), short: slices.ContainsFunc(flags, short)}
}

// maxBytes is about the length of the longest notation of a flag.
func (c censor) maxBytes() int { return c.flags.MaxBytes() }

// text takes the flags out of a text that is whole.
func (c censor) text(text string) string { return c.flags.Remove(text) }

// words removes the flags from a text about a container: nothing of the text is left where a flag
// cannot be distinguished from words, or is not known.
func (c censor) words(text string) string {
	if c.short || c.lost {
		return ""
	}
	return c.text(stripControl(c.text(text)))
}

// lastWords removes the flags from a termination message. A kubelet keeps only the end of a long one:
// then its beginning may be half a flag or half a character.
func (c censor) lastWords(text string) string {
	if len(text) >= maxTermination {
		text = strings.TrimLeft(strings.ToValidUTF8(text, "\uFFFD"), "\uFFFD")
		text = c.afterCut(text)
	}
	return c.words(text)
}

// log returns the part of a log that may be kept. cut: the log may have started before raw, so its
// beginning may be the rest of a flag, which is removed. A possible beginning of a flag at the end is
// removed too: a program may stop anywhere, and a runtime writes long lines in parts.
func (c censor) log(raw []byte, cut bool) string {
	text := string(raw)
	if cut {
		text = c.afterCut(text)
	}
	text = c.text(text)
	text = text[:len(text)-c.flags.CutEnd(text)]
	// Once more at the end: what looked like something else may now be a flag.
	return c.text(stripControl(text))
}

// afterCut removes from a text whose beginning was cut off the end of a flag that was cut, too. A flag that begins there
// goes first, as a whole.
func (c censor) afterCut(text string) string {
	text = c.text(text)
	return text[c.flags.CutStart(text):]
}

// stripControl replaces control sequences of a terminal, characters that change the direction of
// writing, and invalid text by U+FFFD. It removes nothing, since the text around a removed
// character could join to a flag.
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

// end returns the last bytes of a text, without half characters.
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

// beginning returns the first bytes of a text, without half characters.
func beginning(text string, maxCount int) string {
	if len(text) <= maxCount {
		return text
	}
	for maxCount > 0 && !utf8.RuneStart(text[maxCount]) {
		maxCount--
	}
	return text[:maxCount]
}

// tail keeps the end of the bytes written to it, and counts all of them.
type tail struct {
	limit   int
	kept    []byte
	written int64
	// lines is the number of complete lines of the log file, column the length of the incomplete last one.
	lines, column int
}

// maxFileLine is from where on a runtime breaks a line for the log file. Each part counts as a
// line there.
const maxFileLine = 16 << 10

// Write implements io.Writer. It never fails. It keeps up to twice the limit, so that the end is moved once for each limit of
// bytes and not for each write.
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

// fileLines returns the number of lines of the log file, an incomplete one included.
func (t *tail) fileLines() int {
	if t.column > 0 {
		return t.lines + 1
	}
	return t.lines
}
