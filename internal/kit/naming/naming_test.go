package naming

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 52) + "." + strings.Repeat("b", 11)
	for _, s := range []string{"", "short", strings.Repeat("a", 63), strings.Repeat("a", 64), long} {
		got := LabelValue(s)
		if msgs := validation.IsValidLabelValue(got); len(msgs) > 0 {
			t.Errorf("LabelValue(%q) = %q: %v", s, got, msgs)
		}
		if len(s) <= MaxLabelValue && got != s {
			t.Errorf("LabelValue(%q) = %q, want it unchanged", s, got)
		}
	}
	if LabelValue(strings.Repeat("a", 63)+"x") == LabelValue(strings.Repeat("a", 63)+"y") {
		t.Error("two long names share one value")
	}
}

func TestWithin(t *testing.T) {
	for _, maxBytes := range []int{12, 56, 246} {
		long := strings.Repeat("a", maxBytes+1)
		if got := Within(long, maxBytes); len(got) != maxBytes || got == Within(long+"b", maxBytes) {
			t.Errorf("Within(%q, %d) = %q", long, maxBytes, got)
		}
		if got := Within(long[1:], maxBytes); got != long[1:] {
			t.Errorf("Within(%q, %d) = %q, want it unchanged", long[1:], maxBytes, got)
		}
	}
}

func TestHashed(t *testing.T) {
	for _, s := range []string{"a-b-c", strings.Repeat("a", 80)} {
		got := Hashed(s, "a", 56)
		if len(got) > 56 || len(validation.IsDNS1123Label(got)) > 0 {
			t.Errorf("Hashed(%q) = %q", s, got)
		}
		if got != Hashed(s, "a", 56) || got == Hashed(s, "a-b", 56) || got == Within(s, 56) {
			t.Errorf("Hashed(%q) = %q does not depend on the distinction alone", s, got)
		}
	}
}

func TestSentencesHaveNoRegularExpression(t *testing.T) {
	for _, problems := range [][]string{validation.IsDNS1123Subdomain("A_1"), validation.IsDNS1123Label("A_1"), validation.IsValidLabelValue("a b"), validation.IsQualifiedName("a b")} {
		for _, problem := range problems {
			if got := Sentence(problem); strings.Contains(got, "regex") || !strings.HasSuffix(got, "character") {
				t.Errorf("%q", got)
			}
		}
	}
	if got := Sentence("must be no more than 63 bytes"); got != "must be no more than 63 bytes" {
		t.Error(got)
	}
}
