package record

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/access"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/identity"
)

// LogsRole is the ClusterRole that the operator binds to itself in the namespace of an instance
// that ends, to read the logs of its containers: config/berg/record has it.
const LogsRole = "berg-operator-berg-record-logs"

// These rights are in a role of their own, config/berg/record; the rights to records hold in their
// namespace alone.
//
// +kubebuilder:rbac:groups=berg.norelect.ch,resources=challengeinstancerecords,verbs=create;list;watch;delete,namespace=berg-records
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=create
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=berg-operator-berg-record-logs,verbs=bind
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=berg-operator-berg-record-logs,verbs=list;watch

// Logs is the right to read the logs of an instance.
var Logs = access.Right{
	Role: LogsRole, Binding: "berg-operator-record", Component: bergv1.ComponentRecord,
	Attributes: authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "log", Verb: "get"},
	Folder:     "berg/record", Setting: "RECORD_RETENTION",
}

// Permitted makes sure of the rights to read logs and to write records.
func Permitted(ctx context.Context, a *access.Access, direct client.Client, cfg config.Record) error {
	var records []authorizationv1.ResourceAttributes
	for _, verb := range []string{"create", "list", "watch", "delete"} {
		records = append(records, authorizationv1.ResourceAttributes{
			Namespace: cfg.Namespace, Group: bergv1.GroupVersion.Group, Resource: "challengeinstancerecords", Verb: verb,
		})
	}
	if err := a.Permitted(ctx, direct, records...); err != nil {
		return err
	}
	return defined(ctx, direct, cfg.Namespace)
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
