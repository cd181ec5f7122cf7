package integration

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/invariants"
)

// violations are what a watch over all instances found wrong in any version of
// any of them: whatever a spec is about, no status may contradict itself.
var violations struct {
	sync.Mutex
	found    []string
	versions int
}

var _ = AfterEach(func() {
	violations.Lock()
	defer violations.Unlock()
	found := violations.found
	violations.found = nil
	Expect(found).To(BeEmpty(), "a status that cannot be")
})

// watchInvariants checks every version of every instance until the suite ends.
func watchInvariants() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	last := map[types.UID]*bergv1.ChallengeInstance{}
	ended.Go(func() {
		for ctx.Err() == nil {
			// A watch that does not say where to begin starts with all that exist.
			w, err := k8s.Watch(ctx, &bergv1.ChallengeInstanceList{})
			if err != nil {
				continue // the suite has other ways to notice that the API server is away
			}
			for e := range w.ResultChan() {
				checkVersion(last, e)
			}
		}
	})
	DeferCleanup(func(ctx context.Context) {
		defer ended.Wait()
		defer cancel()
		// The operator has ended, so this one stays as it is written.
		seen := func() int {
			violations.Lock()
			defer violations.Unlock()
			return violations.versions
		}
		before, last := seen(), instance(ctx, "default", "none")
		Eventually(seen).Should(BeNumerically(">", before), "the watch has ended before the suite")
		Expect(k8s.Delete(ctx, last)).To(Succeed())
	})
}

func checkVersion(last map[types.UID]*bergv1.ChallengeInstance, e watch.Event) {
	after, ok := e.Object.(*bergv1.ChallengeInstance)
	if !ok {
		return
	}
	before := last[after.UID]
	if before == nil {
		before = &bergv1.ChallengeInstance{}
	}
	last[after.UID] = after
	if e.Type == watch.Deleted {
		delete(last, after.UID)
	}
	violations.Lock()
	defer violations.Unlock()
	violations.versions++
	if err := invariants.Contradictions(before, after); err != nil {
		violations.found = append(violations.found, fmt.Sprintf("%s/%s %s: %s\n  conditions: %s",
			after.Namespace, after.Name, after.Status.Phase, err, conditions(after)))
	}
}

var _ = Describe("The watch over all statuses", func() {
	It("notices a contradiction", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "sound", oneContainer)
		i := instance(ctx, ns, "sound")
		reaches(ctx, i, bergv1.PhaseRunning)
		Expect(invariants.Contradictions(i, i)).To(Succeed())
		for name, spoil := range map[string]func(*bergv1.ChallengeInstanceStatus){
			"running, not built": func(s *bergv1.ChallengeInstanceStatus) {
				set(s, bergv1.ConditionServicesCreated, metav1.ConditionFalse)
			},
			"running, never ready": func(s *bergv1.ChallengeInstanceStatus) { s.ReadyAt = nil },
			"failed, all is well":  func(s *bergv1.ChallengeInstanceStatus) { s.Phase = bergv1.PhaseFailed },
			"starting, was ready":  func(s *bergv1.ChallengeInstanceStatus) { s.Phase = bergv1.PhaseStarting },
			"creating, all built":  func(s *bergv1.ChallengeInstanceStatus) { s.Phase = bergv1.PhaseCreating },
			"pending, all built":   func(s *bergv1.ChallengeInstanceStatus) { s.Phase = bergv1.PhasePending },
			"gone, still there":    func(s *bergv1.ChallengeInstanceStatus) { s.Phase = bergv1.PhaseTerminated },
			"deleted, it lives": func(s *bergv1.ChallengeInstanceStatus) {
				set(s, bergv1.ConditionNamespaceDeleted, metav1.ConditionTrue)
			},
			"another ID":           func(s *bergv1.ChallengeInstanceStatus) { s.InstanceID = "x" },
			"another start":        func(s *bergv1.ChallengeInstanceStatus) { s.StartedAt = &metav1.Time{} },
			"no phase":             func(s *bergv1.ChallengeInstanceStatus) { s.Phase = "" },
			"a condition twice":    func(s *bergv1.ChallengeInstanceStatus) { s.Conditions = append(s.Conditions, s.Conditions[0]) },
			"a generation to come": func(s *bergv1.ChallengeInstanceStatus) { s.ObservedGeneration++ },
		} {
			spoiled := i.DeepCopy()
			spoil(&spoiled.Status)
			Expect(invariants.Contradictions(i, spoiled)).NotTo(Succeed(), name)
		}
	})
})

func reasonOf(i *bergv1.ChallengeInstance, conditionType string) string {
	if c := meta.FindStatusCondition(i.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

func set(s *bergv1.ChallengeInstanceStatus, conditionType string, status metav1.ConditionStatus) {
	meta.FindStatusCondition(s.Conditions, conditionType).Status = status
}

// versions watches one instance and returns its versions as they come.
func versions(ctx context.Context, i client.Object) <-chan watch.Event {
	GinkgoHelper()
	w, err := k8s.Watch(ctx, &bergv1.ChallengeInstanceList{}, client.InNamespace(i.GetNamespace()))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	return w.ResultChan()
}

// lastOf returns the last version of an instance before it was gone.
func lastOf(all <-chan watch.Event, uid types.UID) *bergv1.ChallengeInstance {
	GinkgoHelper()
	for {
		var e watch.Event
		Eventually(all).Should(Receive(&e))
		if i, ok := e.Object.(*bergv1.ChallengeInstance); ok && i.UID == uid && e.Type == watch.Deleted {
			return i
		}
	}
}
