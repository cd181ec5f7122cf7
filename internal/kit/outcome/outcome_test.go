package outcome

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

var (
	pods     = schema.GroupResource{Resource: "pods"}
	conflict = apierrors.NewConflict(pods, "p", errors.New("changed"))
	gone     = apierrors.NewNotFound(pods, "p")
	unknown  = apierrors.NewGenericServerResponse(http.StatusNotFound, http.MethodPatch, pods, "p", "404 page not found", 0, true)
)

func TestCauseOf(t *testing.T) {
	terminating := apierrors.NewForbidden(pods, "p", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err  error
		want Cause
	}{
		"foreign object":        {&ownership.RefusedError{}, NotOurs},
		"wrapped":               {fmt.Errorf("apply: %w", &ownership.RefusedError{}), NotOurs},
		"object going":          {&apply.TerminatingError{}, Going},
		"namespace going":       {terminating, Going},
		"kind not in discovery": {&meta.NoKindMatchError{}, NotInstalled},
		"method not served":     {apierrors.NewMethodNotSupported(pods, "create"), NotServed},
		"kind removed":          {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}, NotServed},
		"kind of one object":    {unknown, NotServed},
		"gone meanwhile":        {gone, Overtaken},
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{}, "p", nil), Rejected},
		"quota":                 {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota")), Rejected},
		"webhook":               {apierrors.NewBadRequest("denied"), Rejected},
		"conflict":              {conflict, Overtaken},
		"down":                  {errors.New("connection refused"), Failed},
	} {
		if got := CauseOf(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestResult(t *testing.T) {
	down := errors.New("connection refused")
	for name, tc := range map[string]struct {
		wakeUp time.Duration
		err    error
		want   time.Duration
		failed bool
	}{
		"done":                    {0, nil, 0, false},
		"done, with a deadline":   {time.Hour, nil, time.Hour, false},
		"went away":               {0, Itself(gone), 0, false},
		"went away, beside more":  {0, errors.Join(down, Itself(gone)), 0, false},
		"something of it is gone": {0, gone, firstPause, true},
		"its kind is not known":   {0, Itself(unknown), firstPause, true},
		"a kind is not known":     {time.Hour, fmt.Errorf("sweep: %w", unknown), firstPause, true},
		"conflict":                {0, conflict, firstPause, false},
		"raced":                   {0, fmt.Errorf("apply: %w", ErrRaced), firstPause, false},
		"failed":                  {0, down, firstPause, true},
		"failed, deadline later":  {time.Hour, down, firstPause, true},
		"failed, deadline sooner": {time.Millisecond, down, time.Millisecond, true},
	} {
		got, failed := NewBackoff().Result(context.Background(), ctrl.Request{}, tc.wakeUp, tc.err)
		if got.RequeueAfter != tc.want || (failed != nil) != tc.failed {
			t.Errorf("%s: again after %s, failed %v; want %s, %v", name, got.RequeueAfter, failed, tc.want, tc.failed)
		}
	}
}

func TestPausesGrowAndAreForgotten(t *testing.T) {
	backoff, down := NewBackoff(), errors.New("connection refused")
	one, other := ctrl.Request{NamespacedName: types.NamespacedName{Name: "one"}}, ctrl.Request{}
	var last time.Duration
	for range 20 {
		result, _ := backoff.Result(context.Background(), one, 0, down)
		if result.RequeueAfter < last || result.RequeueAfter > longestPause {
			t.Fatalf("a pause of %s after one of %s", result.RequeueAfter, last)
		}
		last = result.RequeueAfter
	}
	if last != longestPause {
		t.Errorf("the longest pause is %s", last)
	}
	if result, _ := backoff.Result(context.Background(), other, 0, down); result.RequeueAfter != firstPause {
		t.Errorf("another waits %s", result.RequeueAfter)
	}
	_, _ = backoff.Result(context.Background(), one, 0, nil)
	if result, _ := backoff.Result(context.Background(), one, 0, down); result.RequeueAfter != firstPause {
		t.Errorf("after a success it waits %s", result.RequeueAfter)
	}
}

func TestPausesAreNotInherited(t *testing.T) {
	backoff, down := NewBackoff(), errors.New("connection refused")
	name := ctrl.Request{NamespacedName: types.NamespacedName{Name: "one"}}
	pause := func(uid types.UID, err error) time.Duration {
		backoff.Meet(name, uid)
		result, _ := backoff.Result(context.Background(), name, 0, err)
		return result.RequeueAfter
	}
	pause("first", down)
	if got := pause("first", down); got != 2*firstPause {
		t.Errorf("the second pause is %s", got)
	}
	if got := pause("second", down); got != firstPause {
		t.Errorf("another one of that name waits %s", got)
	}
	pause("second", Itself(gone))
	backoff.met.Range(func(req, _ any) bool {
		t.Errorf("%v is remembered", req)
		return true
	})
}

func TestShutdownIsNoFailure(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	result, failed := NewBackoff().Result(ctx, ctrl.Request{}, time.Hour, ctx.Err())
	if failed != nil || !result.IsZero() {
		t.Errorf("result %+v, failed %v", result, failed)
	}
}
