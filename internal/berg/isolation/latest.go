package isolation

import (
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Latest is the result of the newest check of this process that had one. The status of
// instances shows it.
type Latest struct {
	status  atomic.Pointer[metav1.ConditionStatus]
	changed chan event.GenericEvent
}

// NewLatest returns a Latest that is unknown.
func NewLatest() *Latest {
	return &Latest{changed: make(chan event.GenericEvent, 1)}
}

// Enforced is whether the cluster enforces the network policies of instances: Unknown until a
// check of this process found out.
func (v *Latest) Enforced() metav1.ConditionStatus {
	if status := v.status.Load(); status != nil {
		return *status
	}
	return metav1.ConditionUnknown
}

// Source sends one event when it changes.
func (v *Latest) Source(to handler.EventHandler) source.Source {
	return source.Channel(v.changed, to)
}

// set ignores a check without a result: it says nothing about the cluster.
func (v *Latest) set(status metav1.ConditionStatus) {
	if status == metav1.ConditionUnknown || status == v.Enforced() {
		return
	}
	v.status.Store(&status)
	select {
	case v.changed <- event.GenericEvent{Object: &bergv1.ChallengeInstance{}}:
	default: // the previous event has not been read, and the resources that it enqueues read this result
	}
}
