package challengeinstance

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// Observed is everything outside the instance that decides what happens to it.
type Observed struct {
	// Challenge is nil when it does not exist.
	Challenge *bergv1.Challenge
	// Namespace is nil when it does not exist.
	Namespace *corev1.Namespace
	// Siblings are the other instances of the same owner.
	Siblings []bergv1.ChallengeInstance
	// Pods of the instance's namespace.
	Pods []corev1.Pod
}

// The indexes of the cache of ChallengeInstances.
const (
	indexOwner     = "spec.ownerId"
	indexChallenge = "spec.challengeRef"
)

func (r *Reconciler) observe(ctx context.Context, instance *bergv1.ChallengeInstance) (Observed, error) {
	var o Observed

	challenge := &bergv1.Challenge{}
	switch err := r.Client.Get(ctx, r.challengeKey(instance), challenge); {
	case err == nil:
		o.Challenge = challenge
	case !apierrors.IsNotFound(err):
		return o, err
	}

	ns, err := r.observeNamespace(ctx, instance)
	if err != nil {
		return o, err
	}
	o.Namespace = ns

	var siblings bergv1.ChallengeInstanceList
	if err := r.Client.List(ctx, &siblings,
		client.MatchingFields{indexOwner: instance.Spec.OwnerID},
		client.DisableReadYourWritesConsistency); err != nil {
		return o, err
	}
	for _, s := range siblings.Items {
		if s.UID != instance.UID {
			o.Siblings = append(o.Siblings, s)
		}
	}
	return o, nil
}

// observeNamespace returns the namespace of the instance's owner, nil if there
// is none.
func (r *Reconciler) observeNamespace(ctx context.Context, instance *bergv1.ChallengeInstance) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, types.NamespacedName{Name: NamespaceName(instance.Spec.OwnerID)}, ns)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// observePods lists the pods of the instance. The operator never writes pods, so
// there is no write of its own to wait for.
func (r *Reconciler) observePods(ctx context.Context, instance *bergv1.ChallengeInstance) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods,
		client.InNamespace(NamespaceName(instance.Spec.OwnerID)),
		client.MatchingLabels{bergv1.LabelManagedBy: bergv1.ManagedBy, bergv1.LabelComponent: bergv1.ComponentPod},
		client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// challengeKey is where the instance's Challenge is looked for.
func (r *Reconciler) challengeKey(instance *bergv1.ChallengeInstance) types.NamespacedName {
	return types.NamespacedName{
		Namespace: cmp.Or(instance.Spec.ChallengeRef.Namespace, r.Config.Challenge.Namespace),
		Name:      instance.Spec.ChallengeRef.Name,
	}
}
