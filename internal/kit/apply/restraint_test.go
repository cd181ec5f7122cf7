package apply

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

func TestRestraintHoldsBackWhatIsContested(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	r := NewRestraint(clock)
	key := types.NamespacedName{Namespace: "n", Name: "web"}
	for n := range promptWrites {
		if err := r.held("Service", key); err != nil {
			t.Fatalf("write %d is held back: %v", n, err)
		}
		r.wrote("Service", key, []string{"kube-x"})
	}
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
		pause := time.Duration(seconds) * time.Second
		clock.SetTime(clock.Now().Add(pause - 1))
		var contested *ContestedError
		if err := r.held("Service", key); !errors.As(err, &contested) || !strings.Contains(err.Error(), "Service web") || !strings.Contains(err.Error(), "kube-x") {
			t.Fatalf("after a nanosecond less than %s: %v", pause, err)
		}
		clock.SetTime(clock.Now().Add(1))
		if err := r.held("Service", key); err != nil {
			t.Fatalf("after %s: %v", pause, err)
		}
		r.wrote("Service", key, nil)
	}
	for _, other := range []struct {
		kind string
		key  types.NamespacedName
	}{{"ConfigMap", key}, {"Service", types.NamespacedName{Namespace: "n", Name: "db"}}} {
		if err := r.held(other.kind, other.key); err != nil {
			t.Errorf("%s %s is held back with it: %v", other.kind, other.key, err)
		}
	}
	clock.SetTime(clock.Now().Add(forgetting))
	if err := r.held("Service", key); err != nil {
		t.Errorf("held back though it was left alone since: %v", err)
	}
}

func TestRestraintAcceptsWhatAdmissionMakes(t *testing.T) {
	proof := ownership.Proof{Annotation: "example.com/uid", UID: "u"}
	plan := func(image string) *corev1.Pod {
		p := &corev1.Pod{}
		p.UID = "pod"
		p.Spec.Containers = []corev1.Container{{Image: image}}
		if err := stampChecksum(p, ChecksumAnnotation(proof.Annotation)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	r := NewRestraint(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	desired := plan("web:1")
	made := desired.DeepCopy()
	made.Spec.Containers[0].Image = "mirror/web:1"
	if r.accepts(proof, desired, made) {
		t.Error("accepted before it was seen")
	}
	if !r.accept(desired, made) || r.accept(desired, made) {
		t.Error("it must be news once")
	}

	made.ResourceVersion, made.Annotations["others"], made.Status.Phase = "7", "add", corev1.PodRunning
	if !r.accepts(proof, desired, made) {
		t.Error("metadata of others and the status make a difference")
	}
	if r.accepts(proof, plan("web:2"), made) {
		t.Error("accepted for another plan")
	}
	made.Spec.Containers[0].Image = "evil:1"
	if r.accepts(proof, desired, made) {
		t.Error("a change by hand is accepted")
	}
}

func TestChecksumOfAPlan(t *testing.T) {
	if got := ChecksumAnnotation("example.com/uid"); got != "example.com/plan-checksum" {
		t.Errorf("ChecksumAnnotation = %s", got)
	}
	sum := func(modify ...func(*corev1.Service)) string {
		s := service(modify...)
		if err := stampChecksum(s, "sum"); err != nil {
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
	twice := service()
	for range 2 {
		if err := stampChecksum(twice, "sum"); err != nil {
			t.Fatal(err)
		}
	}
	if twice.Annotations["sum"] != same {
		t.Error("the second stamp of an object differs from the first")
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
