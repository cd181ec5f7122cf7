package tunnelproxy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
)

// The actions that events name: the operation in progress.
const (
	actionCreate  = "Create"
	actionObserve = "Observe"
)

// report records the differences between two statuses of a live pair, each change once.
func (r *Reconciler) report(_ context.Context, before, p *tunnelv1.ContainerNetworkTunnelProxy, out status.Outcome, _ outcome.Problems, now time.Time) {
	was, current := before.Status, p.Status
	if was.State != current.State {
		switch current.State {
		case tunnelv1.StateEmpty, tunnelv1.StatePending:
		case tunnelv1.StateBuildingImage:
			reconcile.Normal(r.Events, p, tunnelv1.ReasonImageBuilding, actionCreate, current.Message)
		case tunnelv1.StateStarting:
			reconcile.Normal(r.Events, p, tunnelv1.ReasonProxiesStarting, actionCreate, "The proxies are being started with image "+out.Image)
		case tunnelv1.StateRunning:
			timeToRunning.Observe(reconcile.Elapsed(p.CreationTimestamp.Time, now).Seconds())
			reconcile.Normal(r.Events, p, tunnelv1.ReasonProxiesReady, actionCreate, "Both proxies run")
		case tunnelv1.StateFailed:
			failed.Inc()
			reconcile.Warning(r.Events, p, tunnelv1.ReasonFailed, actionObserve, current.Message)
			return
		}
	}
	r.reportTunnels(p, was.TunnelStatuses, current.TunnelStatuses)
	if c := meta.FindStatusCondition(current.Conditions, tunnelv1.ConditionServerReachable); c != nil && c.Reason == tunnelv1.ReasonServerUnreachable {
		r.kind.Warn(before, p, c.Type, c.Reason, actionObserve, c.Message)
	}
	if c := meta.FindStatusCondition(current.Conditions, tunnelv1.ConditionNetworkReady); c != nil && c.Reason == tunnelv1.ReasonNetworkGone {
		r.kind.Warn(before, p, c.Type, c.Reason, actionObserve, c.Message)
	}
}

// reportTunnels records which tunnels became ready, or failed.
func (r *Reconciler) reportTunnels(p *tunnelv1.ContainerNetworkTunnelProxy, before, after []tunnelv1.TunnelStatus) {
	was := map[string]tunnelv1.TunnelStatus{}
	for _, t := range before {
		was[t.Name] = t
	}
	for _, t := range after {
		old := was[t.Name]
		switch {
		case t.State == tunnelv1.TunnelReady && (old.State != t.State || old.TunnelID != t.TunnelID):
			prepared.Inc()
			reconcile.Normal(r.Events, p, tunnelv1.ReasonTunnelReady, actionCreate, fmt.Sprintf("Tunnel %s accepts connections at port %d", t.Name, t.ClientProxyPort))
		case t.State == tunnelv1.TunnelFailed && (old.State != t.State || old.ErrorMessage != t.ErrorMessage):
			unprepared.Inc()
			reconcile.Warning(r.Events, p, tunnelv1.ReasonTunnelFailed, actionCreate, fmt.Sprintf("Tunnel %s: %s", t.Name, t.ErrorMessage))
		}
	}
}
