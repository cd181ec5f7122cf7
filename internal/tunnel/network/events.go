package network

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/elapsed"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions of events: what the operator was doing.
const (
	actionCreate  = "Create"
	actionObserve = "Observe"
	actionDelete  = "Delete"
)

// report tells what changed between two statuses of a live network, each thing once.
func (r *Reconciler) report(before, n *tunnelv1.ContainerNetwork) {
	if before.Status.State != tunnelv1.NetworkRunning && n.Status.State == tunnelv1.NetworkRunning {
		if before.Status.State == "" || before.Status.State == tunnelv1.NetworkPending {
			timeToRunning.Observe(elapsed.Since(n.CreationTimestamp.Time, r.Clock.Now()).Seconds())
		}
		reconcile.Normal(r.Events, n, tunnelv1.ReasonNetworkReady, actionCreate, n.Status.Message)
	}
	for _, c := range n.Status.Conditions {
		if c.Status == metav1.ConditionFalse && c.Reason != tunnelv1.ReasonWaiting && conditions.Transitioned(before.Status.Conditions, c) {
			reconcile.Warning(r.Events, n, c.Reason, actionObserve, c.Message)
		}
	}
}
