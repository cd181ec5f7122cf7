package apply

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

var services = schema.GroupKind{Kind: "Service"}

func TestContestedObjectsAreThrottled(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := NewDriftBackoff(clock)
	web := write{object: object{services, types.NamespacedName{Namespace: "n", Name: "web"}, "one"}, plan: "a"}

	for n := range promptWrites {
		if err := r.throttled(web); err != nil {
			t.Fatalf("write %d is throttled: %v", n, err)
		}
		r.wrote(web, []string{"kube-x"})
	}
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		delay := time.Duration(seconds) * time.Second
		clock.SetTime(clock.Now().Add(delay - 1))
		var contested *ContestedError
		if err := r.throttled(web); !errors.As(err, &contested) || !strings.Contains(err.Error(), "Service web") || !strings.Contains(err.Error(), "kube-x") {
			t.Fatalf("after a nanosecond less than %s: %v", delay, err)
		}
		clock.SetTime(clock.Now().Add(1))
		if err := r.throttled(web); err != nil {
			t.Fatalf("after %s: %v", delay, err)
		}
		r.wrote(web, nil)
	}

	for what, modify := range map[string]func(*write){
		"another kind":                    func(w *write) { w.kind.Kind = "ConfigMap" },
		"that kind of another API":        func(w *write) { w.kind.Group = "serving.knative.dev" },
		"another object":                  func(w *write) { w.name.Name = "db" },
		"that of another custom resource": func(w *write) { w.owner = "two" },
		"a rollout":                       func(w *write) { w.rollout, w.plan = true, "b" },
	} {
		other := web
		modify(&other)
		if err := r.throttled(other); err != nil {
			t.Errorf("%s is throttled too: %v", what, err)
		}
	}
	r.wrote(write{object: web.object, plan: "b", rollout: true}, nil)
	if err := r.throttled(web); err == nil {
		t.Error("a rollout ends the contest")
	}

	clock.SetTime(clock.Now().Add(forgetAfter))
	if err := r.throttled(web); err != nil {
		t.Errorf("it is throttled although it was unmodified since: %v", err)
	}
}

// A policy is missing while it is throttled, and its pods are open.
func TestNetworkPoliciesAreNeverThrottled(t *testing.T) {
	r := NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for _, kind := range []schema.GroupKind{
		{Group: "networking.k8s.io", Kind: "NetworkPolicy"},
		{Group: "cilium.io", Kind: "CiliumNetworkPolicy"},
	} {
		policy := write{object: object{kind, types.NamespacedName{Namespace: "n", Name: "p"}, "one"}, plan: "a"}
		for n := range 10 * promptWrites {
			if err := r.throttled(policy); err != nil {
				t.Fatalf("%s: write %d: %v", kind, n, err)
			}
			r.wrote(policy, []string{"cleaner"})
		}
	}
}

// What stops a plan because others keep changing it does not keep its policies from being repaired.
func TestPoliciesOfAContestedPlanAreWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"contested": {&ContestedError{Kind: "Namespace", Name: "n"}, 1},
		"refused":   {errors.New("forbidden"), 0},
	} {
		c := fake.NewClientBuilder().WithScheme(clientscheme.Scheme).Build()
		w := Writer{Client: c, Live: c, Manager: us, DriftBackoff: NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))}
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
		failures := Steps(t.Context(), w, ownership.Owner{Annotation: "example.com/uid", UID: "one"}, "n", []Step{
			{Condition: "Namespace", Then: func(context.Context, []client.Object) error { return tc.err }},
			{Condition: "Policies", Objects: []Set{Only(policy)}},
			{Condition: "Workloads", Objects: []Set{Only(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}})}},
		})
		if len(failures) != 1 || !errors.Is(failures.For("Namespace"), tc.err) {
			t.Errorf("%s: %v", name, failures)
		}
		var policies networkingv1.NetworkPolicyList
		var others corev1.ConfigMapList
		if err := errors.Join(c.List(t.Context(), &policies), c.List(t.Context(), &others)); err != nil {
			t.Fatal(err)
		}
		if len(policies.Items) != tc.want || len(others.Items) != 0 {
			t.Errorf("%s: %d policies, %d other objects", name, len(policies.Items), len(others.Items))
		}
	}
}

func TestPrunedObjectsAreForgotten(t *testing.T) {
	r := NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	web := write{object: object{services, types.NamespacedName{Namespace: "n", Name: "web"}, "one"}, plan: "a"}
	for range promptWrites {
		r.wrote(web, nil)
	}
	if err := r.throttled(web); err == nil {
		t.Fatal("it is not throttled")
	}
	r.pruned(web.object)
	if err := r.throttled(web); err != nil {
		t.Errorf("it is throttled although it is a new object: %v", err)
	}
}

func TestNoDriftBackoff(t *testing.T) {
	var r *DriftBackoff
	to := write{object: object{kind: services}, plan: "a"}
	r.wrote(to, nil)
	r.pruned(to.object)
	if err := r.throttled(to); err != nil || r.plan(to.object) != "" {
		t.Errorf("throttled %v, plan %q", err, r.plan(to.object))
	}
}

// A write is a rollout if only the operator has modified the object, and the plan is another
// one now.
func TestIsRollout(t *testing.T) {
	owner := ownership.Owner{Annotation: "example.com/uid", UID: "one"}
	o := object{services, types.NamespacedName{Namespace: "n", Name: "web"}, owner.UID}
	live := func(modify ...func(*corev1.Service)) *corev1.Service {
		s := newService()
		s.Annotations = map[string]string{ChecksumAnnotation(owner.Annotation): "a"}
		s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "us", Operation: metav1.ManagedFieldsOperationUpdate}}
		for _, m := range modify {
			m(s)
		}
		return s
	}
	for name, tc := range map[string]struct {
		last, now string
		live      *corev1.Service
		want      bool
	}{
		"another plan": {"a", "b", live(), true},
		"metadata of others, and their status": {"a", "b", live(func(s *corev1.Service) {
			s.Labels["team"] = "red"
			s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{},"f:status":{}}`)})
		}), true},
		"the same plan": {"a", "a", live(), false},
		"another plan, modified by others": {"a", "b", live(func(s *corev1.Service) {
			s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)})
		}), false},
		"a checksum that others forged": {"a", "a", live(func(s *corev1.Service) { s.Annotations[ChecksumAnnotation(owner.Annotation)] = "x" }), false},
		"a checksum forged before":      {"a", "b", live(func(s *corev1.Service) { s.Annotations[ChecksumAnnotation(owner.Annotation)] = "x" }), false},
		"no known history":              {"", "b", live(), false},
	} {
		w := Writer{Manager: "us", DriftBackoff: NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))}
		if tc.last != "" {
			w.DriftBackoff.wrote(write{object: o, plan: tc.last}, nil)
		}
		if got := isRollout(w, owner, write{object: o, plan: tc.now}, tc.live); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A difference that the API server itself has made is no reason to write again.
func TestWrittenAsPlanned(t *testing.T) {
	owner := ownership.Owner{Annotation: "example.com/uid", UID: "one"}
	desired := newService()
	if err := setChecksum(desired, ChecksumAnnotation(owner.Annotation)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		modify func(*corev1.Service)
		want   bool
	}{
		"the same":           {func(*corev1.Service) {}, true},
		"changed on the way": {func(s *corev1.Service) { s.Spec.Selector["added"] = "by the API server" }, true},
		"of another plan":    {func(s *corev1.Service) { s.Annotations[ChecksumAnnotation(owner.Annotation)] = "x" }, false},
		"changed by others":  {func(s *corev1.Service) { s.ManagedFields = append(s.ManagedFields, byHand) }, false},
		"written by others":  {func(s *corev1.Service) { s.ManagedFields = nil }, false},
	} {
		live := desired.DeepCopy()
		live.ManagedFields = []metav1.ManagedFieldsEntry{own}
		tc.modify(live)
		if got := writtenAsPlanned(Writer{Manager: us}, owner, desired, live); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	live := desired.DeepCopy()
	live.ManagedFields = []metav1.ManagedFieldsEntry{own}
	desired.Spec.Ports[0].NodePort = 30000
	if writtenAsPlanned(Writer{Manager: us}, owner, desired, live) {
		t.Error("the checksum does not cover node ports")
	}
}

// Also with many custom resources.
func TestDriftBackoffIsBounded(t *testing.T) {
	r := NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	for n := range 3 * maxRemembered {
		r.wrote(write{object: object{services, types.NamespacedName{Namespace: "n", Name: "web"}, types.UID(strconv.Itoa(n))}, plan: "a"}, nil)
	}
	if got := r.writes.Len(); got != maxRemembered {
		t.Errorf("%d are remembered, want %d", got, maxRemembered)
	}
}

func TestResultsOfAdmissionAreAccepted(t *testing.T) {
	owner := ownership.Owner{Annotation: "example.com/uid", UID: "u"}
	plan := func(image string) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID = "pod"
		p.Spec.Containers = []corev1.Container{{Image: image}}
		if err := setChecksum(p, ChecksumAnnotation(owner.Annotation)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := NewDriftBackoff(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	desired := plan("web:1")
	made := desired.DeepCopy()
	made.Spec.Containers[0].Image = "mirror/web:1"
	if r.accepts(owner, desired, made) {
		t.Error("accepted before it was seen")
	}
	if !r.accept(desired, made) || r.accept(desired, made) {
		t.Error("it must be reported once")
	}

	made.ResourceVersion, made.Annotations["others"], made.Status.Phase = "7", "add", corev1.PodRunning
	if !r.accepts(owner, desired, made) {
		t.Error("metadata of others and the status make a difference")
	}
	if r.accepts(owner, plan("web:2"), made) {
		t.Error("accepted for another plan")
	}
	made.Spec.Containers[0].Image = "evil:1"
	if r.accepts(owner, desired, made) {
		t.Error("a change by hand is accepted")
	}
}

func TestChecksumOfAPlan(t *testing.T) {
	if got := ChecksumAnnotation("example.com/uid"); got != "example.com/plan-checksum" {
		t.Errorf("ChecksumAnnotation = %s", got)
	}
	sum := func(modify ...func(*corev1.Service)) string {
		s := newService(modify...)
		if err := setChecksum(s, "sum"); err != nil {
			t.Fatal(err)
		}
		return s.Annotations["sum"]
	}
	same := sum()
	if again := sum(); again != same || len(same) != 32 {
		t.Errorf("%q and %q", same, again)
	}
	if known := sum(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 }); known != same {
		t.Error("a node port that is known by now makes another plan")
	}
	twice := newService()
	for range 2 {
		if err := setChecksum(twice, "sum"); err != nil {
			t.Fatal(err)
		}
	}
	if twice.Annotations["sum"] != same {
		t.Error("the second checksum of an object differs from the first")
	}
	for name, modify := range map[string]func(*corev1.Service){
		"a field left out":  func(s *corev1.Service) { s.Spec.Selector = nil },
		"a field added":     func(s *corev1.Service) { s.Spec.ExternalName = "x" },
		"a label changed":   func(s *corev1.Service) { s.Labels["a"] = "2" },
		"an annotation new": func(s *corev1.Service) { s.Annotations = map[string]string{"a": "b"} },
	} {
		if sum(modify) == same {
			t.Errorf("%s: the checksum is the same", name)
		}
	}
}
