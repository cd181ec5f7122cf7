package identity

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRetry(t *testing.T) {
	away := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "selfsubjectaccessreviews"}, "", errors.New("no"))
	for name, tc := range map[string]struct {
		answers []error // the last one repeats
		want    error
		after   time.Duration
	}{
		"immediately":         {[]error{nil}, nil, 0},
		"after some trouble":  {[]error{away, away, away, nil}, nil, 3 * interval},
		"a refusal is enough": {[]error{away, forbidden, nil}, forbidden, interval},
		"it stays away":       {[]error{away}, away, timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			asked := 0
			err := Retry(t.Context(), func(context.Context) error {
				asked++
				return tc.answers[min(asked, len(tc.answers))-1]
			})
			if took := time.Since(began); !errors.Is(err, tc.want) || took != tc.after {
				t.Errorf("%s: %v after %s", name, err, took)
			}
		})
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := Retry(ended, func(context.Context) error { return away }); err == nil {
		t.Error("Retry returns no error after its context has ended")
	}
}

func TestInWords(t *testing.T) {
	for want, right := range map[string]authorizationv1.ResourceAttributes{
		"list nodes": {Verb: "list", Resource: "nodes"},
		"patch challenges.berg.norelect.ch/status": {Verb: "patch", Group: "berg.norelect.ch", Resource: "challenges", Subresource: "status"},
		"create jobs.batch in namespace a":         {Verb: "create", Group: "batch", Resource: "jobs", Namespace: "a"},
	} {
		if got := inWords(right); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
