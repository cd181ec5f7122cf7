package flagexec

import (
	"strings"
	"testing"
)

func TestExposuresSeesWhatASearchWouldFind(t *testing.T) {
	const flag = "flag{7h3_qu1ck}"
	key := func(f func(byte) byte, text string) string {
		out := []byte(text)
		for i := range out {
			out[i] = f(out[i])
		}
		return string(out)
	}
	high := func(b byte) byte { return b ^ 0x80 }
	for name, c := range map[string]struct {
		flag, body string
		want       bool
	}{
		"nothing":                 {flag, "\x01\x90\xfe", false},
		"printable run":           {flag, "\x01abcd\x01", true},
		"three printable bytes":   {flag, "\x01abc\x01", false},
		"xor":                     {flag, "\x01" + key(high, "{7h3_") + "\x01", true},
		"xor, four bytes":         {flag, "\x01" + key(high, "{7h3") + "\x01", false},
		"add":                     {flag, key(func(b byte) byte { return b + 0x85 }, "7h3_q"), true},
		"xor, backwards":          {flag, key(high, "_3h7{"), true},
		"plain, not printable":    {"\x80\x81\x83\x87\x8f\x9f", "\x01\x83\x87\x8f\x9f\x01", true},
		"backwards, unprintable":  {"\x80\x81\x83\x87\x8f\x9f", "\x01\x9f\x8f\x87\x83\x01", true},
		"short flag":              {"\x80\x81", "\x01\x80\x81\x01", true},
		"short flag, backwards":   {"\x80\x81\x83", "\x01\x83\x81\x80\x01", true},
		"one byte":                {"\x80", "\x80", false},
		"repeated, under any key": {strings.Repeat("a", 16), strings.Repeat("\x00", 16), false},
	} {
		t.Run(name, func(t *testing.T) {
			image := strings.Repeat("\x00", headersSize) + c.body
			if got := exposures([]byte(image), c.flag) > 0; got != c.want {
				t.Errorf("exposed %v, want %v", got, c.want)
			}
		})
	}
	if exposures([]byte("abcd"+strings.Repeat("\x00", headersSize)), flag) == 0 {
		t.Error("a printable run in the headers went unseen")
	}
}
