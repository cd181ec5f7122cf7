package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// view is a text without its escapes, with the position of each byte in the original text.
type view struct {
	text string
	// from and to are the offsets at which a byte begins and ends there. They are nil for the original text itself.
	from, to []int32
}

// source returns the part of the original text that a part of a view stands for.
func (v view) source(s span) span {
	if v.from == nil {
		return s
	}
	return span{int(v.from[s.from]), int(v.to[s.to-1])}
}

// decode returns a view without the outermost escapes of a view, and whether it had any. Positions are kept for each byte, so
// that a find leads back to the original text through any number of layers.
func (v view) decode() (out view, changed bool) {
	if !strings.ContainsAny(v.text, `%=&\`) {
		return v, false
	}
	text := make([]byte, 0, len(v.text))
	from, to := make([]int32, 0, len(v.text)), make([]int32, 0, len(v.text))
	for i := 0; i < len(v.text); {
		meaning, length := unescape(v.text[i:])
		changed = changed || length > 1 || meaning == ""
		original := v.source(span{i, i + length})
		for n := range len(meaning) {
			text, from, to = append(text, meaning[n]), append(from, int32(original.from)), append(to, int32(original.to))
		}
		i += length
	}
	return view{string(text), from, to}, changed
}

// maxEntity is the length from which a word is no entity of HTML.
const maxEntity = 12

// unescape returns the meaning of the escape at the beginning of a text, and its length. Without an
// escape, it returns the first byte.
func unescape(text string) (meaning string, length int) {
	switch text[0] {
	case '%', '=': // URL, and quoted-printable
		if strings.HasPrefix(text, "=\n") || strings.HasPrefix(text, "=\r\n") {
			return "", strings.IndexByte(text, '\n') + 1
		}
		if len(text) >= 3 {
			if b, err := hex.DecodeString(text[1:3]); err == nil {
				return string(b), 3
			}
		}
	case '&':
		if end := strings.IndexByte(text[:min(len(text), maxEntity)], ';'); end > 0 {
			if s := html.UnescapeString(text[:end+1]); len(s) <= utf8.UTFMax && s != text[:end+1] {
				return s, end + 1
			}
		}
	case '\\':
		return unescapeBackslash(text)
	}
	return text[:1], 1
}

// unescapeBackslash reads the escapes of Go, which most languages share, and of JSON and JavaScript. Behind any other
// backslash the character stands for itself.
func unescapeBackslash(text string) (meaning string, length int) {
	var pair string
	switch {
	case strings.HasPrefix(text, `\u{`), strings.HasPrefix(text, `\x{`):
		if end := strings.IndexByte(text[:min(len(text), maxEntity)], '}'); end > 0 {
			if r, err := strconv.ParseUint(text[3:end], 16, 21); err == nil {
				return string(rune(r)), end + 1
			}
		}
	case len(text) >= 12 && text[1] == 'u' && text[6:8] == `\u` && json.Unmarshal([]byte(`"`+text[:12]+`"`), &pair) == nil && utf8.RuneCountInString(pair) == 1:
		return pair, 12
	}
	r, multibyte, rest, err := strconv.UnquoteChar(text, 0)
	if err != nil {
		return "", 1
	}
	if r >= utf8.RuneSelf && !multibyte { // a byte of a character, or a character in Python
		all, after := []byte{byte(r)}, rest
		for len(all) < utf8.UTFMax && !utf8.Valid(all) {
			next, _, tail, err := strconv.UnquoteChar(after, 0)
			if err != nil {
				break
			}
			all, after = append(all, byte(next)), tail
		}
		if utf8.Valid(all) {
			return string(all), len(text) - len(after)
		}
	}
	return string(r), len(text) - len(rest)
}

// digits may be an encoding. Each has its position in a text.
type digits struct {
	text      []byte
	positions []int32
}

func (d *digits) add(digit byte, position int) {
	d.text, d.positions = append(d.text, digit), append(d.positions, int32(position))
}

// encoded returns the parts of a view whose base64 or hexadecimal digits encode a text with a flag.
func (s *Set) encoded(v view, encodings int) (all []span) {
	if encodings == 0 {
		return nil
	}
	var run digits
	var buffer []byte
	for i := 0; i < len(v.text); {
		end := run.readBase64(v.text, i)
		// The run may begin in the middle of a longer encoding, so each offset in a group of four digits is tried.
		for offset := 0; offset < 4 && offset+minRun <= len(run.text); offset++ {
			part := run.text[offset:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			if decoded, err := base64.RawStdEncoding.AppendDecode(buffer[:0], part); err == nil {
				buffer = decoded
				for _, found := range s.decoded(string(decoded), encodings) {
					all = append(all, span{int(run.positions[offset+found.from*8/6]), int(run.positions[offset+(found.to*8-1)/6]) + 1})
				}
			}
		}
		i = max(end, i+1)
	}
	for i := 0; i < len(v.text); {
		end := run.readHex(v.text, i)
		for offset := 0; offset < 2 && offset+2*minLength <= len(run.text); offset++ {
			part := run.text[offset:]
			if decoded, err := hex.AppendDecode(buffer[:0], part[:len(part)/2*2]); err == nil {
				buffer = decoded
				for _, found := range s.decoded(string(decoded), encodings) {
					all = append(all, span{int(run.positions[offset+found.from*2]), int(run.positions[offset+found.to*2-1]) + 1})
				}
			}
		}
		i = max(end, i+1)
	}
	return all
}

// decoded returns the positions of flags in a decoded text. A word that was taken for an encoding seldom decodes to
// printable text; then further encodings in it are not searched, which bounds the work.
func (s *Set) decoded(text string, encodings int) []span {
	printable := 0
	for i := range len(text) {
		if b := text[i]; b >= ' ' && b <= '~' || b == 0 || b == '\n' || b == '\r' || b == '\t' {
			printable++
		}
	}
	if 4*printable < 3*len(text) {
		return s.match(text)
	}
	return s.find(text, encodings-1)
}

const (
	// minRun is the number of base64 digits of the shortest flag.
	minRun = 6
	// minLine is the length of a line from which the next one may belong to the same run: programs break lines of 64 or
	// 76 digits.
	minLine = 60
)

// readBase64 reads the digits of base64 that begin at a byte of a text, in one of the two alphabets, and returns the
// offset behind them.
func (d *digits) readBase64(text string, from int) (end int) {
	d.text, d.positions = d.text[:0], d.positions[:0]
	line := from
	for end = from; end < len(text); end++ {
		switch b := text[end]; {
		case b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '+' || b == '/':
			d.add(b, end)
		case b == '-' || b == '_':
			d.add("+/"[bytes.IndexByte([]byte("-_"), b)], end)
		case b == '\r' && end-line >= minLine:
		case b == '\n' && end-line >= minLine:
			line = end + 1
		default:
			return end
		}
	}
	return end
}

// readHex reads the hexadecimal digits that begin at a byte of a text, and returns the offset behind them. A dump has
// blanks, colons or line breaks between them, a list 0x and commas.
func (d *digits) readHex(text string, from int) (end int) {
	d.text, d.positions = d.text[:0], d.positions[:0]
	for end = from; end < len(text); end++ {
		switch b := text[end]; {
		case b == '0' && strings.HasPrefix(strings.ToLower(text[end:min(len(text), end+2)]), "0x"):
			end++
		case b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F':
			d.add(b, end)
		case strings.IndexByte(" ,:-\t\r\n", b) >= 0 && len(d.text) > 0:
		default:
			return end
		}
	}
	return end
}
