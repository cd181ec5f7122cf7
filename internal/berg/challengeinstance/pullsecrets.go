package challengeinstance

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/status"
)

// copyPullSecrets copies the configured pull secret into the namespace of the instance before its Deployments are created,
// and returns which copy each container uses.
//
// The operator may read one Secret, in its own namespace, and create Secrets. It can neither read nor change the Secrets of
// an instance, so it can rely on a copy only if it created it from the current source:
//   - the copy with the name of the source, if its creation succeeded;
//   - otherwise a copy whose name contains the version, which only the operator can compute.
//
// A Deployment records its copy and keeps it, because another copy would restart its pods. A container gets a new copy only
// if its image cannot be pulled and the source has changed since the copy was made. The kubelet retries at least every five
// minutes, which triggers another check.
//
// A missing source is reported and does not stop the instance: the image may be public.
func (r *Reconciler) copyPullSecrets(ctx context.Context, o status.Observed, in manifests.Inputs) (map[string]manifests.PullSecretUse, error) {
	name := in.Config.PullSecretName
	if name == "" {
		return nil, nil
	}
	uses, open := pullSecretUses(o, in)
	if len(open) == 0 {
		return uses, nil
	}
	source := &corev1.Secret{}
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: name}, source)
	if apierrors.IsNotFound(err) {
		r.Events.Eventf(o.Instance, nil, corev1.EventTypeWarning, bergv1.ReasonPullSecretMissing, actionCreate,
			"Pull secret %s/%s not found: images that need it cannot be pulled", r.Namespace, name)
		return uses, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the pull secret: %w", err)
	}
	copied := in.PullSecretVersion(source)
	var fresh manifests.PullSecretUse
	for _, container := range open {
		switch use := uses[container]; {
		case use.Version == copied:
			// The copy may have been deleted by another client.
			_, err = r.createPullSecret(ctx, in, source, use.Name)
		case fresh.Name == "":
			fresh, err = r.newPullSecret(ctx, o, in, source, copied, uses)
			fallthrough
		default:
			uses[container] = fresh
		}
		if err != nil {
			return nil, err
		}
	}
	return uses, nil
}

// pullSecretUses returns the recorded copies, and the containers for which the source must be read: containers without a
// Deployment, with another pull secret, or with an image that cannot be pulled.
func pullSecretUses(o status.Observed, in manifests.Inputs) (uses map[string]manifests.PullSecretUse, open []string) {
	uses = map[string]manifests.PullSecretUse{}
	for _, c := range in.Challenge.Containers {
		d := o.Deployments[c.Hostname]
		if d != nil {
			uses[c.Hostname] = manifests.ParsePullSecretUse(d.Annotations[bergv1.AnnotationPullSecret], in.Config.PullSecretName)
		}
		live, _ := status.ContainerPods(o.Pods, c.Hostname)
		if d == nil || !slices.Contains(d.Spec.Template.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: uses[c.Hostname].Name}) ||
			slices.ContainsFunc(live, pullFails) {
			open = append(open, c.Hostname)
		}
	}
	return uses, open
}

// newPullSecret returns a copy of the current source.
func (r *Reconciler) newPullSecret(ctx context.Context, o status.Observed, in manifests.Inputs, source *corev1.Secret, copied string, uses map[string]manifests.PullSecretUse) (manifests.PullSecretUse, error) {
	wanted := manifests.PullSecretUse{Name: source.Name, Version: copied}
	made, err := r.createPullSecret(ctx, in, source, source.Name)
	if err != nil {
		return manifests.PullSecretUse{}, err
	}
	// A creation that succeeded in this process is the only sign of ownership for a Secret that the operator may not read.
	if made {
		r.copies.Add(in.UID, copied)
	}
	// A Secret of that name exists. It is ours if this process or a Deployment knows it.
	copyVersion, known := r.copies.Get(in.UID)
	ours := known
	if known && copyVersion == copied {
		return wanted, nil
	}
	for _, use := range uses {
		if use == wanted {
			return wanted, nil
		}
		ours = ours || use.Name == source.Name && use.Version != ""
	}
	own := manifests.PullSecretUse{Name: manifests.OwnPullSecretName(source.Name, copied), Version: copied}
	if _, err := r.createPullSecret(ctx, in, source, own.Name); err != nil {
		return manifests.PullSecretUse{}, err
	}
	if !ours {
		r.Events.Eventf(o.Instance, nil, corev1.EventTypeWarning, bergv1.ReasonPullSecretConflict, actionCreate,
			"Secret %s/%s exists and does not provably belong to this instance. It is left unchanged and is not used; images are pulled with %s",
			in.Namespace(), source.Name, own.Name)
	}
	return own, nil
}

// createPullSecret reports whether it created the copy; a Secret of that name may exist.
func (r *Reconciler) createPullSecret(ctx context.Context, in manifests.Inputs, source *corev1.Secret, name string) (bool, error) {
	// There is no cache of Secrets that could wait for this write.
	err := r.Client.Create(ctx, manifests.PullSecret(in, source, name), client.DisableReadYourWritesConsistency)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return false, fmt.Errorf("copy the pull secret: %w", err)
	}
	return err == nil, nil
}

// pullFails reports whether the kubelet waits before its next attempt to pull an image. It
// increases this time to up to five minutes.
func pullFails(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && s.State.Waiting.Reason == "ImagePullBackOff"
	})
}
