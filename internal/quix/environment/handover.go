package environment

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

// handedOver reports whether an older operator, which wrote no UID annotation, created the namespace for the environment: its
// labels are the environment's, and its controller is the environment. Others can copy these labels, so they count only for
// an environment that such an operator started, whose status has a namespace and neither its UID nor a token digest, or where
// the status names the UID of the namespace. If both operators run, the older one drops the UID from the status: then the
// namespace has the annotation already.
func handedOver(env *quixv1.Environment, ns *corev1.Namespace) bool {
	s := &env.Status
	if ns == nil || namespaceName(env) != ns.Name {
		return false
	}
	older := s.NamespaceUID == "" && s.NamespaceTokenHash == ""
	switch uid := ns.Annotations[quixv1.AnnotationUID]; {
	case uid != "" && (uid != string(env.UID) || !older):
		return false
	default:
		return (older || s.NamespaceUID == ns.UID) && hasIdentity(env, ns, quixv1.ManagedBy) && controls(env, ns)
	}
}

// bindingHandedOver is handedOver for the RoleBinding, which has no controller. It accepts a binding in a namespace of the
// environment that grants the same as the operator's. After a restore from a backup it has the UID of an earlier environment.
func bindingHandedOver(env *quixv1.Environment, in Inputs) bool {
	return in.Bound != nil && in.Bound.Annotations[quixv1.AnnotationUID] != string(env.UID) && !boundElsewhere(in) &&
		hasIdentity(env, in.Bound, quixv1.RoleBindingManagedBy)
}

// handOver is the command with which an administrator gives a namespace to an environment, whichever labels it has lost.
func handOver(env *quixv1.Environment, ns *corev1.Namespace) string {
	var labels strings.Builder
	for _, key := range []string{quixv1.LabelManagedBy, quixv1.LabelEnvironmentID, quixv1.LabelEnvironmentName} {
		fmt.Fprintf(&labels, " %s=%s", key, identity(env, quixv1.ManagedBy)[key])
	}
	return fmt.Sprintf(`kubectl label namespace %s --overwrite%s && kubectl annotate namespace %s --overwrite %s=%s && `+
		`kubectl patch environment %s --subresource=status --type=merge -p '{"status":{"namespaceUID":"%s"}}'`,
		ns.Name, &labels, ns.Name, quixv1.AnnotationUID, env.UID, env.Name, ns.UID)
}

func hasIdentity(env *quixv1.Environment, o client.Object, managedBy string) bool {
	existing := o.GetLabels()
	for key, want := range identity(env, managedBy) {
		if existing[key] != want {
			return false
		}
	}
	return true
}

func controls(env *quixv1.Environment, ns *corev1.Namespace) bool {
	c := metav1.GetControllerOf(ns)
	if c == nil || c.Kind != "Environment" || c.UID != env.UID {
		return false
	}
	gv, err := schema.ParseGroupVersion(c.APIVersion)
	return err == nil && gv.Group == quixv1.GroupVersion.Group
}

// takeOver records the ownership of a namespace that was handed over: its UID in the status, then the environment's UID on
// the namespace. If the process ends in between, the next one takes the namespace over again.
func (r *Reconciler) takeOver(ctx context.Context, env *quixv1.Environment, s *State) error {
	if !handedOver(env, s.Namespace) {
		return nil
	}
	if env.Status.NamespaceUID == "" {
		before := env.DeepCopy()
		env.Status.NamespaceUID = s.Namespace.UID
		if err := r.kind.PatchStatus(ctx, before, env, r.Clock.Now()); err != nil {
			return err
		}
	}
	// The namespace is read again, as the update replaces all of it, and an administrator may have changed it since.
	live, err := apply.Found(ctx, r.Writer.Live, client.ObjectKeyFromObject(s.Namespace), &corev1.Namespace{})
	if err != nil || !handedOver(env, live) {
		return err
	}
	s.Namespace = live
	return r.sign(ctx, ownershipLabels.For(env.UID, nil), live)
}

// takeOverBinding writes the environment's UID onto a RoleBinding that was handed over.
func (r *Reconciler) takeOverBinding(ctx context.Context, env *quixv1.Environment, s *State) error {
	in := Inputs{env, s.RoleBinding, r.Config}
	if !bindingHandedOver(env, in) {
		return nil
	}
	live, err := apply.Found(ctx, r.Writer.Live, client.ObjectKeyFromObject(in.Bound), &rbacv1.RoleBinding{})
	if in.Bound = live; err != nil || !bindingHandedOver(env, in) {
		return err
	}
	s.RoleBinding = live
	return r.sign(ctx, ownershipLabels.For(env.UID, nil), live)
}

// The update carries the resourceVersion that was read, so a change in between gives a conflict.
func (r *Reconciler) sign(ctx context.Context, owner ownership.Owner, live client.Object) error {
	annotations := maps.Clone(live.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[owner.Annotation] = string(owner.UID)
	live.SetAnnotations(annotations)
	return r.Client.Update(ctx, live, client.FieldOwner(r.Writer.Manager))
}
