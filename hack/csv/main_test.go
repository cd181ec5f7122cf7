package main

import (
	"strings"
	"testing"
)

const text = `metadata:
  annotations:
    alm-examples: '[{"kind":"Basket","metadata":{"name":"a<b"}},{"kind":"Apple","metadata":{"name":"1"}},{"kind":"Apple","metadata":{"name":"0"}}]'
spec:
  customresourcedefinitions:
    owned:
    - kind: Apple
      specDescriptors:
      - path: git.secretRef
      - path: git.secretRef.name
      - path: project.name
    - kind: Basket
`

func TestFinished(t *testing.T) {
	for _, test := range []struct {
		kinds []string
		want  []string
	}{
		{[]string{"Apple", "Basket"}, []string{`"name": "1"`, `"name": "0"`, `"name": "a<b"`, "- kind: Apple", "- kind: Basket"}},
		{[]string{"Basket", "Apple"}, []string{`"name": "a<b"`, `"name": "1"`, `"name": "0"`, "- kind: Basket", "- kind: Apple"}},
	} {
		got, err := finished([]byte(text), test.kinds)
		if err != nil {
			t.Fatal(err)
		}
		rest := string(got)
		for _, want := range test.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("%q: %q is missing or at the wrong place in\n%s", test.kinds, want, got)
			}
			rest = after
		}
		if n := strings.Count(string(got), choice); n != 1 || !strings.Contains(string(got), "path: git.secretRef.name\n        x-descriptors:\n        - "+choice) {
			t.Errorf("%d fields are marked as Secrets, want git.secretRef.name:\n%s", n, got)
		}
	}
}

func TestKindWithoutAPlace(t *testing.T) {
	if _, err := finished([]byte(text), []string{"Apple"}); err == nil || !strings.Contains(err.Error(), "Basket") {
		t.Errorf("got %v, want an error about Basket", err)
	}
}
