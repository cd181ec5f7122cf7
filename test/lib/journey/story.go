package journey

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
	"github.com/bergctf/berg-operator/test/lib/deployed"
)

// Story is everything that a watcher was told of one instance, in order.
type Story struct {
	Key     client.ObjectKey
	OwnerID string
	Flag    string

	mutex   sync.Mutex
	moments []Moment
}

// Moment is one event of the watch.
type Moment struct {
	At       time.Time
	Gone     bool
	Instance *bergv1.ChallengeInstance
}

// Follow watches an instance, which need not exist yet, until the spec ends.
func Follow(instance *bergv1.ChallengeInstance) *Story {
	GinkgoHelper()
	s := &Story{
		Key:     client.ObjectKeyFromObject(instance),
		OwnerID: instance.Spec.OwnerID,
		Flag:    instance.Spec.Flag,
	}
	// Not the spec's context: cleaning up is part of the story.
	ctx, cancel := context.WithCancel(context.Background())
	DeferCleanup(cancel)
	events, err := deployed.World.Watch(ctx, &bergv1.ChallengeInstanceList{},
		client.InNamespace(s.Key.Namespace), client.MatchingFields{"metadata.name": s.Key.Name})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(events.Stop)
	go s.listen(events.ResultChan())
	return s
}

func (s *Story) listen(events <-chan watch.Event) {
	for e := range events {
		instance, ok := e.Object.(*bergv1.ChallengeInstance)
		if !ok || e.Type == watch.Bookmark {
			continue
		}
		s.mutex.Lock()
		s.moments = append(s.moments, Moment{At: time.Now(), Gone: e.Type == watch.Deleted, Instance: instance})
		s.mutex.Unlock()
	}
}

// Moments returns the moments so far.
func (s *Story) Moments() []Moment {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.moments)
}

// Now returns the instance as it was told last; nil before the first moment.
func (s *Story) Now() *bergv1.ChallengeInstance {
	story := s.Moments()
	if len(story) == 0 {
		return nil
	}
	return story[len(story)-1].Instance
}

// InstanceNamespace is the namespace that the operator builds for the instance, or the prepared one that it took over.
func (s *Story) InstanceNamespace() string {
	if now := s.Now(); now != nil && now.Status.PreparedFrom != "" {
		return now.Status.Namespace
	}
	return "challenge-" + s.OwnerID
}

// Phases returns the phases in order, each as often as it was entered.
func (s *Story) Phases() []bergv1.Phase {
	var phases []bergv1.Phase
	for _, m := range s.Moments() {
		if p := m.Instance.Status.Phase; p != "" {
			phases = append(phases, p)
		}
	}
	return slices.Compact(phases)
}

// Expect waits for the first moment, also a past one, that satisfies holds.
func (s *Story) Expect(ctx context.Context, limit time.Duration, what string, holds func(Moment) bool) Moment {
	GinkgoHelper()
	var found Moment
	Eventually(ctx, func() error {
		story := s.Moments()
		i := slices.IndexFunc(story, holds)
		if i < 0 {
			return fmt.Errorf("%s: no %s so far; phases %v; %s", s.Key, what, s.Phases(), Summary(s.Now()))
		}
		found = story[i]
		return nil
	}).WithTimeout(limit).WithPolling(10 * time.Millisecond).Should(Succeed())
	return found
}

// ExpectNow waits until the instance, as told last, satisfies holds.
func (s *Story) ExpectNow(ctx context.Context, limit time.Duration, what string, holds func(*bergv1.ChallengeInstance) bool) *bergv1.ChallengeInstance {
	GinkgoHelper()
	var found *bergv1.ChallengeInstance
	Eventually(ctx, func() error {
		if found = s.Now(); found != nil && holds(found) {
			return nil
		}
		return fmt.Errorf("%s: not %s; phases %v; %s", s.Key, what, s.Phases(), Summary(found))
	}).WithTimeout(limit).WithPolling(10 * time.Millisecond).Should(Succeed())
	return found
}

// ExpectPhase waits until the instance is in the phase.
func (s *Story) ExpectPhase(ctx context.Context, limit time.Duration, phase bergv1.Phase) *bergv1.ChallengeInstance {
	GinkgoHelper()
	return s.ExpectNow(ctx, limit, "in phase "+string(phase), func(i *bergv1.ChallengeInstance) bool {
		return i.Status.Phase == phase
	})
}

// ExpectCondition waits until the condition has the status and reason.
func (s *Story) ExpectCondition(ctx context.Context, limit time.Duration, conditionType string, status metav1.ConditionStatus, reason string) *bergv1.ChallengeInstance {
	GinkgoHelper()
	return s.ExpectNow(ctx, limit, fmt.Sprintf("%s=%s (%s)", conditionType, status, reason), func(i *bergv1.ChallengeInstance) bool {
		c := meta.FindStatusCondition(i.Status.Conditions, conditionType)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

// ExpectEnd waits until the instance is gone, and checks that it went the way
// every instance goes: its namespace first, and said so.
func (s *Story) ExpectEnd(ctx context.Context) Moment {
	GinkgoHelper()
	end := s.Expect(ctx, deployed.DeleteLimit, "end", func(m Moment) bool { return m.Gone })
	Expect(deployed.World.NamespaceGone(ctx, s.InstanceNamespace())).To(Succeed())
	last := end.Instance.Status
	Expect(last.Phase).To(Equal(bergv1.PhaseTerminated))
	Expect(last.TerminatedAt).NotTo(BeNil(), "terminatedAt")
	Expect(meta.IsStatusConditionTrue(last.Conditions, bergv1.ConditionNamespaceDeleted)).To(BeTrue(), Summary(end.Instance))
	return end
}

// Delete asks for the end of the instance.
func (s *Story) Delete(ctx context.Context) {
	GinkgoHelper()
	Expect(deployed.World.Delete(ctx, s.object())).To(Succeed())
}

// Patch changes the spec.
func (s *Story) Patch(ctx context.Context, format string, args ...any) {
	GinkgoHelper()
	Expect(s.TryPatch(ctx, format, args...)).To(Succeed())
}

// TryPatch is Patch for a change that may be refused.
func (s *Story) TryPatch(ctx context.Context, format string, args ...any) error {
	patch := `{"spec":` + fmt.Sprintf(format, args...) + `}`
	return deployed.World.Patch(ctx, s.object(), client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (s *Story) object() *bergv1.ChallengeInstance {
	return &bergv1.ChallengeInstance{ObjectMeta: metav1.ObjectMeta{Name: s.Key.Name, Namespace: s.Key.Namespace}}
}

// Summary says in one line where an instance stands.
func Summary(i *bergv1.ChallengeInstance) string {
	if i == nil {
		return "nothing reported yet"
	}
	parts := []string{"phase " + string(i.Status.Phase)}
	for _, c := range i.Status.Conditions {
		if c.Status != metav1.ConditionTrue {
			parts = append(parts, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	return strings.Join(parts, "; ")
}

// Unhappy returns the conditions that are not as they should be for a running
// instance.
func Unhappy(i *bergv1.ChallengeInstance) error {
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
