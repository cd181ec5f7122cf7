package tunnelproxy

import (
	"fmt"
	"time"

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
)

// report tells what changed between two statuses of a live pair, each thing once.
func (r *Reconciler) report(before *tunnelv1.ContainerNetworkTunnelProxy, out Outcome, now time.Time) {
	p := out.Proxy
	was, is := before.Status, p.Status
	if was.State != is.State {
		switch is.State {
		case tunnelv1.StateEmpty, tunnelv1.StatePending:
		case tunnelv1.StateBuildingImage:
			reconcile.Normal(r.Events, p, tunnelv1.ReasonImageBuilding, actionCreate, is.Message)
		case tunnelv1.StateStarting:
			reconcile.Normal(r.Events, p, tunnelv1.ReasonProxiesStarting, actionCreate, "The proxies are being started with image "+out.Image)
		case tunnelv1.StateRunning:
			timeToRunning.Observe(elapsed.Since(p.CreationTimestamp.Time, now).Seconds())
			reconcile.Normal(r.Events, p, tunnelv1.ReasonProxiesReady, actionCreate, "Both proxies run")
		case tunnelv1.StateFailed:
			r.reportGone(p, is.Message)
			return
		}
	}
	r.reportTunnels(p, was.TunnelStatuses, is.TunnelStatuses)
	for _, c := range is.Conditions {
		if c.Status != metav1.ConditionFalse || !conditions.Transitioned(was.Conditions, c) || c.Type == tunnelv1.ConditionTunnelsReady ||
			c.Reason == tunnelv1.ReasonProxiesStarting || c.Reason == tunnelv1.ReasonImageBuilding {
			continue
		}
		reconcile.Warning(r.Events, p, c.Reason, actionObserve, c.Message)
	}
}

// reportTunnels tells which tunnels became ready, or failed.
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
