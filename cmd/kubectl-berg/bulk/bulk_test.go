package bulk

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bergctf/berg-operator/cmd/kubectl-berg/console"
)

func TestTheExitCodeOfARun(t *testing.T) {
	forbidden, failed := Told{Code: console.ExitForbidden}, Told{Code: console.ExitFailed}
	for name, tc := range map[string]struct {
		report Report
		err    error
		code   int
		again  bool
	}{
		"all done":           {Report{Total: 1, Done: 1}, nil, console.ExitOK, false},
		"some failed":        {Report{Total: 2, Done: 1, Failed: []Told{failed}}, nil, console.ExitPartly, true},
		"none is allowed":    {Report{Total: 2, Failed: []Told{forbidden, forbidden}}, nil, console.ExitForbidden, false},
		"some are allowed":   {Report{Total: 2, Done: 1, Failed: []Told{forbidden}}, nil, console.ExitForbidden, false},
		"one of each":        {Report{Total: 2, Failed: []Told{forbidden, failed}}, nil, console.ExitPartly, true},
		"interrupted":        {Report{Total: 2, Unreached: 2}, context.Canceled, console.ExitInterrupted, true},
		"no answer any more": {Report{Total: 2, Unreached: 2}, console.Errorf(console.ExitUnreachable, "no answer"), console.ExitUnreachable, true},
		"stopped":            {Report{Total: 2, Unreached: 2}, errors.New("stopped"), console.ExitPartly, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := Show(console.New(nil, &out, &out, func(string) string { return "" }), tc.report, "done", "Once more.", tc.err)
			if got := console.Code(err); got != tc.code {
				t.Errorf("exit code %d, want %d: %v", got, tc.code, err)
			}
			if err != nil && strings.Contains(err.Error(), "Once more.") != tc.again {
				t.Errorf("%v", err)
			}
		})
	}
}
