package redact

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
)

const (
	// escapeLayers is the maximum number of escapes around each other, as in JSON within JSON. It bounds the work on a
	// hostile text.
	escapeLayers = 4
	// maxEscapeBytes is the maximum number of bytes in which a usual notation writes one byte, as in \u0001.
	maxEscapeBytes = 6
	// encodingLayers is the maximum number of encodings in digits around each other.
	encodingLayers = 3
)

// Set finds flags in texts. It does not change after NewSet, and may be used concurrently.
type Set struct {
	// folded are the flags without the characters that escapes add, by their first bytes.
	folded map[key][]string
	// begins are the bytes with which a folded flag begins.
	begins [256]bool
	// notations are the usual notations of all flags, by their first bytes. They are needed only where a text is cut off:
	// there a decoder cannot work.
	notations func() map[key][]string
	maxBytes  int
}

// key has the first bytes of a flag or its notation.
type key [minLength]byte

// span is a part of a text, from a byte to before another one.
type span struct{ from, to int }

// NewSet returns the Set of flags. It leaves out flags that are too short to be distinguished from ordinary words.
func NewSet(flags ...string) *Set {
	s := &Set{folded: map[key][]string{}}
	flags = slices.DeleteFunc(slices.Clone(flags), TooShort)
	for _, flag := range flags {
		s.maxBytes = max(s.maxBytes, maxEscapeBytes*len(flag))
		// A flag may have the form of an escape itself. A text that contains it is decoded, so the decoded flag counts too.
		for range escapeLayers {
			s.add(fold(flag))
			v, changed := view{text: flag}.decode()
			if flag = v.text; !changed || TooShort(flag) {
				break
			}
		}
	}
	s.notations = sync.OnceValue(func() map[key][]string {
		all := map[key][]string{}
		for _, flag := range flags {
			for _, n := range notations(flag) {
				all[key([]byte(n))] = append(all[key([]byte(n))], n)
			}
		}
		return all
	})
	return s
}

func (s *Set) add(folded string) {
	k := key([]byte(folded))
	if slices.Contains(s.folded[k], folded) {
		return
	}
	s.folded[k] = append(s.folded[k], folded)
	if s.begins[k[0]] = true; k[0] == ' ' {
		s.begins['+'] = true
	}
}

// Empty reports whether the set finds nothing.
func (s *Set) Empty() bool { return s.maxBytes == 0 }

// MaxBytes is the length that the usual notations do not exceed.
func (s *Set) MaxBytes() int { return s.maxBytes }

// Remove replaces the flags in a text by Mark. Overlapping finds become one. It may remove more than the flag, such as the
// escapes around it. It never removes less than a match.
func (s *Set) Remove(text string) string {
	if s.Empty() {
		return text
	}
	// Finds of different decodings overlap, so they are sorted, the longer one first.
	all := s.find(text, encodingLayers)
	if len(all) == 0 {
		return text
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var out strings.Builder
	kept := 0
	for _, found := range all {
		if found.from >= kept {
			out.WriteString(text[kept:found.from] + Mark)
		}
		kept = max(kept, found.to)
	}
	return out.String() + text[kept:]
}

// find returns the positions of flags in a text, with up to so many encodings around them.
func (s *Set) find(text string, encodings int) []span {
	v := view{text: text}
	all := append(s.match(text), s.encoded(v, encodings)...)
	for range escapeLayers {
		decoded, changed := v.decode()
		if !changed {
			return all
		}
		v = decoded
		for _, found := range append(s.match(v.text), s.encoded(v, encodings)...) {
			all = append(all, v.source(found))
		}
	}
	return all
}

// match returns the positions of flags in a text that is decoded.
func (s *Set) match(text string) (all []span) {
	for i := 0; i < len(text); i++ {
		if end := s.end(text, i); end > 0 {
			all = append(all, span{i, end})
			i = end - 1
		}
	}
	return all
}

// end returns the offset behind the longest flag that begins at a byte of a text, 0 without a flag.
func (s *Set) end(text string, from int) (end int) {
	if !s.begins[text[from]] {
		return 0
	}
	var first key
	next := from
	for n := range first {
		if first[n], next = nextFolded(text, next); next == 0 {
			return 0
		}
	}
	for _, flag := range s.folded[first] {
		offset := next
		for n := minLength; n < len(flag) && offset > 0; n++ {
			var b byte
			if b, offset = nextFolded(text, offset); b != flag[n] {
				offset = 0
			}
		}
		end = max(end, offset)
	}
	return end
}

// nextFolded returns the next byte of a text that escapes do not add, and the offset behind it; 0 at the end of the text.
// Quotation marks and backslashes are written in as many ways as there are languages, a zero is half a character of
// UTF-16, U+FFFD stands for it, and a plus for a blank in a URL.
func nextFolded(text string, offset int) (b byte, end int) {
	for offset < len(text) {
		switch c := text[offset]; {
		case c == '\'' || c == '"' || c == '\\' || c == 0 || c == '$' && strings.HasPrefix(text[offset:], "$$"):
			offset++
		case strings.HasPrefix(text[offset:], "\uFFFD"):
			offset += len("\uFFFD")
		case c == '+':
			return ' ', offset + 1
		default:
			return c, offset + 1
		}
	}
	return 0, 0
}

func fold(text string) string {
	var out []byte
	for b, offset := nextFolded(text, 0); offset > 0; b, offset = nextFolded(text, offset) {
		out = append(out, b)
	}
	return string(out)
}

// notations are the usual ways in which programs write a flag.
func notations(flag string) []string {
	quoted, _ := json.Marshal(flag) // a string
	percent, digits := url.QueryEscape(flag), hex.EncodeToString([]byte(flag))
	all := []string{
		flag, strings.Trim(string(quoted), `"`), strings.Trim(fmt.Sprintf("%+q", flag), `"`), digits, strings.ToUpper(digits),
		percent, strings.ToLower(percent), url.PathEscape(flag),
	}
	// In base64, the bytes before and after the flag change its first and last digit, and its offset changes all digits.
	for before := range 3 {
		bits := []byte(strings.Repeat("\x00", before) + flag)
		from, last := (before*8+5)/6, len(bits)*8/6
		all = append(all, base64.RawStdEncoding.EncodeToString(bits)[from:last], base64.RawURLEncoding.EncodeToString(bits)[from:last])
	}
	return all
}

// CutStart returns the length of the rest of a flag with which a text begins, if the beginning of the flag was cut off. It
// knows the usual notations.
func (s *Set) CutStart(text string) (length int) {
	for _, all := range s.notations() {
		for _, notation := range all {
			for n := min(len(notation)-1, len(text)); n > length; n-- {
				if strings.HasSuffix(notation, text[:n]) {
					length = n
				}
			}
		}
	}
	return length
}

// CutEnd returns the length of the beginning of a flag with which a text ends, if the end of the flag was cut off. It knows
// the usual notations.
func (s *Set) CutEnd(text string) (length int) {
	for _, all := range s.notations() {
		for _, notation := range all {
			for n := min(len(notation)-1, len(text)); n > length; n-- {
				if strings.HasPrefix(notation, text[len(text)-n:]) {
					length = n
				}
			}
		}
	}
	return length
}

// RemoveCut removes the flags from a text whose end may be cut off, and from its end the beginning of a flag: at least as
// many characters as a flag must have.
func (s *Set) RemoveCut(text string) string {
	text = s.Remove(text)
	for i := max(0, len(text)-s.maxBytes); i+minLength <= len(text); i++ {
		for _, notation := range s.notations()[key([]byte(text[i:i+minLength]))] {
			if strings.HasPrefix(notation, text[i:]) {
				return text[:i] + Mark
			}
		}
	}
	return text
}
