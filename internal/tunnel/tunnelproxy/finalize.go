package tunnelproxy

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	tunnelv1 "github.com/bergctf/berg-operator/api/tunnel/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// finalize carries out the deletion of a pair, from whatever state it is in: what is under way
// is completed, then tunnels, proxies and all that belongs to them go.
func (r *Reconciler) finalize(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) error {
	if !controllerutil.ContainsFinalizer(p, tunnelv1.Finalizer) || r.finalizers.Done(p) {
		return nil
	}
	// These only wait for what will not be needed.
	r.work.Cancel(p.UID, workReady)
	r.work.Cancel(p.UID, workPing)
	r.work.Withdraw(p.UID)
	if r.work.Busy(p.UID) {
		return r.tell(ctx, p, "What is under way is completed first", now) // its end wakes us
	}
	if done, err := r.sayGoodbye(ctx, p, now); err != nil || !done {
		return err
	}
	gone, err := r.tearDown(ctx, p, false)
	if err != nil {
		if problem := problemOf(tunnelv1.ConditionProxiesReady, err, r.Namespace); problem.Class != outcome.Stale {
			return reconcile.Join(err, r.tell(ctx, p, problem.Message, now))
		}
		return err
	}
	if !gone {
		return r.tell(ctx, p, "The proxies are ending", now) // their events wake us
	}
	if err := r.finalizers.Remove(ctx, r.Client, p, tunnelv1.Finalizer); err != nil {
		return err
	}
	r.work.Forget(p.UID)
	r.memory.forget(p.UID)
	return nil
}

// sayGoodbye has the proxies of a pair that runs delete their tunnels and end, once; it
// reports whether that is over, whatever came of it.
func (r *Reconciler) sayGoodbye(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, now time.Time) (done bool, err error) {
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
	keys, err := r.keys(ctx, p, o.namespace(), now)
	if err != nil {
		return true, nil //nolint:nilerr // without keys nobody can be called: pods are deleted anyway
	}
	if !r.shutDown(o, keys) { //nolint:contextcheck // the work outlives the pass
		return false, r.tell(ctx, p, "Tunnels are being deleted", now)
	}
	return true, nil
}

// tell writes what a deletion waits for.
func (r *Reconciler) tell(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, why string, now time.Time) error {
	before := p.DeepCopy()
	computeTerminating(p, why, now)
	// A status that is refused keeps nobody.
	if err := r.patchStatus(ctx, before, p); err != nil && outcome.CauseOf(err) != outcome.Rejected {
		return err
	}
	return nil
}

// tearDown ends both proxies, and deletes all that belongs to a pair when they have ended. It
// reports whether nothing is left.
func (r *Reconciler) tearDown(ctx context.Context, p *tunnelv1.ContainerNetworkTunnelProxy, keepLogs bool) (gone bool, err error) {
	// Of all backends: the setting may have been another one when the server proxy was started.
	serverGone := true
	for _, b := range r.backends {
		gone, err := b.stop(ctx, p)
		if err != nil {
			return false, inOwnNamespace(err)
		}
		serverGone = serverGone && gone
	}
	clientGone, err := stopPods(ctx, r.Writer, p, "")
	if err != nil || !serverGone || !clientGone {
		return false, err
	}
	owner, none := ownerOf(p), func(types.NamespacedName) bool { return false }
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}} {
		if err := apply.Prune(ctx, r.Writer, owner, list, "", none); err != nil {
			return false, err
		}
	}
	namespace, err := r.usableNamespace(ctx, p)
	if err != nil {
		return false, err
	}
	if err := r.dropSecrets(ctx, p, namespace); err != nil {
		return false, err
	}
	var errs []error
	for _, b := range r.backends {
		errs = append(errs, b.clean(p, keepLogs))
	}
	return true, errors.Join(errs...)
}

// usableNamespace returns the namespace of a pair's network; "" if that is gone, or about to be:
// then everything in it goes with it, and the operator has no rights there.
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

// reportGone tells that a pair has ended.
func (r *Reconciler) reportGone(p *tunnelv1.ContainerNetworkTunnelProxy, why string) {
	failed.Inc()
	reconcile.Warning(r.Events, p, tunnelv1.ReasonFailed, actionObserve, why)
}
