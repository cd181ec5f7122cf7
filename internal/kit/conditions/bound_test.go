package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestShorten(t *testing.T) {
	for _, tc := range []struct {
		text     string
		maxBytes int
		want     string
	}{
		{"", 10, ""},
		{"0123456789", 10, "0123456789"},
		{"0123456789a", 10, "0123…89a"},
		{"what is wrong: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: what to do", 36, "what is wrong: xxxxxxx… what to do"},
		{"ääääääääää", 10, "ää…ä"},
		{"🐐🐐🐐🐐🐐", 13, "🐐…🐐"},
		{"a\xffb", 10, "a\uFFFDb"},
	} {
		if got := Shorten(tc.text, tc.maxBytes); got != tc.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", tc.text, tc.maxBytes, got, tc.want)
		}
	}
}

// Wherever the text is cut.
func TestShortenedTextsAreWhole(t *testing.T) {
	for _, character := range []string{"x", "ä ", "…", "🐐", "x\xff "} {
		for shift := range 4 {
			text := strings.Repeat(".", shift) + strings.Repeat(character, 40000)
			for _, maxBytes := range []int{MaxMessage, MaxNote, MaxValue} {
				got := Shorten(text, maxBytes)
				if len(got) > maxBytes || len(got) < maxBytes-10 || !utf8.ValidString(got) || !strings.Contains(got, ellipsis) {
					t.Errorf("%q to %d: %d bytes, valid %v", character, maxBytes, len(got), utf8.ValidString(got))
				}
			}
			for maxBytes, cut := range map[int]func(string) string{MaxMessage: Bound, MaxNote: Note, MaxValue: Value} {
				got := cut(text)
				if len(got) > maxBytes || !utf8.ValidString(got) || !strings.Contains(got, ellipsis) {
					t.Errorf("%q to %d: %d bytes, valid %v", character, maxBytes, len(got), utf8.ValidString(got))
				}
				if again := cut(got); again != got {
					t.Errorf("%q to %d: another one the second time", character, maxBytes)
				}
			}
		}
	}
}

// An answer of the API server about several fields quotes the whole value each time.
func TestEveryQuotedValueIsShortened(t *testing.T) {
	long := strings.Repeat("ä", 40000)
	text := `[metadata.labels: Invalid value: "` + long + `": must be no more than 63 bytes, metadata.labels: Invalid value: "` + long + `": must consist of letters]`
	for name, cut := range map[string]func(string) string{"Bound": Bound, "Note": Note} {
		got := cut(text)
		for _, want := range []string{`[metadata.labels: Invalid value: "ää`, `ä": must be no more than 63 bytes, metadata.labels: Invalid value: "ää`, `ä": must consist of letters]`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q is not in %s", name, want, got)
			}
		}
	}
	if short := "of image " + strings.Repeat("x", 300); Bound(short) != short {
		t.Error("a long word in a short text is cut")
	}
}

func TestEnumerate(t *testing.T) {
	for text, want := range map[string]string{
		"":              "",
		"a":             "a",
		"a,b,c,d,e":     "a, b, c, d, e",
		"a,b,c,d,e,f,g": "a, b, c, d, e and 2 more",
	} {
		var all []string
		if text != "" {
			all = strings.Split(text, ",")
		}
		if got := Enumerate(all); got != want {
			t.Errorf("Enumerate(%s) = %q, want %q", text, got, want)
		}
	}
}

func TestUpsertBoundsMessages(t *testing.T) {
	var all []metav1.Condition
	Upsert(&all, 1, time.Unix(0, 0), metav1.Condition{Type: "A", Status: metav1.ConditionFalse, Reason: "No", Message: strings.Repeat("x", 40000)})
	if got := len(all[0].Message); got > MaxMessage {
		t.Errorf("the message has %d bytes", got)
	}
}
