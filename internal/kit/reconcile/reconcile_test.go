package reconcile

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// counted returns how many reconciliations were counted, for how many seconds in all, and how many
// failed.
func counted(t *testing.T, m *Metrics) (reconciliations uint64, seconds, failed float64) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		switch m := family.GetMetric()[0]; family.GetName() {
		case "thing_reconcile_duration_seconds":
			reconciliations, seconds = m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
		case "thing_reconcile_errors_total":
			failed = m.GetCounter().GetValue()
		default:
			t.Errorf("a metric %s", family.GetName())
		}
	}
	return reconciliations, seconds, failed
}

func TestAPassIsMeasuredAndComesBack(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("written"))
	for name, tc := range map[string]struct {
		requeueAfter  time.Duration
		err           error
		again         bool
		count, failed int
	}{
		"done":                  {0, nil, false, 1, 0},
		"done, with a deadline": {time.Hour, nil, true, 1, 0},
		"failed":                {0, errors.New("connection refused"), true, 1, 1},
		"conflict":              {0, conflict, true, 1, 0},
		"gone":                  {0, outcome.ErrGone, false, 1, 0},
		"deferred":              {time.Hour, fmt.Errorf("not now: %w", ErrDeferred), false, 0, 0},
	} {
		clock := clocktesting.NewFakePassiveClock(noon)
		m := NewMetrics("thing", "Failures.")
		r := New(clock, outcome.NewBackoff(), m, func(context.Context, ctrl.Request) (time.Duration, error) {
			clock.SetTime(clock.Now().Add(2 * time.Second))
			return tc.requeueAfter, tc.err
		})
		result, err := r.Reconcile(t.Context(), ctrl.Request{})
		if err != nil || (result.RequeueAfter > 0) != tc.again {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if n, seconds, failed := counted(t, m); int(n) != tc.count || seconds != 2*float64(tc.count) || int(failed) != tc.failed {
			t.Errorf("%s: %d reconciliations of %v s are counted, %v failed", name, n, seconds, failed)
		}
	}
}

func TestDelaysOfDeferredRequestsStay(t *testing.T) {
	err := errors.New("connection refused")
	r := New(clocktesting.NewFakePassiveClock(noon), outcome.NewBackoff(), NewMetrics("thing", "Failures."),
		func(context.Context, ctrl.Request) (time.Duration, error) { return 0, err })
	first, _ := r.Reconcile(t.Context(), ctrl.Request{})
	err = ErrDeferred
	_, _ = r.Reconcile(t.Context(), ctrl.Request{})
	err = errors.New("connection refused")
	if second, _ := r.Reconcile(t.Context(), ctrl.Request{}); second.RequeueAfter <= first.RequeueAfter {
		t.Errorf("a delay of %s after one of %s", second.RequeueAfter, first.RequeueAfter)
	}
}

func TestWhatIsBegunEnds(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	m := NewMetrics("thing", "Failures.")
	began := 0
	r := Drain(m, reconcile.Func(func(working context.Context, _ ctrl.Request) (ctrl.Result, error) {
		began++
		stop()
		return ctrl.Result{}, working.Err()
	}))
	if _, err := r.Reconcile(ctx, ctrl.Request{}); err != nil {
		t.Errorf("a reconciliation in progress must stop immediately: %v", err)
	}
	if _, err := r.Reconcile(ctx, ctrl.Request{}); err != nil || began != 1 {
		t.Errorf("%d reconciliations began, %v", began, err)
	}
}

func TestADeadlineHolds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r := Drain(NewMetrics("thing", "Failures."), reconcile.Func(func(working context.Context, _ ctrl.Request) (ctrl.Result, error) {
		select {
		case <-working.Done():
			return ctrl.Result{}, nil
		case <-time.After(DrainTime):
			return ctrl.Result{}, errors.New("it continues")
		}
	}))
	if _, err := r.Reconcile(ctx, ctrl.Request{}); err != nil {
		t.Error(err)
	}
}

func TestAPanicIsCountedAndNotHidden(t *testing.T) {
	m := NewMetrics("thing", "Failures.")
	r := Drain(m, reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { panic("a bug") }))
	defer func() {
		if panicked := recover(); panicked != "a bug" {
			t.Errorf("it ended with %v", panicked)
		}
		if _, _, failed := counted(t, m); failed != 1 {
			t.Errorf("%v failures are counted", failed)
		}
	}()
	_, _ = r.Reconcile(t.Context(), ctrl.Request{})
}

// server is an API server that answers every write of a status alike.
type server struct {
	client.Client
	answer  error
	patches []string
}

func (s *server) Status() client.SubResourceWriter { return statuses{server: s} }

type statuses struct {
	client.SubResourceWriter
	server *server
}

func (s statuses) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	s.server.patches = append(s.server.patches, string(data))
	return s.server.answer
}

func TestStatusIsWrittenWhenItHasChanged(t *testing.T) {
	s := &server{}
	refused := 0
	status := Status[*corev1.Namespace]{
		Pointer:  func(n *corev1.Namespace) any { return &n.Status },
		Bound:    func(n *corev1.Namespace) { n.Status.Phase = n.Status.Phase[:min(6, len(n.Status.Phase))] },
		Touch:    func(n *corev1.Namespace) { n.Status.Conditions = []corev1.NamespaceCondition{{Type: "Stamped"}} },
		Rejected: func(*corev1.Namespace, error) { refused++ },
	}
	before := &corev1.Namespace{}
	before.ResourceVersion = "7"
	before.Status.Phase = "Active"
	change := func(to corev1.NamespacePhase) error {
		status.Client = s
		after := before.DeepCopy()
		after.Status.Phase = to
		return status.Patch(t.Context(), before, after)
	}
	if err := change("Active, as it was"); err != nil || len(s.patches) > 0 {
		t.Errorf("what is unchanged when it is cut is written: %v, %v", s.patches, err)
	}
	want := `{"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastTransitionTime":null,"status":"","type":"Stamped"}],"phase":"Ending"}}`
	if err := change("Ending"); err != nil || len(s.patches) != 1 || s.patches[0] != want {
		t.Errorf("%v is written, %v", s.patches, err)
	}
	invalid := apierrors.NewInvalid(schema.GroupKind{}, "a", nil)
	for name, tc := range map[string]struct {
		answer  error
		refused int
	}{
		"refused":  {invalid, 1},
		"gone":     {apierrors.NewNotFound(schema.GroupResource{Resource: "things"}, "a"), 0},
		"conflict": {apierrors.NewConflict(schema.GroupResource{}, "a", nil), 0},
		"down":     {errors.New("connection refused"), 0},
	} {
		s.answer, refused = tc.answer, 0
		err := change("Ending")
		if !errors.Is(err, tc.answer) || errors.Is(err, outcome.ErrGone) != (name == "gone") || refused != tc.refused {
			t.Errorf("%s: %v, reported %d times", name, err, refused)
		}
	}
	status.Rejected = nil
	s.answer = invalid
	if err := change("Ending"); !errors.Is(err, invalid) {
		t.Errorf("no callback for a rejection: %v", err)
	}
}

func TestAFailureCountsBesideAConflict(t *testing.T) {
	down, conflict := errors.New("connection refused"), apierrors.NewConflict(schema.GroupResource{}, "a", nil)
	if err := Join(nil, nil); err != nil {
		t.Error(err)
	}
	if err := Join(down, conflict); apierrors.IsConflict(err) || !errors.Is(err, down) {
		t.Errorf("the failure became %v", err)
	}
	if err := Join(nil, conflict); !apierrors.IsConflict(err) {
		t.Errorf("the conflict became %v", err)
	}
	if err := Join(down, outcome.ErrGone); !errors.Is(err, down) || !errors.Is(err, outcome.ErrGone) {
		t.Errorf("both became %v", err)
	}
}

func TestReplaced(t *testing.T) {
	before := &corev1.Namespace{}
	before.UID, before.Generation = "one", 1
	after := before.DeepCopy()
	if Replaced.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("nothing has changed")
	}
	after.UID = "another"
	if !Replaced.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("a successor of the same name and generation goes by unseen")
	}
}

// list is a cache with these namespaces.
type list struct {
	client.Reader
	namespaces []corev1.Namespace
	err        error
}

func (l list) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*corev1.NamespaceList).Items = l.namespaces
	return l.err
}

func TestRequests(t *testing.T) {
	cached := list{namespaces: make([]corev1.Namespace, 3)}
	for i, name := range []string{"a", "b", "c"} {
		cached.namespaces[i].Name = name
	}
	names := func(l list, which func(client.Object) bool) (all string) {
		for _, r := range Requests(t.Context(), l, &corev1.NamespaceList{}, which) {
			all += r.Name
		}
		return all
	}
	if got := names(cached, nil); got != "abc" {
		t.Errorf("all are %q", got)
	}
	if got := names(cached, func(o client.Object) bool { return o.GetName() != "b" }); got != "ac" {
		t.Errorf("some are %q", got)
	}
	cached.err = errors.New("shutting down")
	if got := names(cached, nil); got != "" {
		t.Errorf("of a cache that fails %q", got)
	}
}
