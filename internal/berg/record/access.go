package record

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/challengeinstance/manifests"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/admissionpolicy"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// LogsRole is the ClusterRole that the operator binds to itself in the namespace of an instance
// that ends, to read the logs of its containers: config/berg/record has it.
const LogsRole = "berg-operator-berg-record-logs"

// The admission policy that limits where the role may be bound, and to whom, has the same name. Both are installed together.
const (
	logsPolicy    = LogsRole
	installPolicy = "kubectl apply -k config/berg/record"
)

// bindingName is the name of the binding.
const bindingName = "berg-operator-record"

// These rights are in a role of their own, config/berg/record; the rights to records hold in their
// namespace alone.
//
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstancerecords,verbs=create;list;watch;delete,namespace=berg-records
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=berg-operator-berg-record-logs,verbs=bind
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-berg-record-logs,verbs=list;watch

// Access is the operator's right to read logs.
type Access struct {
	// Client writes.
	Client client.Client
	// Identity is who the right is given to.
	Identity *identity.Identity
	// everywhere: the right is granted for all namespaces, and nothing need be bound.
	everywhere bool
	// policy limits the right to bind. It is nil if nothing need be bound.
	policy *admissionpolicy.Policy
}

// Permitted makes sure of the right to read logs, or returns an error that names the first right
// which the operator lacks to keep records. Without it a watch that is forbidden would keep the
// operator from becoming ready, and nothing would say why.
func (a *Access) Permitted(ctx context.Context, direct client.Client, cfg config.Record) error {
	var needed []authorizationv1.ResourceAttributes
	for _, verb := range []string{"create", "list", "watch", "delete"} {
		needed = append(needed, authorizationv1.ResourceAttributes{
			Namespace: cfg.Namespace, Group: bergv1.GroupVersion.Group, Resource: "challengeinstancerecords", Verb: verb,
		})
	}
	var err error
	if a.everywhere, err = identity.May(ctx, direct, authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "log", Verb: "get"}); err != nil {
		return asking(err)
	}
	if !a.everywhere {
		needed = append(needed,
			authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "rolebindings", Verb: "create"},
			authorizationv1.ResourceAttributes{Group: rbacv1.GroupName, Resource: "clusterroles", Name: LogsRole, Verb: "bind"})
		for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
			for _, verb := range []string{"list", "watch"} {
				needed = append(needed, authorizationv1.ResourceAttributes{Group: admissionregistrationv1.GroupName, Resource: resource, Name: logsPolicy, Verb: verb})
			}
		}
	}
	lacks, err := identity.Lacks(ctx, direct, needed)
	if err != nil {
		return asking(err)
	}
	if lacks != "" {
		return fmt.Errorf("RECORD_RETENTION is set and the operator may not %s: apply config/berg/record first, or leave RECORD_RETENTION empty", lacks)
	}
	return defined(ctx, direct, cfg.Namespace)
}

// Follow watches the admission policy without which nothing is bound. It is called after Permitted.
func (a *Access) Follow(ctx context.Context, policies *admissionpolicy.Policies) (err error) {
	if !a.everywhere {
		a.policy, err = policies.Follow(ctx, logsPolicy, installPolicy)
	}
	return err
}

func asking(err error) error {
	return fmt.Errorf("ask whether records of instances are allowed: %w", err)
}

// defined returns an error where the API server does not know of records: the watch would wait for
// them, and the operator never become ready.
func defined(ctx context.Context, direct client.Client, namespace string) error {
	var crds metav1.PartialObjectMetadataList
	crds.SetGroupVersionKind(listKind)
	err := identity.Retry(ctx, func(ctx context.Context) error {
		return direct.List(ctx, &crds, client.InNamespace(namespace), client.Limit(1))
	})
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("RECORD_RETENTION is set and the API server has no definition challengeinstancerecords.%s: install the operator's definitions first, or leave RECORD_RETENTION empty", bergv1.GroupVersion.Group)
	}
	if err != nil {
		return fmt.Errorf("list records of instances: %w", err)
	}
	return nil
}

// Grant lets the operator read logs in the namespace of an instance. It goes with the namespace. While the admission policy is
// missing, it returns an error that says so.
func (a *Access) Grant(ctx context.Context, instance types.UID, namespace string) error {
	if a.everywhere {
		return nil
	}
	missing, err := admissionpolicy.Missing(ctx, a.policy)
	if err != nil {
		return err
	}
	if missing != "" {
		return errors.New(missing)
	}
	me, err := a.Identity.Subject(ctx)
	if err != nil {
		return err
	}
	err = a.Client.Create(ctx, binding(instance, namespace, me), client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the log names the missing right
	default:
		return err
	}
}

func binding(instance types.UID, namespace string, me rbacv1.Subject) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: bindingName,
			Labels: map[string]string{bergv1.LabelComponent: bergv1.ComponentRecord},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: LogsRole},
		Subjects: []rbacv1.Subject{me},
	}
	manifests.OwnershipLabels.For(instance, nil).SetOn(b)
	return b
}
