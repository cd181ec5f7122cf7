package conditions

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The maximum lengths of texts, in bytes. Texts quote users and admission webhooks, and the API
// server rejects a status or an event as a whole if one of its texts is too long.
const (
	// MaxMessage is the maximum in a status: much less than the 32,768 characters that the
	// schema of a condition allows, and more than a person in a hurry reads.
	MaxMessage = 2048
	// MaxNote is the maximum in an event, which the API server enforces.
	MaxNote = 1024
	// MaxValue is the maximum of a value that a text quotes.
	MaxValue = 96

	// maxListed is how many items of a list are named.
	maxListed = 5
)

const ellipsis = "…"

// Bound returns a text that fits into a status.
func Bound(text string) string { return fit(text, MaxMessage) }

// Note returns a text that fits into an event.
func Note(text string) string { return fit(text, MaxNote) }

// Value returns a value as a text may quote it.
func Value(text string) string { return Shorten(text, MaxValue) }

// longWords make most long texts long: they are values that the API server quotes whole.
var longWords = regexp.MustCompile(fmt.Sprintf(`\S{%d,}`, MaxValue+1))

// fit shortens the long words of a text that is too long, and then the text itself if it is
// still too long.
func fit(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= maxBytes {
		return text
	}
	return Shorten(longWords.ReplaceAllStringFunc(text, Value), maxBytes)
}

// Shorten returns a text of at most maxBytes bytes, without cutting characters. It removes the
// middle: a text begins with the problem and ends with the remedy. Callers remove secrets before,
// since half a secret would not be found.
func Shorten(text string, maxBytes int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= maxBytes {
		return text
	}
	kept := maxBytes - len(ellipsis)
	head := kept * 2 / 3
	tail := len(text) - (kept - head)
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + ellipsis + text[tail:]
}

// Enumerate names the first items of a list and how many more there are.
func Enumerate(all []string) string {
	shown := strings.Join(all[:min(len(all), maxListed)], ", ")
	if omitted := len(all) - maxListed; omitted > 0 {
		return fmt.Sprintf("%s and %d more", shown, omitted)
	}
	return shown
}
