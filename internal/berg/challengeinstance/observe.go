package challengeinstance

import (
	"cmp"
	"context"
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
	"github.com/bergctf/berg-operator/internal/berg/sealkey"
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
)

func (r *Reconciler) observe(ctx context.Context, instance *bergv1.ChallengeInstance) (status.Observed, error) {
	o := status.Observed{Policies: r.policies(ctx), Enforced: r.Isolation.Enforced()}
	ring, err := r.Keys.Ring(ctx)
	if err != nil {
		return o, err
	}
	if o.Candidate, err = r.observeCandidate(ctx, instance, ring); err != nil {
		return o, err
	}
	if o.Namespace, err = r.observeNamespace(ctx, instance.Spec.OwnerID); err != nil {
		return o, err
	}
	o.Deployments, err = r.observeDeployments(ctx, o.Candidate)
	return o, err
}

// observeDeployments reads those of the containers that the instance was started with.
func (r *Reconciler) observeDeployments(ctx context.Context, c status.Candidate) (map[string]*appsv1.Deployment, error) {
	if c.Pinned == nil {
		return nil, nil
	}
	all := make(map[string]*appsv1.Deployment, len(c.Pinned.Containers))
	for _, container := range c.Pinned.Containers {
		d := &appsv1.Deployment{}
		key := types.NamespacedName{Namespace: manifests.NamespaceName(c.Instance.Spec.OwnerID), Name: container.Hostname}
		err := r.Client.Get(ctx, key, d)
		if err == nil && cache.Reduced(d) { // what it runs is not known
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

// observeCandidate needs no keys for what everyone may read of the snapshot.
func (r *Reconciler) observeCandidate(ctx context.Context, instance *bergv1.ChallengeInstance, ring *sealkey.Ring) (status.Candidate, error) {
	c := status.Candidate{Instance: instance, Key: r.challengeKey(instance)}
	challenge := &bergv1.Challenge{}
	switch err := r.Client.Get(ctx, c.Key, challenge); {
	case err == nil:
		c.Challenge = challenge
	case !apierrors.IsNotFound(err):
		return c, err
	}
	var err error
	if c.Nodes, err = nodes.Observe(ctx, r.Client, r.Config.Challenge); err != nil {
		return c, err
	}
	c.Pinned, err = manifests.StoredSnapshot(instance, ring)
	return c, err
}

// observeNamespace returns the namespace of an owner, nil if there is none.
func (r *Reconciler) observeNamespace(ctx context.Context, ownerID string, opts ...client.GetOption) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: manifests.NamespaceName(ownerID)}, ns, opts...)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// observeOutcome adds the instance's Deployments as they are now.
func (r *Reconciler) observeOutcome(ctx context.Context, o *status.Observed) error {
	var err error
	if o.Pods, err = r.observePods(ctx, o.Candidate); err != nil {
		return err
	}
	r.compareImages(ctx, o)
	if !slices.ContainsFunc(o.Pods, func(p corev1.Pod) bool { return !status.PodReady(&p) }) {
		return nil // most are
	}
	o.Sandboxes, err = r.observeSandboxes(ctx, manifests.NamespaceName(o.Instance.Spec.OwnerID))
	return err
}

// observePods lists the pods of the instance. The operator deletes pods only with their namespace, so
// there is no write of its own to wait for; and the cache may still show those of the
// instance before, in a namespace of the same name.
func (r *Reconciler) observePods(ctx context.Context, c status.Candidate) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods,
		client.InNamespace(manifests.NamespaceName(c.Instance.Spec.OwnerID)),
		client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod},
		client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	if c.Pinned == nil || c.Pinned.Defaults == nil || !c.Pinned.Defaults.AnnotatedPods {
		return pods.Items, nil
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Annotations[bergv1.LabelInstanceID] != c.Instance.Status.InstanceID
	}), nil
}

// compareImages finds out which images of an instance newer ones do not run any more. When this one is the first with a newer
// image, the others are enqueued.
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

// challengeKey is where the instance's Challenge is looked for.
func (r *Reconciler) challengeKey(instance *bergv1.ChallengeInstance) types.NamespacedName {
	return types.NamespacedName{
		Namespace: cmp.Or(instance.Spec.ChallengeRef.Namespace, r.Config.Challenge.Namespace),
		Name:      instance.Spec.ChallengeRef.Name,
	}
}

// observeSandboxes returns by pod why the runtime refuses its sandbox, of the latest try.
func (r *Reconciler) observeSandboxes(ctx context.Context, name string) (map[types.UID]string, error) {
	var events eventsv1.EventList
	if err := r.Client.List(ctx, &events, client.InNamespace(name), client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	return status.LatestFailures(events.Items), nil
}
