package redact

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"mime/quotedprintable"
	"net/url"
	"os"
	"strings"
	"testing"
	"unicode/utf16"
)

func inUTF16(order binary.AppendByteOrder, text string) string {
	var out []byte
	for _, u := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, u)
	}
	return string(out)
}

// wrapped breaks lines as base64 and xxd do.
func wrapped(text string, width int) string {
	var lines []string
	for ; len(text) > width; text = text[width:] {
		lines = append(lines, text[:width])
	}
	return strings.Join(append(lines, text), "\n")
}

func in64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestFlagsInOtherRepresentations(t *testing.T) {
	const before, after = "the program wrote: ", " and ended"
	for _, flag := range []string{"flag{it's \"here\"}", "flag{3f2a7c90-1b4d-4e8f-9a6b-0c1d2e3f4a5b_" + strings.Repeat("long", 30) + "}"} {
		printable := &strings.Builder{}
		w := quotedprintable.NewWriter(printable)
		if _, err := w.Write([]byte(before + flag + after)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		little := inUTF16(binary.LittleEndian, before+flag+after)
		for encoding, text := range map[string]string{
			"UTF-16LE":                    little,
			"UTF-16BE":                    inUTF16(binary.BigEndian, before+flag+after),
			"UTF-16 in escapes":           fmt.Sprintf("%q", little),
			"UTF-16 in percents":          url.QueryEscape(little),
			"UTF-16 in hexadecimal":       hex.EncodeToString([]byte(little)),
			"UTF-16 in a dump":            fmt.Sprintf("% X", little),
			"UTF-16 in base64":            in64(little),
			"UTF-16 with marks for zeros": strings.ReplaceAll(little, "\x00", "\uFFFD"),
			"quoted-printable":            printable.String(),
			"hexadecimal in lines":        wrapped(hex.EncodeToString([]byte(before+flag+after)), 60),
			"base64 twice":                in64(in64(before + flag + after)),
			"base64 twice, in lines":      wrapped(in64(wrapped(in64(before+flag+after), 76)+"\n"), 76),
			"base64 three times":          in64(in64(in64(before + flag + after))),
			"base64 of hexadecimal":       in64(hex.EncodeToString([]byte(before + flag + after))),
			"base64 of percents":          in64(url.QueryEscape(before + flag + after)),
			"base64 of an object":         in64(fmt.Sprintf(`{"data":{"flag":%q}}`, in64(flag))),
			"hexadecimal of base64":       hex.EncodeToString([]byte(in64(before + flag + after))),
			"base64url of base64":         base64.RawURLEncoding.EncodeToString([]byte(in64(before + flag + after))),
			"braces of Perl":              before + strings.ReplaceAll(flag, "{", `\x{7b}`) + after,
			"quoted by a shell":           before + "'" + strings.ReplaceAll(flag, "'", `'\''`) + "'" + after,
			"quoted by Python's shlex":    before + "'" + strings.ReplaceAll(flag, "'", `'"'"'`) + "'" + after,
			"quoted in SQL":               before + "'" + strings.ReplaceAll(flag, "'", "''") + "'" + after,
			"quoted in CSV":               before + `"` + strings.ReplaceAll(flag, `"`, `""`) + `"` + after,
		} {
			if got := Text(text, flag); !strings.Contains(got, Mark) {
				t.Errorf("%s of %q stays: %q", encoding, flag, got)
			}
			if got := NewSet(flag, "flag{another}").Remove(text); !strings.Contains(got, Mark) {
				t.Errorf("%s of %q stays in a report: %q", encoding, flag, got)
			}
		}
	}
}

// Of texts without the flag nothing may go: the documentation and the sources have words, paths, digests and encodings of all kinds.
func TestTextsWithoutTheFlagStay(t *testing.T) {
	for _, file := range []string{"decode.go", "testdata/python.json", "../../../docs/security.md", "../../../go.sum", "../../../deploy/install.yaml"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := Text(string(data), "flag{nowhere-2f6b1c}"); got != string(data) {
			t.Errorf("%s is changed: %d flags are removed", file, strings.Count(got, Mark))
		}
	}
}
