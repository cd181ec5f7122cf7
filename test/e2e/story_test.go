package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// story is everything that a watcher was told of one instance, in order.
type story struct {
	key     client.ObjectKey
	ownerID string
	flag    string

	mutex   sync.Mutex
	moments []moment
}

// moment is one event of the watch.
type moment struct {
	at       time.Time
	gone     bool
	instance *bergv1.ChallengeInstance
}

// follow watches an instance, which need not exist yet, until the spec ends.
func follow(instance *bergv1.ChallengeInstance) *story {
	GinkgoHelper()
	s := &story{
		key:     client.ObjectKeyFromObject(instance),
		ownerID: instance.Spec.OwnerID,
		flag:    instance.Spec.Flag,
	}
	// Not the spec's context: cleaning up is part of the story.
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	events, err := world.Watch(ctx, &bergv1.ChallengeInstanceList{},
		client.InNamespace(s.key.Namespace), client.MatchingFields{"metadata.name": s.key.Name})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(events.Stop)
	go s.listen(events.ResultChan())
	return s
}

func (s *story) listen(events <-chan watch.Event) {
	for e := range events {
		instance, ok := e.Object.(*bergv1.ChallengeInstance)
		if !ok || e.Type == watch.Bookmark {
			continue
		}
		s.mutex.Lock()
		s.moments = append(s.moments, moment{at: time.Now(), gone: e.Type == watch.Deleted, instance: instance})
		s.mutex.Unlock()
	}
}

// told returns the moments so far.
func (s *story) told() []moment {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.moments)
}

// now returns the instance as it was told last; nil before the first moment.
func (s *story) now() *bergv1.ChallengeInstance {
	told := s.told()
	if len(told) == 0 {
		return nil
	}
	return told[len(told)-1].instance
}

// instanceNamespace is the namespace that the operator builds for the instance.
func (s *story) instanceNamespace() string { return "challenge-" + s.ownerID }

// phases returns the phases in order, each as often as it was entered.
func (s *story) phases() []bergv1.Phase {
	var phases []bergv1.Phase
	for _, m := range s.told() {
		if p := m.instance.Status.Phase; p != "" {
			phases = append(phases, p)
		}
	}
	return slices.Compact(phases)
}

// expect waits for the first moment, also a past one, that satisfies holds.
func (s *story) expect(ctx context.Context, limit time.Duration, what string, holds func(moment) bool) moment {
	GinkgoHelper()
	var found moment
	Eventually(ctx, func() error {
		told := s.told()
		i := slices.IndexFunc(told, holds)
		if i < 0 {
			return fmt.Errorf("%s: no %s so far; phases %v; %s", s.key, what, s.phases(), summary(s.now()))
		}
		found = told[i]
		return nil
	}).WithTimeout(limit).WithPolling(10 * time.Millisecond).Should(Succeed())
	return found
}

// expectNow waits until the instance, as told last, satisfies holds.
func (s *story) expectNow(ctx context.Context, limit time.Duration, what string, holds func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	GinkgoHelper()
	var found *bergv1.ChallengeInstance
	Eventually(ctx, func() error {
		if found = s.now(); found != nil && holds(found) {
			return nil
		}
		return fmt.Errorf("%s: not %s; phases %v; %s", s.key, what, s.phases(), summary(found))
	}).WithTimeout(limit).WithPolling(10 * time.Millisecond).Should(Succeed())
	return found
}

// expectPhase waits until the instance is in the phase.
func (s *story) expectPhase(ctx context.Context, limit time.Duration, phase bergv1.Phase) *bergv1.ChallengeInstance {
	GinkgoHelper()
	return s.expectNow(ctx, limit, "in phase "+string(phase), func(i *bergv1.ChallengeInstance) bool {
		return i.Status.Phase == phase
	})
}

// expectCondition waits until the condition has the status and reason.
func (s *story) expectCondition(ctx context.Context, limit time.Duration, conditionType string, status metav1.ConditionStatus, reason string) *bergv1.ChallengeInstance {
	GinkgoHelper()
	return s.expectNow(ctx, limit, fmt.Sprintf("%s=%s (%s)", conditionType, status, reason), func(i *bergv1.ChallengeInstance) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

// expectEnd waits until the instance is gone, and checks that it went the way
// every instance goes: its namespace first, and said so.
func (s *story) expectEnd(ctx context.Context) moment {
	GinkgoHelper()
	end := s.expect(ctx, deleteLimit, "end", func(m moment) bool { return m.gone })
	Expect(world.namespaceGone(ctx, s.instanceNamespace())).To(Succeed())
	last := end.instance.Status
	Expect(last.Phase).To(Equal(bergv1.PhaseTerminated))
	Expect(last.TerminatedAt).NotTo(BeNil(), "terminatedAt")
	Expect(meta.IsStatusConditionTrue(last.Conditions, bergv1.ConditionNamespaceDeleted)).To(BeTrue(), summary(end.instance))
	return end
}

// delete asks for the end of the instance.
func (s *story) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(world.Delete(ctx, s.object())).To(Succeed())
}

// patch changes the spec.
func (s *story) patch(ctx context.Context, format string, args ...any) {
	GinkgoHelper()
	Expect(s.tryPatch(ctx, format, args...)).To(Succeed())
}

func (s *story) tryPatch(ctx context.Context, format string, args ...any) error {
	patch := `{"spec":` + fmt.Sprintf(format, args...) + `}`
	return world.Patch(ctx, s.object(), client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (s *story) object() *bergv1.ChallengeInstance {
	return &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: s.key.Name, Namespace: s.key.Namespace}}
}

// summary says in one line where an instance stands.
func summary(i *bergv1.ChallengeInstance) string {
	if i == nil {
		return "nothing told yet"
	}
	parts := []string{"phase " + string(i.Status.Phase)}
	for _, c := range i.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			parts = append(parts, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(parts, "; ")
}

// unhappy returns the conditions that are not as they should be for a running
// instance.
func unhappy(i *bergv1.ChallengeInstance) error {
	var problems []error
	for _, t := range []string{
		bergv1.ConditionChallengeFound, bergv1.ConditionFlagValidation, bergv1.ConditionNamespaceCreated,
		bergv1.ConditionNetworkPolicyCreated, bergv1.ConditionServicesCreated, bergv1.ConditionRoutesCreated,
		bergv1.ConditionDeploymentsCreated, bergv1.ConditionPodsReady, bergv1.ConditionHealthy, bergv1.ConditionUpToDate,
	} {
		c := meta.FindStatusCondition(i.Status.Conditions, t)
		switch {
		case c == nil:
			problems = append(problems, fmt.Errorf("%s is missing", t))
		case c.Status != metav1.ConditionTrue:
			problems = append(problems, fmt.Errorf("%s=%s (%s: %s)", t, c.Status, c.Reason, c.Message))
		case c.ObservedGeneration != i.Generation:
			problems = append(problems, fmt.Errorf("%s is of generation %d, the instance of %d", t, c.ObservedGeneration, i.Generation))
		}
	}
	return errors.Join(problems...)
}
