package challengeinstance

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
	"github.com/bergctf/berg-operator/internal/berg/nodes"
	"github.com/bergctf/berg-operator/internal/berg/revisions"
	"github.com/bergctf/berg-operator/internal/berg/view"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/cache"
)

// The indexes of the cache of ChallengeInstances.
const (
	indexOwner     = "spec.ownerId"
	indexChallenge = "spec.challengeRef"
	// indexPending has, under the value isPending, the instances that were not started.
	indexPending = "pending"
	isPending    = "true"
	// indexNamespace has the namespace of each instance.
	indexNamespace = "status.namespace"
	// indexPrepared has, under the value isPending, the prepared instances, and indexClaim the UID of the instance that takes one
	// over.
	indexPrepared = "prepared"
	indexClaim    = "status.claimedBy"
)

// observe reads all objects and settings that decide about an instance. Only steps that need certainty read again, from the
// API server: adopt the Challenge, prepareNamespace the namespace, and retryRefused a Deployment.
func (r *Reconciler) observe(ctx context.Context, instance *bergv1.ChallengeInstance) (out status.Outcome, err error) {
	o := &out.Observed
	o.Policies, o.Enforced, o.Published = r.policies(ctx), r.Isolation.Enforced(), view.PublicCause(instance)
	if o.Candidate, err = r.observeCandidate(ctx, instance); err != nil {
		return out, err
	}
	if o.Namespace, err = r.observeNamespace(ctx, manifests.NamespaceFor(instance)); err != nil {
		return out, err
	}
	if o.Deployments, err = r.observeDeployments(ctx, o.Candidate); err != nil {
		return out, err
	}
	if o.Pods, err = r.observePods(ctx, instance); err != nil {
		return out, err
	}
	o.Listeners = r.Config.Gateway
	if o.Ways, err = r.observeWays(ctx, o.Candidate); err != nil {
		return out, err
	}
	r.compareImages(ctx, o)
	// Pods that are ready have a sandbox, and most reconciliations are about those.
	if slices.ContainsFunc(o.Pods, func(p corev1.Pod) bool { return !status.PodReady(&p) }) {
		o.Sandboxes, err = r.observeSandboxes(ctx, manifests.NamespaceFor(instance))
	}
	return out, err
}

// observeDeployments reads the Deployments of the containers that the instance was started with.
func (r *Reconciler) observeDeployments(ctx context.Context, c status.Candidate) (map[string]*appsv1.Deployment, error) {
	if c.Pinned == nil {
		return nil, nil
	}
	all := make(map[string]*appsv1.Deployment, len(c.Pinned.Containers))
	for _, container := range c.Pinned.Containers {
		d := &appsv1.Deployment{}
		key := types.NamespacedName{Namespace: manifests.NamespaceFor(c.Instance), Name: container.Hostname}
		err := r.Client.Get(ctx, key, d)
		if err == nil && cache.Reduced(d) { // the cache has dropped its content, which is too large
			err = r.Live.Get(ctx, key, d)
		}
		switch {
		case err == nil && manifests.OwnerFor(c.Instance).Owns(d):
			all[container.Hostname] = d
		case apply.IgnoreAbsent(err) != nil:
			return nil, err
		}
	}
	return all, nil
}

// observeCandidate reads the Challenge of an instance and the content of its start.
func (r *Reconciler) observeCandidate(ctx context.Context, instance *bergv1.ChallengeInstance) (c status.Candidate, err error) {
	c = status.Candidate{Instance: instance, Key: r.challengeKey(instance), Prepared: r.isPrepared(instance)}
	if c.Challenge, err = apply.Found(ctx, r.Client, c.Key, &bergv1.Challenge{}); err != nil {
		return c, err
	}
	if c.Nodes, err = nodes.Observe(ctx, r.Client, r.Config.Challenge); err != nil {
		return c, err
	}
	name := instance.Status.ChallengeRevision
	if name == "" {
		return c, nil
	}
	c.Pinned, err = r.Revisions.Read(ctx, name)
	if unreadable := (*revisions.UnreadableError)(nil); errors.As(err, &unreadable) {
		c.Unreadable = unreadable
		return c, nil
	}
	return c, err
}

// isPrepared reports whether the operator made an instance for players to come. Only administrators and the operator may write
// in its namespace, so the label can be trusted there.
func (r *Reconciler) isPrepared(o client.Object) bool {
	return o.GetNamespace() == r.Namespace && o.GetLabels()[bergv1.LabelPrepared] != ""
}

// settings returns the configuration, adapted to the features of the nodes.
func (r *Reconciler) settings(o status.Observed) config.Challenge {
	return o.Nodes.Apply(r.Config.Challenge)
}

// observeNamespace returns a namespace, nil if there is none of that name.
func (r *Reconciler) observeNamespace(ctx context.Context, name string, opts ...client.GetOption) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: name}, ns, opts...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// observePods lists the pods of the instance. The operator deletes pods only with their namespace, so the list need not
// wait for its own writes. The cache may still show pods of the previous instance in a namespace of the same name: the
// instance ID excludes them.
func (r *Reconciler) observePods(ctx context.Context, instance *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods,
		client.InNamespace(manifests.NamespaceFor(instance)),
		client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod},
		client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Annotations[bergv1.LabelInstanceID] != instance.Status.InstanceID
	}), nil
}

// compareImages finds out which images of an instance newer instances do not run any more. If this instance is the first
// with a newer image, the other instances of the Challenge are enqueued.
func (r *Reconciler) compareImages(ctx context.Context, o *status.Observed) {
	if o.Challenge == nil {
		r.images.Forget(o.Key)
		return
	}
	anyChanged := false
	for name, running := range status.RunningImages(*o) {
		newest, changed := r.images.Note(o.Key, name, running)
		anyChanged = anyChanged || changed
		if newest != running.Digest {
			if o.Replaced == nil {
				o.Replaced = map[string]string{}
			}
			o.Replaced[name] = newest
		}
	}
	if anyChanged {
		for _, request := range r.requests(ctx, indexChallenge, o.Key.String(), isBuilt) {
			r.enqueue(request)
		}
	}
}

// challengeKey names the Challenge of an instance.
func (r *Reconciler) challengeKey(instance *bergv1.ChallengeInstance) types.NamespacedName {
	return status.ChallengeKey(instance, r.Config.Challenge)
}

// observeSandboxes returns, by pod, why the runtime refused its sandbox at the latest attempt.
func (r *Reconciler) observeSandboxes(ctx context.Context, name string) (map[types.UID]string, error) {
	var events eventsv1.EventList
	if err := r.Client.List(ctx, &events, client.InNamespace(name), client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	return status.LatestFailures(events.Items), nil
}
