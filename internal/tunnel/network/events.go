package network

import (
	"context"
	"time"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// The actions that events name: the operation in progress.
const (
	actionCreate = "Create"
	actionDelete = "Delete"
)

// report records that a network started to run.
func (r *Reconciler) report(_ context.Context, before, n *tunnelv1.ContainerNetwork, _ Observed, _ outcome.Problems, _ time.Time) {
	if before.Status.State == tunnelv1.NetworkRunning || n.Status.State != tunnelv1.NetworkRunning {
		return
	}
	if before.Status.State == "" || before.Status.State == tunnelv1.NetworkPending {
		timeToRunning.Observe(reconcile.Elapsed(n.CreationTimestamp.Time, r.Clock.Now()).Seconds())
	}
	reconcile.Normal(r.Events, n, tunnelv1.ReasonNetworkReady, actionCreate, n.Status.Message)
}
