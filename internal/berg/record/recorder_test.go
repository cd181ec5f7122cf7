package record

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusedForGood(t *testing.T) {
	kind := schema.GroupResource{Group: "berg.norelect.ch", Resource: "challengeinstancerecords"}
	for name, tc := range map[string]struct {
		err   error
		tries int
		want  bool
	}{
		"no namespace":                     {apierrors.NewNotFound(kind, "a"), 1, true},
		"not valid":                        {apierrors.NewBadRequest("a"), 1, true},
		"no right, or none yet":            {apierrors.NewForbidden(kind, "a", nil), 1, false},
		"no right, three seconds later":    {apierrors.NewForbidden(kind, "a", nil), 4, true},
		"the API server cannot be reached": {errors.New("connection refused"), 4, false},
	} {
		if got := refusedForGood(tc.err, tc.tries); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
