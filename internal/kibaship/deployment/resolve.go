package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// resolve finds out which image a DockerImage means now. It asks once for each spec of the
// Deployment, and for each value of AnnotationRunAgain: that a tag moves deploys nothing by
// itself.
func (r *Reconciler) resolve(ctx context.Context, o Observed) (*registry.Image, *outcome.Problem) {
	d, spec := o.Deployment, o.Application.Spec.DockerImage
	blocked := func(class outcome.Class, reason, message string) *outcome.Problem {
		p := &outcome.Problem{Condition: kibashipv1.ConditionSucceeded, Reason: reason, Message: message, Class: class}
		if class == outcome.External {
			p.Err = errors.New(message)
		}
		return p
	}
	if spec == nil {
		return nil, blocked(outcome.Blocked, kibashipv1.ReasonImageNotResolved, "spec.dockerImage of the Application is missing")
	}
	wanted, err := rules.ParseImage(spec.Image, spec.Tag)
	if err != nil {
		return nil, blocked(outcome.Blocked, kibashipv1.ReasonImageNotResolved, "spec.dockerImage of the Application: "+err.Error())
	}
	// The answer is in the status, so a restart asks no registry.
	if known := d.Status.BuiltImage; known != nil && known.Request == imageRequest(d) && knows(known, wanted) {
		return &registry.Image{Reference: known.Reference, Digest: known.Digest, Tag: known.Tag}, nil
	}
	reach := r.registryReach(wanted.Reference.Context().RegistryStr())
	if reach == nil {
		return nil, blocked(outcome.Blocked, kibashipv1.ReasonImageNotResolved, fmt.Sprintf(
			"spec.dockerImage.image of the Application names the registry %s. Use one that IMAGE_REGISTRIES of the operator lists: %s",
			wanted.Reference.Context().RegistryStr(), strings.Join(r.Config.ImageRegistries, ", ")))
	}
	var logins registry.Logins
	if secretRef := spec.ImagePullSecretRef; secretRef != nil {
		secret := &corev1.Secret{}
		err := r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: secretRef.Name}, secret)
		switch {
		case apply.Absent(err):
			return nil, blocked(outcome.External, kibashipv1.ReasonSecretNotFound,
				fmt.Sprintf("Secret %s not found in this namespace (spec.dockerImage.imagePullSecretRef of Application %s): create it", secretRef.Name, o.Application.Name))
		case err != nil:
			return nil, newProblem(kibashipv1.ConditionSucceeded, err)
		}
		if logins, err = registry.ParseLogins(secret.Data[registry.ConfigKey]); err != nil {
			return nil, blocked(outcome.External, kibashipv1.ReasonImageNotResolved, fmt.Sprintf("Secret %s: key %s %v", secretRef.Name, registry.ConfigKey, err))
		}
	}
	authorities, problem := r.authorities(ctx, d.Namespace)
	if problem != nil {
		return nil, problem
	}
	through, err := registry.Transport(authorities, reach)
	if err != nil {
		return nil, blocked(outcome.External, kibashipv1.ReasonImageNotResolved, fmt.Sprintf("ConfigMap %s: key %s %v", r.Config.Builds.CAConfigMap, authorityKey, err))
	}
	image, err := registry.Resolve(ctx, wanted.Reference, logins, through)
	if err != nil {
		return nil, blocked(outcome.External, kibashipv1.ReasonImageNotResolved, "The image cannot be looked up, which is tried again and again: "+err.Error())
	}
	image.Tag = wanted.Tag
	return &image, nil
}

// registryReach returns the addresses that the operator may connect to for an image of a registry, nil if it asks no such
// registry. A registry that the settings name may have a private address. Any other one must have a public address.
func (r *Reconciler) registryReach(host string) registry.Reach {
	builds, _, _ := strings.Cut(r.Config.Builds.Registry, "/")
	for _, listed := range append([]string{builds}, r.Config.ImageRegistries...) {
		if listed == "" {
			continue
		}
		if known, err := name.NewRegistry(listed); err == nil && known.RegistryStr() == host {
			return registry.Public
		}
	}
	if len(r.Config.ImageRegistries) > 0 {
		return nil
	}
	return registry.Internet
}

// knows reports whether a known image answers the wanted request.
func knows(known *kibashipv1.BuiltImage, wanted rules.Image) bool {
	if known.Digest == "" || known.Tag != wanted.Tag || known.Reference != wanted.Reference.Context().Digest(known.Digest).String() {
		return false
	}
	asked, byDigest := wanted.Reference.(name.Digest)
	return !byDigest || asked.DigestStr() == known.Digest
}

// authorities returns the certificates of BUILD_CA_CONFIG_MAP. A Project that has no such ConfigMap
// trusts the public ones.
func (r *Reconciler) authorities(ctx context.Context, namespace string) ([]byte, *outcome.Problem) {
	name := r.Config.Builds.CAConfigMap
	if name == "" {
		return nil, nil
	}
	config := &corev1.ConfigMap{}
	if err := apply.IgnoreAbsent(r.Writer.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config)); err != nil {
		return nil, newProblem(kibashipv1.ConditionSucceeded, err)
	}
	return []byte(config.Data[authorityKey]), nil
}
