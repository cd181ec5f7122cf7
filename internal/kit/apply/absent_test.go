package apply

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhatA404IsAbout(t *testing.T) {
	namespaces := schema.GroupResource{Resource: "namespaces"}
	page := func(name string) error { // what a client makes of a page
		return apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodGet, namespaces, name, "404 page not found", 0, true)
	}
	for name, tc := range map[string]struct {
		err             error
		absent, unknown bool
	}{
		"the object":                    {apierrors.NewNotFound(namespaces, "n"), true, false},
		"the object, wrapped":           {fmt.Errorf("look: %w", apierrors.NewNotFound(namespaces, "n")), true, false},
		"the kind, in a list":           {page(""), false, true},
		"the kind, of one object":       {page("n"), false, true},
		"the kind, in the API's words":  {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}, false, true},
		"the kind, of an object unsaid": {apierrors.NewNotFound(namespaces, ""), false, true},
		"another answer":                {apierrors.NewConflict(namespaces, "n", errors.New("changed")), false, false},
		"no answer":                     {errors.New("connection refused"), false, false},
		"no error":                      {nil, false, false},
	} {
		if got := Absent(tc.err); got != tc.absent {
			t.Errorf("%s: Absent = %v", name, got)
		}
		if got := KindUnknown(tc.err); got != tc.unknown {
			t.Errorf("%s: KindUnknown = %v", name, got)
		}
		if got := IgnoreAbsent(tc.err); (got == nil) != (tc.absent || tc.err == nil) {
			t.Errorf("%s: IgnoreAbsent = %v", name, got)
		}
	}
}
