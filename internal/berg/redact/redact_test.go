package redact

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
)

func TestRedact(t *testing.T) {
	for _, tc := range []struct{ text, flag, want string }{
		{"env FLAG=flag{a} is bad", "flag{a}", "env FLAG=<flag> is bad"},
		{`Invalid value: "flag{\"\n}"`, "flag{\"\n}", `Invalid value: "<flag>"`},
		{"env FLAG=flag{$$a$$} is bad", "flag{$a$}", "env FLAG=<flag> is bad"},
		{"a banana", "a", "a banana"},
		{"nothing here", "", "nothing here"},
	} {
		if got := Text(tc.text, tc.flag); got != tc.want {
			t.Errorf("Redact(%q, %q) = %q, want %q", tc.text, tc.flag, got, tc.want)
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
			if got := Text("refused: "+text+" is bad", flag); !strings.Contains(got, "<flag>") || !strings.HasPrefix(got, "refused: ") || !strings.HasSuffix(got, " is bad") {
				t.Errorf("%s of %q stays in %q", notation, flag, got)
			}
		}
	}
}

func TestErrorWithoutTheFlagKeepsItsKind(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "deployments"}, "web", errors.New("it is flag{secret} now"))
	instance := &bergv1.ChallengeInstance{Spec: bergv1.ChallengeInstanceSpec{Flag: "flag{secret}"}}
	err := Error(fmt.Errorf("update: %w", conflict), instance.Spec.Flag)
	if strings.Contains(err.Error(), "flag{secret}") || !strings.Contains(err.Error(), "<flag>") {
		t.Errorf("the text is %q", err)
	}
	if !apierrors.IsConflict(err) {
		t.Error("it is no conflict any more")
	}
	if err := Error(nil, instance.Spec.Flag); err != nil {
		t.Errorf("no error became %v", err)
	}
}
