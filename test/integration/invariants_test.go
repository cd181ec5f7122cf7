package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	kit "github.com/bergctf/berg-operator/internal/kit/conditions"
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
	if err := contradictions(before, after); err != nil {
		violations.found = append(violations.found, fmt.Sprintf("%s/%s %s: %s\n  conditions: %s",
			after.Namespace, after.Name, after.Status.Phase, err, conditions(after)))
	}
}

// buildSteps are the conditions of a build.
var buildSteps = []string{
	bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionNamespaceCreated, bergv1.ConditionNetworkPolicyCreated,
	bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated, bergv1.ConditionDeploymentsCreated,
}

// contradictions returns what cannot be in a version of an instance, given the
// one before it.
func contradictions(before, after *bergv1.ChallengeInstance) error {
	s := after.Status
	var errs []error
	must := func(holds bool, format string, args ...any) {
		if !holds {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	is := func(conditionType string, status metav1.ConditionStatus) bool {
		return meta.IsStatusConditionPresentAndEqual(s.Conditions, conditionType, status)
	}
	built := !slices.ContainsFunc(buildSteps, func(step string) bool {
		// A live instance outlives its Challenge.
		withdrawn := step == bergv1.ConditionChallengeFound && reasonOf(after, step) == bergv1.ReasonChallengeMissing && s.ChallengeSnapshot != nil
		return !is(step, metav1.ConditionTrue) && !withdrawn
	})

	errs = append(errs, kit.Violations(before.Status.Conditions, s.Conditions, after.Generation))
	must(slices.Contains(bergv1.Phases, s.Phase), "phase %q", s.Phase)
	must(s.ObservedGeneration <= after.Generation, "observedGeneration %d, generation %d", s.ObservedGeneration, after.Generation)
	must(s.ObservedGeneration == 0 || len(s.Conditions) > 0, "observed without conditions")
	for _, set := range []struct {
		field      string
		was, is    string
		changeable bool
	}{
		{field: "instanceId", was: before.Status.InstanceID, is: s.InstanceID},
		{field: "namespace", was: before.Status.Namespace, is: s.Namespace},
		{field: "startedAt", was: text(before.Status.StartedAt), is: text(s.StartedAt)},
		{field: "readyAt", was: text(before.Status.ReadyAt), is: text(s.ReadyAt)},
		{field: "terminatedAt", was: text(before.Status.TerminatedAt), is: text(s.TerminatedAt)},
	} {
		must(set.was == "" || set.was == set.is, "%s changed from %s to %q", set.field, set.was, set.is)
	}
	started := s.StartedAt != nil
	must(started == (s.InstanceID != ""), "instanceId %q, startedAt %s", s.InstanceID, text(s.StartedAt))
	must(started == (s.ExpiresAt != nil), "startedAt %s, expiresAt %s", text(s.StartedAt), text(s.ExpiresAt))
	must(s.ReadyAt == nil || started && !s.ReadyAt.Before(s.StartedAt), "startedAt %s, readyAt %s", text(s.StartedAt), text(s.ReadyAt))
	must((s.Phase == bergv1.PhaseTerminated) == is(bergv1.ConditionNamespaceDeleted, metav1.ConditionTrue), "NamespaceDeleted")
	must((s.Phase == bergv1.PhaseTerminated) == (s.TerminatedAt != nil), "terminatedAt %s", text(s.TerminatedAt))
	must((s.ReadyAt != nil) == is(bergv1.ConditionPodsReady, metav1.ConditionTrue), "PodsReady, and readyAt is %s", text(s.ReadyAt))

	switch s.Phase {
	case bergv1.PhasePending:
		must(s.ObservedGeneration == 0 || reasonOf(after, bergv1.ConditionNamespaceCreated) == bergv1.ReasonOwnerBusy, "it waits for nothing")
	case bergv1.PhaseCreating:
		must(started && !built, "nothing is being created")
	case bergv1.PhaseStarting:
		must(started && built && s.ReadyAt == nil, "it is not starting")
	case bergv1.PhaseRunning:
		must(started && (built || beingRepaired(after)) && s.ReadyAt != nil, "it does not run")
		must(!is(bergv1.ConditionHealthy, metav1.ConditionUnknown), "its health is not known")
	case bergv1.PhaseFailed:
		must(slices.ContainsFunc(append([]string{bergv1.ConditionPodsReady}, buildSteps...), func(c string) bool { return is(c, metav1.ConditionFalse) }), "nothing has failed")
	case bergv1.PhaseTerminating, bergv1.PhaseTerminated:
		must(after.DeletionTimestamp != nil, "it is not being deleted")
		must(is(bergv1.ConditionHealthy, metav1.ConditionFalse), "it is healthy")
	}
	return errors.Join(errs...)
}

// beingRepaired reports whether the API server refuses to put something back for now.
func beingRepaired(i *bergv1.ChallengeInstance) bool {
	return slices.ContainsFunc(buildSteps, func(step string) bool {
		return meta.IsStatusConditionFalse(i.Status.Conditions, step) &&
			slices.Contains([]string{bergv1.ReasonRefused, bergv1.ReasonContested, bergv1.ReasonWriteFailed}, reasonOf(i, step))
	})
}

func reasonOf(i *bergv1.ChallengeInstance, conditionType string) string {
	if c := meta.FindStatusCondition(i.Status.Conditions, conditionType); c != nil {
		return c.Reason
	}
	return ""
}

func text(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

var _ = Describe("The watch over all statuses", func() {
	It("notices a contradiction", func(ctx context.Context) {
		ns := newNamespace(ctx)
		challenge(ctx, ns, "sound", oneContainer)
		i := instance(ctx, ns, "sound")
		reaches(ctx, i, bergv1.PhaseRunning)
		Expect(contradictions(i, i)).To(Succeed())
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
			Expect(contradictions(i, spoiled)).NotTo(Succeed(), name)
		}
	})
})

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
