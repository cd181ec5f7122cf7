package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The files are what encoders of other languages write, made by the programs beside them.
func TestFlagsAsOtherLanguagesWriteThem(t *testing.T) {
	for _, language := range []string{"python", "javascript", "perl"} {
		data, err := os.ReadFile("testdata/" + language + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var all []struct {
			Flag  string
			Texts map[string]string
		}
		if err := json.Unmarshal(data, &all); err != nil || len(all) < 5 {
			t.Fatalf("%s: %d flags, %v", language, len(all), err)
		}
		for _, of := range all {
			for encoder, text := range of.Texts {
				checkRemoved(t, language+"'s "+encoder, text, of.Flag)
			}
		}
	}
}

func checkRemoved(t *testing.T, encoder, text, flag string) {
	t.Helper()
	got := Text("[before] "+text+"\n[after]", flag)
	if strings.Count(got, Mark) != 1 || !strings.HasPrefix(got, "[before] ") || !strings.HasSuffix(got, "[after]") {
		t.Errorf("%s of %q stays: %q becomes %q", encoder, flag, text, got)
	}
}

// A flag of any characters is found as Go's encoders write it, and with every character escaped at
// random.
func TestAnyFlagIsFoundInAnyEscape(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	characters := []rune("abcXYZ0189{}_-<>&\"'\\/%$#@!?+=~*()[]|;:,.^` \n\täß漢🐐")
	escapes := []func(r rune) string{
		func(r rune) string { return string(r) },
		func(r rune) string { return each(r, "%%%02x") }, func(r rune) string { return each(r, "%%%02X") }, func(r rune) string { return each(r, "%%25%02x") },
		func(r rune) string { return each(r, `\x%02x`) }, func(r rune) string { return each(r, "=%02X") },
		func(r rune) string { return fmt.Sprintf("&#%d;", r) }, func(r rune) string { return fmt.Sprintf("&#x%X;", r) }, func(r rune) string { return fmt.Sprintf("&amp;#%d;", r) },
		func(r rune) string { quoted := strconv.QuoteToASCII(string(r)); return quoted[1 : len(quoted)-1] },
		func(r rune) string { return fmt.Sprintf(`\u{%x}`, r) }, func(r rune) string { return fmt.Sprintf(`\U%08x`, r) },
	}
	for range 3000 {
		flag, mixed := "flag", "flag" // four characters are not for quotation
		for range 1 + random.IntN(20) {
			r := characters[random.IntN(len(characters))]
			flag += string(r)
			if escaped := escapes[random.IntN(len(escapes))](r); escaped != "" {
				mixed += escaped
			} else {
				mixed += string(r)
			}
		}
		marshalled, err := json.Marshal(flag)
		if err != nil {
			t.Fatal(err)
		}
		for encoder, text := range map[string]string{
			"random escapes": mixed, "QueryEscape": url.QueryEscape(flag), "PathEscape": url.PathEscape(flag), "html": html.EscapeString(flag),
			"template": template.HTMLEscapeString(flag), "JS": template.JSEscapeString(flag), "JSON": string(marshalled[1 : len(marshalled)-1]),
			"hex": hex.EncodeToString([]byte(flag)), "% x": fmt.Sprintf("% x", flag), "%#x": fmt.Sprintf("%#x", flag),
			"base64": base64.StdEncoding.EncodeToString([]byte("[x]" + flag)),
		} {
			if got := Text("[before]"+text+"[after]", flag); !strings.Contains(got, Mark) {
				t.Fatalf("%s of %q stays: %q", encoder, flag, got)
			}
		}
	}
}

// each formats the bytes of a character.
func each(r rune, format string) (out string) {
	for _, b := range []byte(string(r)) {
		out += fmt.Sprintf(format, b)
	}
	return out
}
