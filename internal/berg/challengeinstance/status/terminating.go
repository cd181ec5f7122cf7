package status

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/redact"
	"github.com/bergctf/berg-operator/internal/berg/stop"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/finalizer"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// ComputeTerminating writes the status of an instance whose namespace is being deleted. refused is the refusal of that
// deletion by the API server, "" if there is none.
func ComputeTerminating(instance *bergv1.ChallengeInstance, ns *corev1.Namespace, refused string, pods stop.Remaining, now time.Time) {
	instance.Status.Phase = bergv1.PhaseTerminating
	instance.Status.ObservedGeneration = instance.Generation
	c := Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionFalse, bergv1.ReasonTerminating,
		fmt.Sprintf("Namespace %s is being deleted", ns.Name))
	switch reason := finalizer.HeldBack(ns); {
	case refused != "":
		c.Reason, c.Message = bergv1.ReasonDeletionBlocked, refused
	case len(pods.Late) > 0:
		c.Reason = bergv1.ReasonDeletionBlocked
		c.Message = fmt.Sprintf("Namespace %s is being deleted. The node of pods %s has not ended them yet: repair it, or shut it down and delete its Node",
			ns.Name, conditions.Enumerate(pods.Late))
	case pods.Ending: // the conditions of the namespace name these pods too, and they may still end in time
	case reason != "":
		c.Reason, c.Message = bergv1.ReasonDeletionBlocked, fmt.Sprintf("Namespace %s cannot be deleted: %s", ns.Name, reason)
	}
	setTerminating(instance, c, now)
}

// ComputeTerminated writes the status of an instance whose namespace is gone. The time stays if it is called again.
func ComputeTerminated(instance *bergv1.ChallengeInstance, now time.Time) {
	instance.Status.Phase = bergv1.PhaseTerminated
	instance.Status.ObservedGeneration = instance.Generation
	if instance.Status.TerminatedAt == nil {
		instance.Status.TerminatedAt = &metav1.Time{Time: now}
	}
	setTerminating(instance, Condition(bergv1.ConditionNamespaceDeleted, metav1.ConditionTrue, bergv1.ReasonDeleted, "The namespace is gone"), now)
}

// setTerminating sets NamespaceDeleted, Healthy, Ready and Stalled, and removes the addresses: while the
// namespace terminates, another Service may get its node ports.
func setTerminating(instance *bergv1.ChallengeInstance, deleted metav1.Condition, now time.Time) {
	instance.Status.Services, instance.Status.ConnectionInfo = nil, ""
	instance.Status.Cause = ""
	SetConditions(instance, now, deleted,
		Condition(bergv1.ConditionHealthy, metav1.ConditionFalse, bergv1.ReasonTerminating, "The instance is being deleted"))
	ready := reconcile.Ready{
		Status: metav1.ConditionFalse, Reason: deleted.Reason, Message: redact.Text(deleted.Message, instance.Spec.Flag),
		Stalled: deleted.Reason == bergv1.ReasonDeletionBlocked,
	}
	ready.SetOn(&instance.Status.Conditions, instance.Generation, now)
}
