package outcome

import (
	"errors"
	"testing"
)

func TestProblems(t *testing.T) {
	down := errors.New("connection refused")
	first := &Problem{Condition: "A", Class: Waiting}
	var all Problems
	for _, p := range []*Problem{nil, first, {Condition: "B", Class: Retry, Err: down}, {Condition: "A", Class: Blocked}} {
		all.Add(p)
	}
	if len(all) != 2 || all.First() != first || all.On("A") != first || all.On("C") != nil {
		t.Errorf("problems %+v", all)
	}
	if err := all.Err(); !errors.Is(err, down) {
		t.Errorf("error %v", err)
	}
	if all.Stale() {
		t.Error("nothing is stale")
	}
	if all.Add(&Problem{Condition: "C", Class: Stale}); !all.Stale() {
		t.Error("a stale observation is not noticed")
	}
	var none Problems
	if none.First() != nil || none.Err() != nil || none.Stale() {
		t.Error("no problems are problems")
	}
}

func TestNewProblem(t *testing.T) {
	if p := NewProblem("A", nil); p != nil {
		t.Errorf("a success is the problem %+v", p)
	}
	for name, tc := range map[string]struct {
		err    error
		class  Class
		reason string
	}{
		"conflict":    {conflict, Stale, ReasonWaiting},
		"observed":    {ErrConflict, Stale, ReasonWaiting},
		"not served":  {unknown, External, ReasonAPINotInstalled},
		"not reached": {errors.New("connection refused"), Retry, ReasonWriteFailed},
	} {
		if p := NewProblem("A", tc.err); p.Condition != "A" || p.Class != tc.class || p.Reason != tc.reason || p.Message == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
