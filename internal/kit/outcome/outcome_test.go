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

func TestClassify(t *testing.T) {
	terminating := apierrors.NewForbidden(pods, "p", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err  error
		want Failure
	}{
		"foreign object":        {&ownership.RefusedError{}, NotOwned},
		"wrapped":               {fmt.Errorf("apply: %w", &ownership.RefusedError{}), NotOwned},
		"object going":          {&apply.TerminatingError{}, Terminating},
		"namespace going":       {terminating, Terminating},
		"kind not in discovery": {&meta.NoKindMatchError{}, NotInstalled},
		"method not served":     {apierrors.NewMethodNotSupported(pods, "create"), NotServed},
		"kind removed":          {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonNotFound}}, NotServed},
		"kind of one object":    {unknown, NotServed},
		"gone in between":       {gone, Conflict},
		"invalid":               {apierrors.NewInvalid(schema.GroupKind{}, "p", nil), Rejected},
		"quota":                 {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota")), Rejected},
		"webhook":               {apierrors.NewBadRequest("denied"), Rejected},
		"conflict":              {conflict, Conflict},
		"down":                  {errors.New("connection refused"), Failed},
	} {
		if got := Classify(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestResult(t *testing.T) {
	down := errors.New("connection refused")
	for name, tc := range map[string]struct {
		requeueAfter time.Duration
		err          error
		want         time.Duration
		failed       bool
	}{
		"done":                    {0, nil, 0, false},
		"done, with a deadline":   {time.Hour, nil, time.Hour, false},
		"went away":               {0, WrapNotFound(gone), 0, false},
		"went away, with others":  {0, errors.Join(down, WrapNotFound(gone)), 0, false},
		"something of it is gone": {0, gone, minDelay, true},
		"its kind is not known":   {0, WrapNotFound(unknown), minDelay, true},
		"a kind is not known":     {time.Hour, fmt.Errorf("sweep: %w", unknown), minDelay, true},
		"conflict":                {0, conflict, minDelay, false},
		"raced":                   {0, fmt.Errorf("apply: %w", ErrConflict), minDelay, false},
		"failed":                  {0, down, minDelay, true},
		"failed, deadline later":  {time.Hour, down, minDelay, true},
		"failed, deadline sooner": {time.Millisecond, down, time.Millisecond, true},
	} {
		got, failed := NewBackoff().Result(context.Background(), ctrl.Request{}, tc.requeueAfter, tc.err)
		if got.RequeueAfter != tc.want || (failed != nil) != tc.failed {
			t.Errorf("%s: again after %s, failed %v; want %s, %v", name, got.RequeueAfter, failed, tc.want, tc.failed)
		}
	}
}

func TestDelaysGrowAndAreForgotten(t *testing.T) {
	backoff, down := NewBackoff(), errors.New("connection refused")
	one, other := ctrl.Request{NamespacedName: types.NamespacedName{Name: "one"}}, ctrl.Request{}
	var last time.Duration
	for range 20 {
		result, _ := backoff.Result(context.Background(), one, 0, down)
		if result.RequeueAfter < last || result.RequeueAfter > maxDelay {
			t.Fatalf("a delay of %s after one of %s", result.RequeueAfter, last)
		}
		last = result.RequeueAfter
	}
	if last != maxDelay {
		t.Errorf("the maximum delay is %s", last)
	}
	if result, _ := backoff.Result(context.Background(), other, 0, down); result.RequeueAfter != minDelay {
		t.Errorf("another waits %s", result.RequeueAfter)
	}
	_, _ = backoff.Result(context.Background(), one, 0, nil)
	if result, _ := backoff.Result(context.Background(), one, 0, down); result.RequeueAfter != minDelay {
		t.Errorf("after a success it waits %s", result.RequeueAfter)
	}
}

func TestDelaysAreNotInherited(t *testing.T) {
	backoff, down := NewBackoff(), errors.New("connection refused")
	name := ctrl.Request{NamespacedName: types.NamespacedName{Name: "one"}}
	delay := func(uid types.UID, err error) time.Duration {
		backoff.ResetIfReplaced(name, uid)
		result, _ := backoff.Result(context.Background(), name, 0, err)
		return result.RequeueAfter
	}
	delay("first", down)
	if got := delay("first", down); got != 2*minDelay {
		t.Errorf("the second delay is %s", got)
	}
	if got := delay("second", down); got != minDelay {
		t.Errorf("another one of that name waits %s", got)
	}
	delay("second", WrapNotFound(gone))
	backoff.uids.Range(func(req, _ any) bool {
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
