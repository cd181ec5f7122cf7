package challengeinstance

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// copyPullSecret gives the instance a copy of the configured pull secret before
// its Deployments are created. The operator may read one Secret, in its own
// namespace, and create Secrets, but neither list nor watch them: so it does this
// only while a Deployment is missing, and again when an image cannot be pulled,
// which tells of a copy that was deleted. A missing source is reported and does not
// stop the instance: the image may be public.
func (r *Reconciler) copyPullSecret(ctx context.Context, instance *bergv1.ChallengeInstance, in Inputs) error {
	name := in.Config.PullSecretName
	if name == "" {
		return nil
	}
	if needed, err := r.pullSecretNeeded(ctx, instance, in); !needed || err != nil {
		return err
	}
	source := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: in.Config.OperatorNamespace, Name: name}, source)
	if apierrors.IsNotFound(err) {
		r.Events.Eventf(instance, nil, corev1.EventTypeWarning, bergv1.ReasonPullSecretMissing, actionCreate,
			"Pull secret %s/%s not found: images that need it cannot be pulled", in.Config.OperatorNamespace, name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the pull secret: %w", err)
	}
	// The operator keeps no cache of Secrets that could wait for this write.
	err = r.Client.Create(ctx, pullSecret(in, source), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("copy the pull secret: %w", err)
	}
	return nil
}

func (r *Reconciler) pullSecretNeeded(ctx context.Context, instance *bergv1.ChallengeInstance, in Inputs) (bool, error) {
	if complete, err := r.deploymentsExist(ctx, in); !complete || err != nil {
		return !complete, err
	}
	pods, err := r.observePods(ctx, instance)
	return slices.ContainsFunc(pods, pullFails), err
}

// pullFails reports whether the kubelet waits before it tries again to pull an
// image. The time between is its own, and grows to five minutes.
func pullFails(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == "ImagePullBackOff"
	})
}

func (r *Reconciler) deploymentsExist(ctx context.Context, in Inputs) (bool, error) {
	for _, c := range in.Challenge.Containers {
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: in.namespace(), Name: c.Hostname}, &appsv1.Deployment{})
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	return true, nil
}

// pullSecret copies the data alone: no labels or owner references of the source.
func pullSecret(in Inputs, source *corev1.Secret) *corev1.Secret {
	copied := &corev1.Secret{
		ObjectMeta: in.meta(source.Name, "pull-secret"),
		Type:       source.Type,
		Data:       source.Data,
	}
	copied.Annotations = map[string]string{bergv1.AnnotationInstanceUID: string(in.UID)}
	return copied
}
