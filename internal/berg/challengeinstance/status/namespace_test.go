package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/config"
)

// The namespace of an instance that runs was deleted by hand. Until it is made again the status says what it said.
func TestAnotherNamespaceLeavesTheStateOfAnInstanceThatRan(t *testing.T) {
	i := testInstance(started)
	i.Status.Phase, i.Status.ReadyAt = bergv1.PhaseRunning, &metav1.Time{Time: noon}
	i.Status.NamespaceUID = "gone"
	SetConditions(i, noon, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "ready"})
	before := i.Status.DeepCopy()
	ready := Compute(Outcome{Observed: Observed{Candidate: Candidate{Instance: i}}, Problem: BeingBuilt, NamespaceTokenHash: "hash"}, config.Challenge{}, noon.Add(time.Minute))
	if ready.Status != metav1.ConditionTrue || ready.Reason != "Running" {
		t.Errorf("Ready is %+v", ready)
	}
	if i.Status.NamespaceUID != "" || i.Status.NamespaceTokenHash != "hash" {
		t.Errorf("the namespace is not prepared: %+v", i.Status)
	}
	if i.Status.Phase != before.Phase || len(i.Status.Conditions) != 1 || i.Status.Conditions[0] != before.Conditions[0] {
		t.Errorf("the state has changed: %+v", i.Status)
	}
}

// A rollout is up to date when its objects are written, not when the status names its content.
func TestAnAdoptionLeavesTheStateOfAnInstanceThatRan(t *testing.T) {
	i := testInstance(started)
	i.Status.Phase, i.Status.ReadyAt = bergv1.PhaseRunning, &metav1.Time{Time: noon}
	SetConditions(i, noon, metav1.Condition{Type: bergv1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: bergv1.ReasonChallengeChanged, Message: "changed"})
	before := i.Status.DeepCopy()
	Compute(Outcome{Observed: Observed{Candidate: Candidate{Instance: i, Challenge: &bergv1.Challenge{}}}, Adopted: &Adoption{Revision: "new"}}, config.Challenge{}, noon.Add(time.Minute))
	if i.Status.ChallengeRevision != "new" {
		t.Errorf("the content is not adopted: %+v", i.Status)
	}
	if i.Status.Phase != before.Phase || len(i.Status.Conditions) != 1 || i.Status.Conditions[0] != before.Conditions[0] {
		t.Errorf("the state has changed: %+v", i.Status)
	}
}
