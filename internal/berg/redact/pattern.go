package redact

import (
	"encoding/base64"
	"encoding/hex"
	"html"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Mark stands for a flag that was removed.
const Mark = "<flag>"

// Pattern finds a flag however its characters are escaped. It compares character by character,
// because each encoder escapes another set of them, and some mix several escapes in one text.
type Pattern struct {
	// sequences are the flag itself, its hexadecimal digits, the numbers of its bytes, and its base64 at three offsets.
	sequences []sequence
	// begins are the bytes with which a notation may begin.
	begins [256]bool
}

// sequence is what a text must spell, character by character.
type sequence struct {
	units []unit
	// gap returns how many bytes may stand before each unit but the first.
	gap func(text string) int
	// betweens are the bytes with which a gap may begin, if these are not introducers.
	betweens string
}

// unit is a character, or one of two that stand for it.
type unit struct{ one, other rune }

const (
	// maxEscaped is about how many bytes an escape of one byte takes.
	maxEscaped = 14
	// maxBackslashes: quoting twice doubles them.
	maxBackslashes = 8
	// maxEntity is the length of an entity from which it is none that an encoder writes.
	maxEntity = 12
)

// NewPattern returns the Pattern of a flag. That of a flag too short to be distinguished from
// ordinary words finds nothing.
func NewPattern(flag string) Pattern {
	if len(flag) < minRedacted {
		return Pattern{}
	}
	p := Pattern{sequences: []sequence{
		{units: units(flag, same), gap: betweenCharacters, betweens: "\x00\xef"},
		{units: units(hex.EncodeToString([]byte(flag)), upper), gap: betweenBytes, betweens: blanks + ":-0"},
		{units: units(numbers(flag), same), gap: betweenNumbers, betweens: blanks},
	}}
	// In base64, the bytes before and after the flag change its first and last digit, and its
	// offset changes all digits.
	for before := range 3 {
		bits := []byte(strings.Repeat("\x00", before) + flag)
		from, last := (before*8+5)/6, len(bits)*8/6
		digits := base64.RawStdEncoding.EncodeToString(bits)[from:last]
		p.sequences = append(p.sequences, sequence{units: units(digits, urlSafe), gap: lineBreak, betweens: "\r\n"})
	}
	for _, introducer := range []byte(`%=&\+`) {
		p.begins[introducer] = true
	}
	for _, s := range p.sequences {
		p.begins[string(s.units[0].one)[0]], p.begins[string(s.units[0].other)[0]] = true, true
	}
	return p
}

func units(text string, other func(rune) rune) []unit {
	out := make([]unit, 0, len(text))
	for _, r := range text {
		out = append(out, unit{r, other(r)})
	}
	return out
}

func upper(digit rune) rune {
	if digit >= 'a' && digit <= 'f' {
		return digit - 'a' + 'A'
	}
	return digit
}

func urlSafe(digit rune) rune {
	switch digit {
	case '+':
		return '-'
	case '/':
		return '_'
	default:
		return digit
	}
}

func same(r rune) rune { return r }

// numbers returns the bytes of a flag as decimal numbers, one after the other.
func numbers(flag string) string {
	var out []byte
	for _, b := range []byte(flag) {
		out = strconv.AppendUint(out, uint64(b), 10)
	}
	return string(out)
}

// blanks are what stands between the elements of a list, or ends its lines.
const blanks = " ,\t\r\n"

// betweenNumbers is what stands between the numbers of a list.
func betweenNumbers(text string) int { return len(text) - len(strings.TrimLeft(text, blanks)) }

// betweenBytes is what programs write between hexadecimal digits: a dump has blanks, colons or line breaks, a literal 0x or a
// backslash and an x, and UTF-16 the digits of a zero.
func betweenBytes(text string) (n int) {
	for {
		n += len(text[n:]) - len(strings.TrimLeft(text[n:], blanks+":-"))
		for _, prefix := range []string{"0x", "0X", `\x`} {
			if strings.HasPrefix(text[n:], prefix) {
				return n + len(prefix)
			}
		}
		if !strings.HasPrefix(text[n:], "00") {
			return n
		}
		n += len("00")
	}
}

// betweenCharacters is what stands between the characters of a text in UTF-16, a zero in any notation or what took its place; and
// what breaks a line of quoted-printable.
func betweenCharacters(text string) int {
	if text == "" {
		return 0
	}
	switch text[0] {
	case 0:
		return 1
	case '=', '%', '\\':
		for _, end := range []string{"=\r\n", "=\n"} {
			if strings.HasPrefix(text, end) {
				return len(end)
			}
		}
		if lengths := spelled(text, 0, nil); len(lengths) > 0 {
			return slices.Max(lengths)
		}
	default:
		if strings.HasPrefix(text, "\uFFFD") {
			return len("\uFFFD")
		}
	}
	return 0
}

// lineBreak is what stands between two lines of base64.
func lineBreak(text string) int {
	for _, end := range []string{"\r\n", "\n", `\r\n`, `\n`} {
		if strings.HasPrefix(text, end) {
			return len(end)
		}
	}
	return 0
}

// Empty reports whether the pattern finds nothing.
func (p Pattern) Empty() bool { return len(p.sequences) == 0 }

// MaxBytes is about the length of the longest notation of the flag.
func (p Pattern) MaxBytes() int {
	if p.Empty() {
		return 0
	}
	return maxEscaped * len(p.sequences[0].units) * utf8.UTFMax
}

// At returns the length of the flag at the beginning of a text, 0 if it is not there. open reports
// that the text ends before the flag does.
func (p Pattern) At(text string) (length int, open bool) {
	if text == "" || !p.begins[text[0]] {
		return 0, false
	}
	for _, s := range p.sequences {
		if s.excluded(text) {
			continue
		}
		end, tooShort := s.match(text, 0)
		length, open = max(length, end), open || tooShort
	}
	return length, open
}

// Rest returns how many bytes at the beginning of a text may be the end of a flag of which the
// beginning was cut off, within a character too.
func (p Pattern) Rest(text string) (length int) {
	for _, s := range p.sequences {
		for cut := 0; cut < maxEscaped && cut <= len(text); cut++ {
			if cut > 0 && !ofEscape(text[cut-1]) {
				break
			}
			for from := 1; from < len(s.units); from++ {
				end, _ := s.match(text[cut:], from)
				if end > 0 {
					length = max(length, cut+end)
				}
			}
			// The last character may be cut too.
			if cut > 0 && escapeEnds(text[:cut], s.units[len(s.units)-1]) {
				length = max(length, cut)
			}
		}
	}
	return length
}

// escapeEnds reports whether a text may be the end of an escape of a unit.
func escapeEnds(text string, u unit) bool {
	for _, introducer := range []string{"%", "=", "&", "&#", "&#x", `\`, `\x`, `\u`, `\u0`, `\u00`, `%2`, `%25`} {
		for _, r := range []rune{u.one, u.other} {
			if slices.Contains(spelled(introducer+text, r, nil), len(introducer)+len(text)) {
				return true
			}
		}
	}
	if b := byteOf(u.one); b != "" {
		return strings.EqualFold(text, b[1:])
	}
	return false
}

// byteOf returns the hexadecimal digits of a character of one byte.
func byteOf(r rune) string {
	if r >= utf8.RuneSelf {
		return ""
	}
	return hex.EncodeToString([]byte{byte(r)})
}

func ofEscape(b byte) bool {
	return b == 0 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || strings.IndexByte(`%&#;\{}$`, b) >= 0 || b >= utf8.RuneSelf
}

// introducers are the bytes with which the escape of a character may begin, or a quotation that ends within a flag.
const introducers = `%=&\+$'"`

// excluded reports that a text does not begin with the sequence, nor with the beginning of it. It follows plain characters
// alone, and is many times as fast as match: most of a text is excluded by its first bytes.
func (s sequence) excluded(text string) bool {
	for n, u := range s.units {
		if n == len(text) {
			return false // too short
		}
		b := text[n]
		switch {
		case strings.IndexByte(introducers, b) >= 0, n > 0 && strings.IndexByte(s.betweens, b) >= 0, u.one >= utf8.RuneSelf, u.other >= utf8.RuneSelf:
			return false // not known
		case b != byte(u.one) && b != byte(u.other):
			return true
		}
	}
	return false
}

// match follows all ways in which a text may spell the units from one on, and returns the length of
// the longest one, 0 for none.
func (s sequence) match(text string, from int) (length int, open bool) {
	var room, more [8]int
	at, next := append(room[:0], 0), more[:0]
	for n, u := range s.units[from:] {
		next = next[:0]
		for _, i := range at {
			starts := [2]int{i, i}
			if n > 0 {
				starts[1] = i + s.gap(text[i:])
			}
			for k, start := range starts {
				if k == 1 && start == i {
					continue
				}
				if start == len(text) {
					open = open || start > 0
					continue
				}
				begun := len(next)
				next = spelled(text[start:], u.one, next)
				if u.other != u.one {
					next = spelled(text[start:], u.other, next)
				}
				for m := begun; m < len(next); m++ {
					next[m] += start
				}
				open = open || unfinished(text[start:], u)
			}
		}
		slices.Sort(next)
		next = slices.Compact(next)
		if len(next) == 0 {
			return 0, open
		}
		at, next = next, at
	}
	return at[len(at)-1], open
}

// unfinished reports whether a text may be the beginning of an escape, or of a character.
func unfinished(text string, u unit) bool {
	if len(text) >= maxEscaped+maxBackslashes {
		return false
	}
	for _, r := range []rune{u.one, u.other} {
		if literal := string(r); len(text) < len(literal) && strings.HasPrefix(literal, text) {
			return true
		}
	}
	if strings.IndexByte(`%=&\`, text[0]) < 0 {
		return false
	}
	for i := range len(text) {
		if !ofEscape(text[i]) && text[i] != '=' {
			return false
		}
	}
	return true
}

// spelled adds to lengths those with which the beginning of a text spells a character.
func spelled(text string, r rune, lengths []int) []int {
	if text == "" {
		return lengths
	}
	if literal := string(r); strings.HasPrefix(text, literal) {
		lengths = append(lengths, len(literal))
	}
	switch text[0] {
	case '+':
		if r == ' ' {
			lengths = append(lengths, 1)
		}
	case '$': // as in the value of a variable
		if r == '$' && strings.HasPrefix(text, "$$") {
			lengths = append(lengths, len("$$"))
		}
	case '\'', '"':
		lengths = spelledQuote(text, r, lengths)
	case '%', '=':
		for n := 1; r == '%' && strings.HasPrefix(text[n:], "25") && n < maxEscaped; n += len("25") {
			lengths = append(lengths, n+len("25")) // each time % was escaped again
		}
		if n := spelledBytes(text, r); n > 0 {
			lengths = append(lengths, n)
		}
		if strings.HasPrefix(text, "%u") && number(text[2:], 4, 16) == int(r) {
			lengths = append(lengths, 6)
		}
	case '&':
		lengths = spelledEntity(text, r, lengths)
	case '\\':
		if n := spelledBytes(text, r); n > 0 {
			lengths = append(lengths, n)
		}
		lengths = spelledEscape(text, r, lengths)
	}
	return lengths
}

// spelledQuote finds how shells and tables write a quotation mark within quotation marks.
func spelledQuote(text string, r rune, lengths []int) []int {
	var ways []string
	switch r {
	case '\'':
		ways = []string{`''`, `'\''`, `'"'"'`}
	case '"':
		ways = []string{`""`, `"'"'"`}
	}
	for _, way := range ways {
		if strings.HasPrefix(text, way) {
			lengths = append(lengths, len(way))
		}
	}
	return lengths
}

// spelledBytes returns how many bytes of a text are the UTF-8 of a character, each in digits.
func spelledBytes(text string, r rune) (length int) {
	var encoded [utf8.UTFMax]byte
	for _, b := range encoded[:utf8.EncodeRune(encoded[:], r)] {
		n := spelledByte(text[length:], b)
		if n == 0 {
			return 0
		}
		length += n
	}
	return length
}

func spelledByte(text string, b byte) int {
	switch {
	case text == "":
		return 0
	case text[0] == '%':
		for n := 1; ; n += len("25") { // % itself may be escaped again
			if number(text[n:], 2, 16) == int(b) {
				return n + 2
			}
			if !strings.HasPrefix(text[n:], "25") {
				return 0
			}
		}
	case text[0] == '=':
		if number(text[1:], 2, 16) == int(b) {
			return 3
		}
	case text[0] == '\\':
		n := backslashes(text)
		if strings.HasPrefix(text[n:], "x") && number(text[n+1:], 2, 16) == int(b) {
			return n + 3
		}
		if number(text[n:], 3, 8) == int(b) {
			return n + 3
		}
		if strings.HasPrefix(text[n:], "0") && number(text[n+1:], 3, 8) == int(b) {
			return n + 4
		}
	}
	return 0
}

// spelledEntity finds the entities of HTML and XML, also where & was escaped again.
func spelledEntity(text string, r rune, lengths []int) []int {
	n := 1
	for {
		end := n
		for end < len(text) && end-n < maxEntity && (text[end] == '#' || ofEscape(text[end]) && text[end] < utf8.RuneSelf && strings.IndexByte(`%&;\{}$`, text[end]) < 0) {
			end++
		}
		name := text[n:end]
		closed := end < len(text) && text[end] == ';'
		if name != "" && (closed || name[0] == '#') && html.UnescapeString("&"+name+";") == string(r) {
			if closed {
				lengths = append(lengths, end+1)
			} else {
				lengths = append(lengths, end)
			}
		}
		if !strings.HasPrefix(text[n:], "amp;") {
			return lengths
		}
		n += len("amp;")
	}
}

// controls are the escapes of control characters.
var controls = map[byte]rune{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b, '0': 0}

// spelledEscape finds the escapes of programming languages, of JSON and of shells.
func spelledEscape(text string, r rune, lengths []int) []int {
	all := backslashes(text)
	if r == '\\' {
		for n := 2; n <= all; n++ {
			lengths = append(lengths, n)
		}
	}
	rest := text[all:]
	if rest == "" {
		return lengths
	}
	if literal := string(r); strings.HasPrefix(rest, literal) {
		lengths = append(lengths, all+len(literal))
	}
	if control, ok := controls[rest[0]]; ok && control == r {
		lengths = append(lengths, all+1)
	}
	switch rest[0] {
	case 'x':
		if number(rest[1:], 2, 16) == int(r) {
			lengths = append(lengths, all+3)
		}
		lengths = spelledBraces(rest, r, all, lengths)
	case 'U':
		if number(rest[1:], 8, 16) == int(r) {
			lengths = append(lengths, all+9)
		}
	case 'u':
		lengths = spelledBraces(rest, r, all, lengths)
		first, second := utf16.EncodeRune(r)
		switch {
		case first == utf8.RuneError:
			if number(rest[1:], 4, 16) == int(r) {
				lengths = append(lengths, all+5)
			}
		case number(rest[1:], 4, 16) == int(first):
			between := backslashes(rest[5:])
			if after := rest[5+between:]; between > 0 && strings.HasPrefix(after, "u") && number(after[1:], 4, 16) == int(second) {
				lengths = append(lengths, all+5+between+5)
			}
		}
	}
	return lengths
}

// spelledBraces finds the number of a character in braces, behind a letter and all bytes before it.
func spelledBraces(text string, r rune, all int, lengths []int) []int {
	if end := strings.IndexByte(text, '}'); len(text) > 1 && text[1] == '{' && end > 0 && end <= maxEntity && number(text[2:], end-2, 16) == int(r) {
		return append(lengths, all+end+1)
	}
	return lengths
}

func backslashes(text string) (n int) {
	for n < len(text) && n < maxBackslashes && text[n] == '\\' {
		n++
	}
	return n
}

// number returns the value of as many digits at the beginning of a text, -1 if they are not there.
func number(text string, digits, base int) int {
	if digits < 1 || len(text) < digits {
		return -1
	}
	n, err := strconv.ParseUint(text[:digits], base, 32)
	if err != nil {
		return -1
	}
	return int(n)
}
