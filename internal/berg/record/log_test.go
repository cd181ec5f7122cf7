package record

import (
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

const secretFlag = "flag{0nly_for/alice?+}"

func TestLogHasNoFlag(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for name, text := range map[string]string{
		"plain":            "here: " + secretFlag + "\n",
		"twice":            secretFlag + secretFlag,
		"hex":              hex.EncodeToString([]byte(secretFlag)),
		"upper-case hex":   strings.ToUpper(hex.EncodeToString([]byte(secretFlag))),
		"in a URL":         "GET /?f=" + url.QueryEscape(secretFlag),
		"in a path":        "GET /" + url.PathEscape(secretFlag),
		"base64":           b64([]byte(secretFlag)),
		"base64 later":     b64([]byte("x" + secretFlag + "y")),
		"base64 and later": b64([]byte("xy" + secretFlag + "z")),
		"among bytes":      "\xff\x00" + secretFlag + "\x1b[0m",
	} {
		got := newCensor(secretFlag).log([]byte(text), false)
		if !strings.Contains(got, flagPlaceholder) || strings.Contains(got, "alice") {
			t.Errorf("%s: %q", name, got)
		}
		for _, n := range notations(secretFlag) {
			if strings.Contains(got, n) {
				t.Errorf("%s: %q contains %q", name, got, n)
			}
		}
	}
}

// notations are some of the ways in which programs write a flag.
func notations(flag string) []string {
	percent := url.QueryEscape(flag)
	all := []string{
		flag, hex.EncodeToString([]byte(flag)), strings.ToUpper(hex.EncodeToString([]byte(flag))),
		percent, strings.ToLower(percent), url.PathEscape(flag),
	}
	for before := range 3 {
		bits := []byte(strings.Repeat("\x00", before) + flag)
		from, last := (before*8+5)/6, len(bits)*8/6
		all = append(all, base64.RawStdEncoding.EncodeToString(bits)[from:last], base64.RawURLEncoding.EncodeToString(bits)[from:last])
	}
	return all
}

// However a log is cut, nothing of a flag that was cut is left at its beginning.
func TestFlagThatWasCut(t *testing.T) {
	c := newCensor(secretFlag)
	for _, notation := range notations(secretFlag) {
		for from := 1; from < len(notation); from++ {
			rest := notation[from:]
			if got := c.log([]byte(rest+"\nnext line "+secretFlag), true); got != "\nnext line <flag>" {
				t.Fatalf("of %q, cut after %d: %q", notation, from, got)
			}
		}
	}
	if got := c.log([]byte("alice} is here"), false); got != "alice} is here" {
		t.Errorf("of a log that was not cut: %q", got)
	}
}

// A program may be stopped, and a long line be read, in the middle of a flag.
func TestFlagThatHasBegun(t *testing.T) {
	c := newCensor(secretFlag)
	for _, notation := range notations(secretFlag) {
		for until := 1; until < len(notation); until++ {
			if got := c.log([]byte("said "+secretFlag+"\n"+notation[:until]), false); got != "said <flag>\n" {
				t.Fatalf("of %q, of which %d were written: %q", notation, until, got)
			}
		}
	}
	if got := c.log([]byte("a flag\n"), false); got != "a flag\n" {
		t.Errorf("of a line that has ended: %q", got)
	}
}

// A kubelet keeps the last 4,096 bytes of what a program said at its end.
func TestFlagThatWasCutInLastWords(t *testing.T) {
	for _, flag := range []string{secretFlag, "flag{gr\u00fcezi_🐐_mitenand}"} {
		c := newCensor(flag)
		for from := 1; from < len(flag); from++ {
			said := flag[from:] + "\n" + strings.Repeat(".", maxTermination)
			if got := c.lastWords(said[:maxTermination]); strings.Trim(got, ".") != "\n" {
				t.Fatalf("of %q, cut after %d: %.30q", flag, from, got)
			}
		}
	}
	if got := newCensor(secretFlag).lastWords("alice?+} is here"); got != "alice?+} is here" {
		t.Errorf("of what was not cut: %q", got)
	}
}

// Where a runtime breaks short lines for the file, a log of many lines may begin within a flag.
func TestALongLogMayBeginWithinAFlag(t *testing.T) {
	text := "alice?+}\n" + strings.Repeat("x\n", manyLines/2)
	var recorded bergv1.RecordedContainer
	addLog(&recorded, Log{Raw: []byte(text), Before: []byte(text)}, newCensor(secretFlag))
	if strings.Contains(recorded.Log, "alice") || recorded.LogCut {
		t.Errorf("cut %t: %.40q", recorded.LogCut, recorded.Log)
	}
}

func TestCensorOfTwoFlags(t *testing.T) {
	c := newCensor("flag{inner}", "outer_flag{inner}_more")
	if got := c.text("a outer_flag{inner}_more b flag{inner} c"); got != "a <flag> b <flag> c" {
		t.Error(got)
	}
	if newCensor("", "").short || newCensor("").maxBytes() != 0 {
		t.Error("without a flag there is nothing to be taken out")
	}
	if !newCensor("abc").short {
		t.Error("a flag of three letters is not distinguished from words")
	}
}

func TestHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc":           "a\tb\nc",
		"a\r\nb":            "a\nb",
		"a\rb":              "a�b",
		"\x1b]0;title\x07x": "�]0;title�x",
		"\u009b31m":         "�31m",
		"\xff\xfeab":        "�ab",
		"a\u202eb\u2066c":   "a�b�c",
		"grüezi 🐐":          "grüezi 🐐",
	} {
		if got := stripControl(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	// What stood between the letters of a flag stays: they do not become one.
	if got := newCensor(secretFlag).log([]byte("flag{0nly_for\x00/alice?+}"), false); strings.Contains(got, secretFlag) {
		t.Errorf("%q", got)
	}
}

func TestEndAndBeginningAreWholeCharacters(t *testing.T) {
	text := strings.Repeat("é", 10)
	for maxCount := range len(text) + 2 {
		last, cut := end(text, maxCount)
		first := beginning(text, maxCount)
		if !utf8.ValidString(last) || !utf8.ValidString(first) || len(last) > maxCount || len(first) > maxCount || cut != (maxCount < len(text)) {
			t.Errorf("%d: %q, %t, %q", maxCount, last, cut, first)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	for _, size := range []int{1, 3, 7, 10, 11, 25, 40} {
		whole := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz\n", 5)
		kept := tail{limit: 10}
		for from := 0; from < len(whole); from += size {
			_, _ = kept.Write([]byte(whole[from:min(len(whole), from+size)]))
			if want := whole[max(0, min(len(whole), from+size)-10):min(len(whole), from+size)]; string(kept.bytes()) != want {
				t.Fatalf("by %d, at %d: %q, want %q", size, from, kept.bytes(), want)
			}
			if cap(kept.kept) > 100 {
				t.Fatalf("holds %d bytes", cap(kept.kept))
			}
		}
		if !kept.cut() || kept.lines != 5 || kept.written != int64(len(whole)) {
			t.Errorf("by %d: %+v", size, kept)
		}
	}
}
