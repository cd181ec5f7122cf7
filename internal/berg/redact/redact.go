package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// minRedacted is the length in bytes from which a flag is removed: a shorter one occurs in
// ordinary words, and its removal would make every message unreadable.
const minRedacted = 4

// Text removes a flag, in any notation, from a foreign text: an admission webhook may repeat
// the whole object that it rejects. A flag that is too short to be distinguished from ordinary
// words stays.
func Text(text, flag string) string { return Of(flag)(text) }

// Of returns a function that removes a flag from texts.
func Of(flag string) func(string) string {
	all := Notations(flag)
	return func(text string) string {
		for _, notation := range all {
			text = strings.ReplaceAll(text, notation, "<flag>")
		}
		return text
	}
}

// Notations returns how a flag may be written, the longest first, so that none is found inside
// another. It returns none for a flag that is too short to be distinguished from ordinary
// words.
func Notations(flag string) []string {
	if len(flag) < minRedacted {
		return nil
	}
	all := []string{
		flag, strings.ReplaceAll(flag, "$", "$$"), // as in the value of a variable
		hex.EncodeToString([]byte(flag)), strings.ToUpper(hex.EncodeToString([]byte(flag))),
		url.QueryEscape(flag), url.PathEscape(flag),
		withoutQuotes(strconv.Quote(flag)), withoutQuotes(strconv.QuoteToASCII(flag)),
	}
	if encoded, err := json.Marshal(flag); err == nil {
		all = append(all, withoutQuotes(string(encoded)))
	}
	// In base64, the bytes before and after the flag change its first and last digit, and its
	// offset changes all digits.
	for before := range 3 {
		bits := []byte(strings.Repeat("\x00", before) + flag)
		from, last := (before*8+5)/6, len(bits)*8/6
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			all = append(all, encoding.EncodeToString(bits)[from:last])
		}
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return slices.Compact(all)
}

func withoutQuotes(s string) string { return s[1 : len(s)-1] }

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
