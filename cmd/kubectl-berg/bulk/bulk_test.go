package bulk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func TestExitCodeOfARun(t *testing.T) {
	forbidden, failed := Item{Code: console.ExitForbidden}, Item{Code: console.ExitFailed}
	for name, tc := range map[string]struct {
		report Report
		err    error
		code   int
		hint   bool
	}{
		"all done":         {Report{Total: 1, Done: 1}, nil, console.ExitOK, false},
		"some failed":      {Report{Total: 2, Done: 1, Failed: []Item{failed}}, nil, console.ExitPartly, true},
		"none is allowed":  {Report{Total: 2, Failed: []Item{forbidden, forbidden}}, nil, console.ExitForbidden, false},
		"some are allowed": {Report{Total: 2, Done: 1, Failed: []Item{forbidden}}, nil, console.ExitForbidden, false},
		"one of each":      {Report{Total: 2, Failed: []Item{forbidden, failed}}, nil, console.ExitPartly, true},
		"interrupted":      {Report{Total: 2, Unreached: 2}, context.Canceled, console.ExitInterrupted, true},
		"no answer":        {Report{Total: 2, Unreached: 2}, console.Errorf(console.ExitUnreachable, "no answer"), console.ExitUnreachable, true},
		"stopped":          {Report{Total: 2, Unreached: 2}, errors.New("stopped"), console.ExitPartly, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Show(console.New(nil, &out, &out, func(string) string { return "" }), tc.report, "done", "Once more.", tc.err)
			if got := console.Code(err); got != tc.code {
				t.Errorf("exit code %d, want %d: %v", got, tc.code, err)
			}
			if err != nil && strings.Contains(err.Error(), "Once more.") != tc.hint {
				t.Errorf("%v", err)
			}
		})
	}
}
