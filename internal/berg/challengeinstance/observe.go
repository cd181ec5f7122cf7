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
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// The indexes of the cache of ChallengeInstances.
const (
	indexOwner     = "spec.ownerId"
	indexChallenge = "spec.challengeRef"
)

func (r *Reconciler) observe(ctx context.Context, instance *bergv1.ChallengeInstance) (status.Observed, error) {
	o := status.Observed{Policies: r.policies(ctx)}
	var err error
	if o.Candidate, err = r.observeCandidate(ctx, instance); err != nil {
		return o, err
	}
	if o.Namespace, err = r.observeNamespace(ctx, instance); err != nil {
		return o, err
	}
	siblings, err := r.siblings(ctx, instance)
	if err != nil {
		return o, err
	}
	o.Holder = status.Holder(o.Namespace, siblings)
	contends := r.contends(ctx)
	if o.Ahead = status.Ahead(instance, siblings, contends.holds); contends.err != nil {
		return o, contends.err
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
		switch err := r.Client.Get(ctx, key, d); {
		case err == nil && manifests.OwnerOf(c.Instance).Owns(d):
			all[container.Hostname] = d
		case apply.IgnoreAbsent(err) != nil:
			return nil, err
		}
	}
	return all, nil
}

func (r *Reconciler) observeCandidate(ctx context.Context, instance *bergv1.ChallengeInstance, opts ...client.GetOption) (status.Candidate, error) {
	c := status.Candidate{Instance: instance, Key: r.challengeKey(instance)}
	challenge := &bergv1.Challenge{}
	switch err := r.Client.Get(ctx, c.Key, challenge, opts...); {
	case err == nil:
		c.Challenge = challenge
	case !apierrors.IsNotFound(err):
		return c, err
	}
	var err error
	c.Pinned, err = manifests.StoredSnapshot(instance)
	return c, err
}

// siblings returns the other instances of the same owner. They are those of the cache: not
// to be changed.
func (r *Reconciler) siblings(ctx context.Context, instance *bergv1.ChallengeInstance) ([]*bergv1.ChallengeInstance, error) {
	var all bergv1.ChallengeInstanceList
	if err := r.Client.List(ctx, &all, client.MatchingFields{indexOwner: instance.Spec.OwnerID},
		client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	siblings := make([]*bergv1.ChallengeInstance, 0, len(all.Items))
	for i := range all.Items {
		if all.Items[i].UID != instance.UID {
			siblings = append(siblings, &all.Items[i])
		}
	}
	return siblings, nil
}

// contenders tells which instances would be built if each were alone. Of hundreds nearly
// all ask for the same: each such thing is judged once.
type contenders struct {
	*Reconciler
	ctx      context.Context
	verdicts map[wish]bool
	// err is what kept one from being judged; it counts as one that would.
	err error
}

// wish is all that decides about an instance that was not started, beside its Challenge.
type wish struct {
	challenge types.NamespacedName
	namespace string
	flag      bool
}

func (r *Reconciler) contends(ctx context.Context) *contenders {
	return &contenders{Reconciler: r, ctx: ctx, verdicts: map[wish]bool{}}
}

func (c *contenders) holds(i *bergv1.ChallengeInstance) bool {
	if !status.MayContend(i) {
		return false
	}
	w := wish{c.challengeKey(i), i.Namespace, i.Spec.Flag != ""}
	verdict, known := c.verdicts[w]
	if known && i.Status.ChallengeSnapshot == nil {
		return verdict
	}
	found, err := c.observeCandidate(c.ctx, i, client.UnsafeDisableDeepCopy)
	if err != nil {
		c.err = err
		return true
	}
	verdict = status.CheckAlone(found, c.Config.Challenge) == nil
	if found.Pinned == nil {
		c.verdicts[w] = verdict
	}
	return verdict
}

// observeNamespace returns the namespace of the instance's owner, nil if there
// is none.
func (r *Reconciler) observeNamespace(ctx context.Context, instance *bergv1.ChallengeInstance) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: manifests.NamespaceName(instance.Spec.OwnerID)}, ns)
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
	if !slices.ContainsFunc(o.Pods, func(p corev1.Pod) bool { return !status.PodReady(&p) }) {
		return nil // most are
	}
	o.Sandboxes, err = r.observeSandboxes(ctx, manifests.NamespaceName(o.Instance.Spec.OwnerID))
	return err
}

// observePods lists the pods of the instance. The operator never writes pods, so
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
	if c.Pinned == nil || c.Pinned.Defaults == nil || !c.Pinned.Defaults.MarkedPods {
		return pods.Items, nil
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Annotations[bergv1.LabelInstanceID] != c.Instance.Status.InstanceID
	}), nil
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
