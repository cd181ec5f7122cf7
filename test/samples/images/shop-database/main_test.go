package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	s := &store{lists: map[string][]string{}}
	for _, step := range []struct{ request, want string }{
		{"ALL reviews", "OK"},
		{`ADD reviews "good\ncheese"`, "OK"},
		{`ADD reviews "bad"`, "OK"},
		{"ALL reviews", `OK "good\ncheese" "bad"`},
		{"ALL visitors", "OK"},
		{"ADD reviews good", "ERR the text is not quoted"},
		{"ADD", `ERR want ADD list "text" or ALL list`},
		{"DROP reviews", `ERR unknown request "DROP"`},
	} {
		if got := s.answer(step.request); got != step.want {
			t.Errorf("%s → %s, want %s", step.request, got, step.want)
		}
	}
	for i := range 2 * maxTexts {
		s.answer(fmt.Sprintf("ADD many \"%d\"", i))
	}
	texts := strings.Fields(s.answer("ALL many"))[1:]
	if len(texts) != maxTexts || texts[0] != `"50"` {
		t.Errorf("%d texts from %s on, want the last %d", len(texts), texts[0], maxTexts)
	}
}
