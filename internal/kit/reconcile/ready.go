package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// The conditions that every Kind has, with the meaning that kstatus gives them: kubectl wait, Flux, Argo CD and Helm
// go by them.
const (
	ConditionReady = "Ready"
	// ConditionStalled is there, and True, only while a person must act.
	ConditionStalled = "Stalled"
)

// Ready reports whether a resource has reached the state that its spec asks for.
type Ready struct {
	Status          metav1.ConditionStatus
	Reason, Message string
	// Stalled: it stays so until a person acts. kstatus calls it Failed instead of InProgress.
	Stalled bool
}

// ReadyUnless is False for a problem, and without one True for the given reason.
func ReadyUnless(p *outcome.Problem, reason, message string) Ready {
	if p == nil {
		return Ready{Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	return Ready{Status: metav1.ConditionFalse, Reason: p.Reason, Message: p.Message, Stalled: p.Class.NeedsAction()}
}

// NotReady is False for a reason that passes by itself.
func NotReady(reason, message string) Ready {
	return Ready{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// SetOn writes the conditions Ready and Stalled.
func (r Ready) SetOn(all *[]metav1.Condition, generation int64, now time.Time) {
	conditions.Upsert(all, generation, now, metav1.Condition{Type: ConditionReady, Status: r.Status, Reason: r.Reason, Message: r.Message})
	if r.Stalled {
		conditions.Upsert(all, generation, now, metav1.Condition{Type: ConditionStalled, Status: metav1.ConditionTrue, Reason: r.Reason, Message: r.Message})
		return
	}
	meta.RemoveStatusCondition(all, ConditionStalled)
}
