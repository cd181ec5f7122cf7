package redact

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A Set removes what the patterns of its flags remove one by one.
func TestASetRemovesWhatItsPatternsDo(t *testing.T) {
	var flags []string
	var texts strings.Builder
	for _, language := range []string{"python", "javascript", "perl"} {
		data, err := os.ReadFile("testdata/" + language + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Flag  string
			Texts map[string]string
		}
		if err := json.Unmarshal(data, &all); err != nil {
			t.Fatal(err)
		}
		for _, of := range all {
			flags = append(flags, of.Flag)
			for encoder, text := range of.Texts {
				fmt.Fprintf(&texts, "%s of %s: %s\n", encoder, language, text)
			}
		}
	}
	for n := range 300 {
		flags = append(flags, fmt.Sprintf("flag{%d_of_many}", n))
		fmt.Fprintf(&texts, "flag{%d_of_many} flag%%7b%d_of_many%%7D and flag{%d_of\n", n, n, n)
	}
	flags = append(flags, "", "abc", "漢字の旗")
	texts.WriteString("abc \\u6f22\\u5b57\\u306e\\u65d7 the end")
	got := NewSet(flags...).Remove(texts.String())
	for _, flag := range flags {
		if cleaned := Text(got, flag); cleaned != got {
			t.Errorf("%q stays", flag)
		}
	}
	if strings.Count(got, Mark) < 700 || !strings.HasSuffix(got, "abc "+Mark+" the end") {
		t.Errorf("%d removed: %q", strings.Count(got, Mark), got)
	}
	if text := "nothing"; NewSet().Remove(text) != text {
		t.Error("an empty set removes something")
	}
}

func TestASetRemovesTheBeginningOfAFlagAtTheEnd(t *testing.T) {
	s := NewSet("flag{one_of_two}", "other")
	for text, want := range map[string]string{
		"a flag{one_of": "a " + Mark, "a flag%7bone_": "a " + Mark, "flag{one_of_two} and flag{one": Mark + " and " + Mark, "flag{one_or more": "flag{one_or more",
		"a fl": "a fl", "an oth": "an oth", "an othe": "an " + Mark, "": "",
	} {
		if got := s.RemoveCut(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	line := `{"level":"info","ts":"2030-06-01T12:00:00Z","logger":"challengeinstance","msg":"The instance is running","namespace":"berg","name":"alice-guestbook","flags":3}` + "\n"
	text := strings.Repeat(line, 1<<20/len(line))
	for name, format := range map[string]string{"alike": "flag{%032[1]x}%.0[2]d", "random": "%[2]x-%08[1]d-0000"} {
		flags := make([]string, 0, 1000)
		for n := range 1000 {
			flags = append(flags, fmt.Sprintf(format, n, n*2654435761%(1<<32)))
		}
		set := NewSet(flags...)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				set.Remove(text)
			}
		})
	}
}
