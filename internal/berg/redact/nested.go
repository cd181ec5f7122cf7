package redact

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	// maxNested is how many encodings may be around the one that a Pattern finds.
	maxNested = 2
	// minRun is the length of the shortest run of digits that may be the encoding of an encoded flag.
	minRun = 12
	// minLine is the length of a line from which the next line may belong to the same run: programs break lines of 64 or 76 digits.
	minLine = 60
)

// removeEncoded removes from a text each run of digits of base64, or hexadecimal ones, that encodes a text with a flag. A Pattern
// finds a flag in such digits only if that is its one encoding, since every further one changes all digits.
func removeEncoded(text string, match func(rest string) int, nested int) string {
	if nested == 0 {
		return text
	}
	var out strings.Builder
	kept := 0
	for i := 0; i < len(text); {
		if !isDigit(text[i]) {
			i++
			continue
		}
		digits, end := runAt(text, i)
		if len(digits) >= minRun && encodesFlag(digits, match, nested) {
			out.WriteString(text[kept:i])
			out.WriteString(Mark)
			kept = end
		}
		i = end
	}
	if kept == 0 {
		return text
	}
	return out.String() + text[kept:]
}

// isDigit reports whether a byte is a digit of base64, in one of its two alphabets.
func isDigit(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '+' || b == '/' || b == '-' || b == '_'
}

// runAt returns the digits that begin at a byte of a text, without line breaks, and where they end.
func runAt(text string, from int) (digits string, end int) {
	end = from
	for line := from; ; {
		for end < len(text) && isDigit(text[end]) {
			end++
		}
		digits += text[line:end]
		next := end + lineBreak(text[end:])
		if next == end || end-line < minLine || next == len(text) || !isDigit(text[next]) {
			return digits, end
		}
		line, end = next, next
	}
}

// encodesFlag reports whether the text that digits encode has a flag in it. The digits may be those of the middle of a longer
// encoding.
func encodesFlag(digits string, match func(rest string) int, nested int) bool {
	containsFlag := func(decoded []byte) bool {
		if !isText(decoded) {
			return false
		}
		text := string(decoded)
		return removeSpelled(text, match) != text || removeEncoded(text, match, nested-1) != text
	}
	standard := strings.NewReplacer("-", "+", "_", "/").Replace(digits)
	for offset := range 4 {
		part := standard[offset:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		if decoded, err := base64.RawStdEncoding.DecodeString(part); err == nil && containsFlag(decoded) {
			return true
		}
	}
	for offset := range 2 {
		part := digits[offset:]
		if decoded, err := hex.DecodeString(part[:len(part)/2*2]); err == nil && containsFlag(decoded) {
			return true
		}
	}
	return false
}

// isText reports whether three quarters of some bytes are those of a text: of words that are taken for an encoding, hardly half are.
func isText(decoded []byte) bool {
	printable := 0
	for _, b := range decoded {
		if b >= ' ' && b <= '~' || b == 0 || b == '\n' || b == '\r' || b == '\t' {
			printable++
		}
	}
	return 4*printable >= 3*len(decoded)
}
