// Package conditions maintains the conditions of a custom resource: each type once,
// with a reason, the generation that it was observed at, and a time that changes only
// with the status.
package conditions

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Upsert writes conditions into the conditions of a resource, which has the given
// metadata.generation. The time of a condition is now if its status is new, else the old time; it
// never goes back, even if the clock does. Messages are shortened, so callers must remove secrets
// before. A status that has not changed keeps its time, so the comparison with the stored status finds no difference and nothing
// is written.
func Upsert(all *[]metav1.Condition, generation int64, now time.Time, wanted ...metav1.Condition) {
	for _, c := range wanted {
		c.ObservedGeneration = generation
		c.Message = Bound(c.Message)
		c.LastTransitionTime = metav1.Time{Time: now}
		if old := meta.FindStatusCondition(*all, c.Type); old != nil && c.LastTransitionTime.Before(&old.LastTransitionTime) {
			c.LastTransitionTime = old.LastTransitionTime
		}
		meta.SetStatusCondition(all, c)
	}
}

// Setter writes one condition.
type Setter func(conditionType string, status metav1.ConditionStatus, reason, message string)

// NewSetter returns a Setter of the conditions of a resource at one time.
func NewSetter(obj metav1.Object, all *[]metav1.Condition, now time.Time) Setter {
	return func(conditionType string, status metav1.ConditionStatus, reason, message string) {
		Upsert(all, obj.GetGeneration(), now, metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message})
	}
}

// Transitioned reports whether a condition differs in status or reason from the condition of its
// type among before. Then it is reported once, as an event.
func Transitioned(before []metav1.Condition, c metav1.Condition) bool {
	old := meta.FindStatusCondition(before, c.Type)
	return old == nil || old.Status != c.Status || old.Reason != c.Reason
}

// NodeReady reports whether a node has the condition Ready.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
