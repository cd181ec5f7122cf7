package identity

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWhenGranted(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("no right"))
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", errors.New("a policy denied it"))
	refused.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "a policy denied it"}}
	other := errors.New("no answer")
	for name, tc := range map[string]struct {
		answers []error // the last one repeats
		calls   int
		want    error
	}{
		"granted":                      {[]error{nil}, 1, nil},
		"granted a moment later":       {[]error{forbidden, forbidden, nil}, 3, nil},
		"never granted":                {[]error{forbidden}, 4, forbidden},
		"the namespace is terminating": {[]error{terminating}, 1, terminating},
		"an admission policy refuses":  {[]error{refused}, 1, refused},
		"fails otherwise":              {[]error{forbidden, other}, 2, other},
	} {
		calls := 0
		err := WhenGranted(t.Context(), 4, func() error {
			calls++
			return tc.answers[min(calls, len(tc.answers))-1]
		})
		if calls != tc.calls || !errors.Is(err, tc.want) {
			t.Errorf("%s: %v after %d calls, want %v after %d", name, err, calls, tc.want, tc.calls)
		}
	}
}

func TestWhenGrantedEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := WhenGranted(ctx, 100, func() error {
		calls++
		cancel()
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	})
	if calls != 1 || !apierrors.IsForbidden(err) {
		t.Errorf("%v after %d calls", err, calls)
	}
}
