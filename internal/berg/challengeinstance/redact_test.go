package challengeinstance

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
)

func TestRedact(t *testing.T) {
	for _, tc := range []struct{ text, flag, want string }{
		{"env FLAG=flag{a} is bad", "flag{a}", "env FLAG=<flag> is bad"},
		{`Invalid value: "flag{\"\n}"`, "flag{\"\n}", `Invalid value: "<flag>"`},
		{"env FLAG=flag{$$a$$} is bad", "flag{$a$}", "env FLAG=<flag> is bad"},
		{"a banana", "a", "a banana"},
		{"nothing here", "", "nothing here"},
	} {
		if got := redact(tc.text, tc.flag); got != tc.want {
			t.Errorf("redact(%q, %q) = %q, want %q", tc.text, tc.flag, got, tc.want)
		}
	}
}

func TestRedactFindsEveryNotation(t *testing.T) {
	for _, flag := range []string{
		"flag{plain_and_simple}",
		"flag{<&>\"quotes\"'\\ and lines\nthere}",
		"flag{grüezi_🐐_ciao}",
		"flag{100% of $HOME/+?=}",
	} {
		marshalled, err := json.Marshal(map[string]string{"FLAG": flag})
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{
			"raw": flag, "quoted": fmt.Sprintf("%q", flag), "quoted as ASCII": fmt.Sprintf("%+q", flag),
			"JSON": string(marshalled), "hex": hex.EncodeToString([]byte(flag)), "upper hex": fmt.Sprintf("%X", flag),
			"query": url.QueryEscape(flag), "path": url.PathEscape(flag),
		}
		for before := range 5 {
			around := strings.Repeat("x", before) + flag + "\n"
			texts[fmt.Sprintf("base64 after %d", before)] = base64.StdEncoding.EncodeToString([]byte(around))
			texts[fmt.Sprintf("URL-safe base64 after %d", before)] = base64.URLEncoding.EncodeToString([]byte(around))
		}
		for notation, text := range texts {
			if got := redact("refused: "+text+" is bad", flag); !strings.Contains(got, "<flag>") || !strings.HasPrefix(got, "refused: ") || !strings.HasSuffix(got, " is bad") {
				t.Errorf("%s of %q stays in %q", notation, flag, got)
			}
		}
	}
}

func TestErrorWithoutTheFlagKeepsItsKind(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("it is flag{secret} now"))
	instance := &bergv1.ChallengeInstance{Spec: bergv1.ChallengeInstanceSpec{Flag: "flag{secret}"}}
	err := withoutFlag(fmt.Errorf("update: %w", conflict), instance)
	if strings.Contains(err.Error(), "flag{secret}") || !strings.Contains(err.Error(), "<flag>") {
		t.Errorf("the text is %q", err)
	}
	if !apierrors.IsConflict(err) {
		t.Error("it is no conflict any more")
	}
	if err := withoutFlag(nil, instance); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestConditionsCutNoFlagInTwo(t *testing.T) {
	const flag = "flag{0123456789abcdef}"
	for before := 0; before < 2*conditions.MaxMessage; before += 3 {
		instance := testInstance(func(i *bergv1.ChallengeInstance) { i.Spec.Flag = flag })
		setConditions(instance, noon, condition("A", "False", "B", strings.Repeat("x ", before/2)+flag+strings.Repeat(" y", 2*conditions.MaxMessage)))
		c := instance.Status.Conditions[0]
		for where, text := range map[string]string{"condition": c.Message, "event": conditions.Note(note(instance, c))} {
			if strings.Contains(text, flag[:8]) || strings.Contains(text, flag[len(flag)-8:]) {
				t.Fatalf("%s, after %d: %s", where, before, text)
			}
		}
	}
}
