package conditions

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// How long texts are at most, in bytes. They may quote whatever somebody wrote, or what an
// admission webhook says, and the API server refuses a status or an event as a whole when one
// text of it is too long.
const (
	// MaxMessage is of a status: much less than the 32,768 characters that the schema of
	// a condition allows, and more than a person in a hurry reads.
	MaxMessage = 2048
	// MaxNote is of an event, as the API server has it.
	MaxNote = 1024
	// MaxValue is of a value that a text quotes.
	MaxValue = 96

	// maxListed is how many of a list are named.
	maxListed = 5
)

const ellipsis = "…"

// Bound returns a text that fits into a status.
func Bound(text string) string { return fit(text, MaxMessage) }

// Note returns a text that fits into an event.
func Note(text string) string { return fit(text, MaxNote) }

// Value returns a value as a text may quote it.
func Value(text string) string { return Shorten(text, MaxValue) }

// longWords are what makes most long texts long: values that the API server quotes whole.
var longWords = regexp.MustCompile(fmt.Sprintf(`\S{%d,}`, MaxValue+1))

// fit shortens the long words of a text that is too long, and if they are not what makes it
// so, the text.
func fit(text string, longest int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= longest {
		return text
	}
	return Shorten(longWords.ReplaceAllStringFunc(text, Value), longest)
}

// Shorten returns a text of so many bytes at most, whole characters all of them. It takes out
// of the middle: a text begins with the problem, and ends with what to do about it. What must
// not be told is taken out before, since half of it would not be found.
func Shorten(text string, longest int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= longest {
		return text
	}
	room := longest - len(ellipsis)
	head := room * 2 / 3
	tail := len(text) - (room - head)
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + ellipsis + text[tail:]
}

// Enumerate names the first of a list, and says how many more there are.
func Enumerate(all []string) string {
	shown := strings.Join(all[:min(len(all), maxListed)], ", ")
	if more := len(all) - maxListed; more > 0 {
		return fmt.Sprintf("%s and %d more", shown, more)
	}
	return shown
}
