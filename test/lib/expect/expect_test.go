package expect

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
)

func TestStatusOfAnyKind(t *testing.T) {
	RegisterTestingT(t)
	conditions := []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: ReasonContested, Message: "another writer", LastTransitionTime: metav1.Now(),
	}}
	for _, test := range []struct {
		resource client.Object
		text     string
	}{
		{
			&bergv1.ChallengeInstance{Status: bergv1.ChallengeInstanceStatus{Phase: bergv1.PhaseRunning, ObservedGeneration: 3, Conditions: conditions}},
			"Ready=False/Contested (another writer); ",
		},
		{
			&quixv1.Environment{Status: quixv1.EnvironmentStatus{Phase: quixv1.PhaseFailed, ObservedGeneration: 3, Message: "why", Conditions: conditions}},
			"why; Ready=False/Contested (another writer); ",
		},
		{&bergv1.ChallengeInstance{}, ""},
	} {
		Expect(Conditions(test.resource)).To(Equal(test.text))
	}
	for _, reason := range []string{bergv1.ReasonContested, quixv1.ReasonContested} {
		Expect(reason).To(Equal(ReasonContested))
	}
}

func TestStatusKeepsPhaseAndGeneration(t *testing.T) {
	RegisterTestingT(t)
	s := statusOf(&quixv1.Environment{Status: quixv1.EnvironmentStatus{Phase: quixv1.PhaseReady, ObservedGeneration: 7}})
	Expect(s.Phase).To(Equal(string(quixv1.PhaseReady)))
	Expect(s.ObservedGeneration).To(Equal(int64(7)))
}
