package redact

import "strings"

// minRedacted is the length in bytes from which a flag is removed: a shorter one occurs in
// ordinary words, and its removal would make every message unreadable.
const minRedacted = 4

// Text removes a flag, in any notation, from a foreign text: an admission webhook may repeat
// the whole object that it rejects. A flag that is too short to be distinguished from ordinary
// words stays.
func Text(text, flag string) string { return NewRedactor(flag)(text) }

// NewRedactor returns a function that removes a flag from texts.
func NewRedactor(flag string) func(string) string {
	p := NewPattern(flag)
	return func(text string) string { return Remove(text, p) }
}

// Remove removes the flags of patterns from a text. Where two begin at the same byte, the longer one goes.
func Remove(text string, patterns ...Pattern) string {
	return remove(text, func(rest string) int { return lengthAt(rest, patterns) })
}

// lengthAt returns the length of the flag with which a text begins, in bytes, and of several that of the one with most.
func lengthAt(text string, patterns []Pattern) (length int) {
	for _, p := range patterns {
		n, _ := p.At(text)
		length = max(length, n)
	}
	return length
}

// remove removes from a text what begins at each byte, also where it was encoded twice; at returns its length, 0 for nothing.
func remove(text string, match func(rest string) int) string {
	return removeEncoded(removeSpelled(text, match), match, maxNested)
}

func removeSpelled(text string, match func(rest string) int) string {
	var out strings.Builder
	kept := 0
	for i := 0; i < len(text); {
		length := match(text[i:])
		if length == 0 {
			i++
			continue
		}
		out.WriteString(text[kept:i])
		out.WriteString(Mark)
		i += length
		kept = i
	}
	if kept == 0 {
		return text
	}
	return out.String() + text[kept:]
}

// Error returns an error of the same kind whose text does not name the flag.
func Error(err error, flag string) error {
	if err == nil {
		return nil
	}
	return redactedError{err, flag}
}

type redactedError struct {
	error
	flag string
}

func (e redactedError) Error() string { return Text(e.error.Error(), e.flag) }

func (e redactedError) Unwrap() error { return e.error }
