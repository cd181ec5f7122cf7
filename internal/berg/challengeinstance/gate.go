package challengeinstance

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/reach"
	"github.com/bergctf/berg-operator/internal/kit/gateadmin"
)

// gateLabels select the EndpointSlices of the gate in the operator's own namespace: each has the labels of its Service.
var gateLabels = labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": gateadmin.Name})

// absence is since when no replica of the gate is ready. It is kept in memory: after a restart the time begins again, and the
// status reports an absent gate later, never sooner.
type absence struct {
	mu    sync.Mutex
	since time.Time
}

// observe returns since when there is none, zero while there is one.
func (a *absence) observe(absent bool, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !absent:
		a.since = time.Time{}
	case a.since.IsZero():
		a.since = now
	}
	return a.since
}

// replicasChanged passes EndpointSlices of the gate whose replicas that are ready have changed.
var replicasChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !slices.Equal(readyReplicas(e.ObjectOld.(*discoveryv1.EndpointSlice)), readyReplicas(e.ObjectNew.(*discoveryv1.EndpointSlice)))
}}

// readyReplicas returns the addresses at which replicas of the gate answer. An address of a host itself belongs to none.
func readyReplicas(slice *discoveryv1.EndpointSlice) (all []string) {
	for _, port := range slice.Ports {
		if ptr.Deref(port.Name, "") != gateadmin.Port || port.Port == nil {
			continue
		}
		for n := range slice.Endpoints {
			e := &slice.Endpoints[n]
			if !ptr.Deref(e.Conditions.Ready, true) || len(e.Addresses) == 0 {
				continue
			}
			if address, err := netip.ParseAddr(e.Addresses[0]); err == nil && address.IsGlobalUnicast() {
				all = append(all, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
			}
		}
	}
	slices.Sort(all)
	return all
}

// observeGate reads which replicas of the gate are ready.
func (r *Reconciler) observeGate(ctx context.Context) (*status.Gate, error) {
	var found discoveryv1.EndpointSliceList
	if err := r.gateways.List(ctx, &found, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("read the replicas of the gate: %w", err)
	}
	g := &status.Gate{Namespace: r.Namespace}
	for n := range found.Items {
		g.Replicas = append(g.Replicas, readyReplicas(&found.Items[n])...)
	}
	slices.Sort(g.Replicas)
	g.Replicas = slices.Compact(g.Replicas)
	g.AbsentSince = r.gateways.absence.observe(len(g.Replicas) == 0, r.Clock.Now())
	return g, nil
}

// askGate asks each replica of the gate whether it serves an instance, and reports whether the instance waits for that. Where the
// operator reaches no replica, the status of the route decides.
func (r *Reconciler) askGate(out *status.Outcome, hosts []status.AskedHost, key types.NamespacedName, requeue func()) (waits bool) {
	if len(hosts) == 0 {
		return false
	}
	q := reach.Question{Namespace: manifests.NamespaceFor(out.Instance), Replicas: out.Ways.Gate.Replicas}
	for _, host := range hosts {
		q.Hosts = append(q.Hosts, reach.Host(host))
	}
	switch answer := r.Reach.Ask(key, out.Instance.UID, q, requeue); {
	case answer.Pending:
		return true
	case answer.Served:
		out.Gate = status.ConnectionMade
	case answer.Problem != "":
		out.Unserved = status.NewUnserved(out.Ways.Gateway, answer.Problem, answer.Unreached)
	default:
		out.Gate = status.ConnectionNotMade
	}
	return false
}
