package life

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/invariants"
)

var _ = Describe("The watch over all statuses", func() {
	It("notices a violation", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "sound", bergtest.OneContainer)
		Expect(invariants.Violations(i, i)).To(Succeed())
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
			Expect(invariants.Violations(i, spoiled)).NotTo(Succeed(), name)
		}
	})
})

func set(s *bergv1.ChallengeInstanceStatus, conditionType string, status metav1.ConditionStatus) {
	meta.FindStatusCondition(s.Conditions, conditionType).Status = status
}
