package flags

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// bits is a source of random bytes that repeats some.
func bits(repeated ...byte) *bytes.Reader { return bytes.NewReader(bytes.Repeat(repeated, 1024)) }

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		spec   bergv1.ChallengeSpec
		random *bytes.Reader
		want   string
	}{
		"without a mode every instance has the flag of the Challenge": {bergv1.ChallengeSpec{Flag: "flag{same}"}, bits(1), "flag{same}"},
		"suffix goes before the closing brace":                        {bergv1.ChallengeSpec{Flag: "flag{a}", DynamicFlagMode: "suffix"}, bits(0xab), "flag{a_abababababab}"},
		"suffix of a flag without braces goes to its end":             {bergv1.ChallengeSpec{Flag: "plain", DynamicFlagMode: "suffix"}, bits(0xab), "plain_abababababab"},
		"leetify swaps what is inside the braces":                     {bergv1.ChallengeSpec{Flag: "flag{aegilorst_xyz}", DynamicFlagMode: "leetify"}, bits(1), "flag{439110257_xyz}"},
		"leetify keeps a letter with probability one half":            {bergv1.ChallengeSpec{Flag: "flag{tttt}", DynamicFlagMode: "leetify"}, bits(0, 1), "flag{t7t7}"},
		"leetify of a flag without braces swaps all of it":            {bergv1.ChallengeSpec{Flag: "flag", DynamicFlagMode: "leetify"}, bits(1), "f149"},
		"leetify keeps every other character":                         {bergv1.ChallengeSpec{Flag: "flag{ÄÖ€A}", DynamicFlagMode: "leetify"}, bits(1), "flag{ÄÖ€A}"},
		"a format alone gets a random flag":                           {bergv1.ChallengeSpec{FlagFormat: "openECSC{...}"}, bits(1), "openECSC{" + strings.Repeat("01", 16) + "}"},
		"a format with empty braces too":                              {bergv1.ChallengeSpec{FlagFormat: "x{}"}, bits(1), "x{" + strings.Repeat("01", 16) + "}"},
		"neither flag nor format":                                     {bergv1.ChallengeSpec{}, bits(1), "flag{" + strings.Repeat("01", 16) + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := from(tc.random, &bergv1.Challenge{Spec: tc.spec})
			if err != nil || got != tc.want {
				t.Errorf("%q, %v: want %q", got, err, tc.want)
			}
		})
	}
}

func TestFlagsOfTwoInstancesDiffer(t *testing.T) {
	shape := regexp.MustCompile(`^flag\{s_[0-9a-f]{12}\}$`)
	c := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Flag: "flag{s}", DynamicFlagMode: "suffix"}}
	one, errOne := Make(c)
	two, errTwo := Make(c)
	if errOne != nil || errTwo != nil || one == two || !shape.MatchString(one) || !shape.MatchString(two) {
		t.Errorf("%q (%v) and %q (%v): want two different flags like flag{s_0123456789ab}", one, errOne, two, errTwo)
	}
}

func TestAFlagThatCannotBeMadeIsAnError(t *testing.T) {
	for _, mode := range []bergv1.DynamicFlagMode{"suffix", "leetify"} {
		c := &bergv1.Challenge{Spec: bergv1.ChallengeSpec{Flag: "flag{s}", DynamicFlagMode: mode}}
		if flag, err := from(bytes.NewReader(nil), c); err == nil {
			t.Errorf("%s made %q without random bytes", mode, flag)
		}
	}
}
