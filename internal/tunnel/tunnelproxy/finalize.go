package tunnelproxy

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
	"github.com/bergctf/berg-operator/internal/tunnel/pairobjects"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/backend"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/status"
	"github.com/bergctf/berg-operator/internal/tunnel/tunnelproxy/tunnelsync"
)

// finalize brings the deletion of a pair a step further, from any state: jobs that run are completed, then tunnels, proxies
// and all that belongs to them are deleted.
func (r *Reconciler) finalize(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (done bool, never time.Duration, err error) {
	// These jobs wait for a state that a deletion no longer needs.
	r.jobs.Cancel(p.UID, backend.JobReady)
	r.jobs.Cancel(p.UID, jobPing)
	r.jobs.Withdraw(p.UID)
	if r.jobs.Busy(p.UID) {
		return false, never, r.patchTerminating(ctx, p, "Waiting for the operation in progress", now) // its end triggers the next reconciliation
	}
	// The proxies are asked to end before their pods are deleted, so that open streams are drained.
	if done, err := r.shutDown(ctx, p, now); err != nil || !done {
		return false, never, err
	}
	gone, err := r.tearDown(ctx, p, false)
	if err != nil {
		if problem := status.NewProblem(tunnelv1.ConditionProxiesReady, err, r.Namespace); problem.Class != outcome.Stale {
			return false, never, reconcile.Join(err, r.patchTerminating(ctx, p, problem.Message, now))
		}
		return false, never, err
	}
	if !gone {
		return false, never, r.patchTerminating(ctx, p, "Waiting for the proxies to end", now) // their events trigger the next reconciliation
	}
	r.forget(p.UID)
	return true, never, nil
}

// shutDown has the proxies of a pair that runs delete their tunnels and end, if they answer. It reports whether that is
// over.
func (r *Reconciler) shutDown(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (done bool, err error) {
	if p.Status.State != tunnelv1.StateRunning {
		return true, nil
	}
	o, err := r.observe(ctx, p)
	if err != nil {
		return false, err
	}
	if o.Client == nil || o.Client.DeletionTimestamp != nil || o.Server.Ended != "" || o.Server.Ready == nil {
		return true, nil
	}
	keys, err := r.credentials.Keys(ctx, p, o.Namespace(), now)
	if err != nil {
		return true, nil //nolint:nilerr // without keys no proxy can be called; the pods are deleted anyway
	}
	if !tunnelsync.ShutDown(r.jobs, o.Observed, r.Config, keys.Controller, now) { //nolint:contextcheck // the job outlives the reconciliation
		return false, r.patchTerminating(ctx, p, "Waiting for the tunnels to be deleted", now)
	}
	return true, nil
}

// patchTerminating writes the reason why a deletion waits. A status that the API server refuses does not hold up the
// deletion.
func (r *Reconciler) patchTerminating(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, message string, now time.Time) error {
	before := p.DeepCopy()
	status.ComputeTerminating(p, message, now)
	if err := r.kind.PatchStatus(ctx, before, p, now); err != nil && outcome.Classify(err) != outcome.Rejected {
		return err
	}
	return nil
}

// tearDown ends both proxies, and then deletes all that belongs to a pair. It reports whether nothing is left. The order matters:
// the policy stays until the last pod is gone, and the Secrets until no proxy reads them.
func (r *Reconciler) tearDown(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) (gone bool, err error) {
	// The setting may have changed since the server proxy was started, so all backends are asked.
	serverGone := true
	for _, b := range r.backends.All {
		gone, err := b.Stop(ctx, p)
		if err != nil {
			return false, status.InOwnNamespace(err)
		}
		serverGone = serverGone && gone
	}
	clientGone, err := backend.StopPods(ctx, r.Writer, p, "")
	if err != nil || !serverGone || !clientGone {
		return false, err
	}
	// The policy has no owner, so one that was written a moment ago must not be missed: this list waits for it.
	if err := r.Client.List(ctx, &networkingv1.NetworkPolicyList{}, client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	owner, none := pairobjects.OwnerFor(p), func(types.NamespacedName) bool { return false }
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
		if err := apply.Prune(ctx, r.Writer, owner, list, "", none); err != nil {
			return false, err
		}
	}
	namespace, err := r.usableNamespace(ctx, p)
	if err != nil {
		return false, err
	}
	if err := r.credentials.Delete(ctx, p, namespace); err != nil {
		return false, err
	}
	var errs []error
	for _, b := range r.backends.All {
		errs = append(errs, b.Clean(p, keepLogs))
	}
	return true, errors.Join(errs...)
}

// usableNamespace returns the namespace of a pair's network, "" if it is gone or being deleted. Then all in it is deleted
// too, and the operator has no rights there.
func (r *Reconciler) usableNamespace(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy) (string, error) {
	n := &tunnelv1.ContainerNetwork{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: p.Spec.ContainerNetworkName}, n); err != nil {
		return "", apply.IgnoreAbsent(err)
	}
	if n.Status.NetworkName == "" || n.Status.ID == "" {
		return "", nil
	}
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: n.Status.NetworkName}, ns); err != nil {
		return "", apply.IgnoreAbsent(err)
	}
	if ns.DeletionTimestamp != nil || string(ns.UID) != n.Status.ID {
		return "", nil
	}
	return ns.Name, nil
}
