package application

import (
	"context"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
)

// usable reports whether the Project exists, is Ready, and has this namespace.
func (o Observed) usable(a *kibashipv1.Application) bool {
	return o.Project != nil && o.Project.DeletionTimestamp == nil && o.Project.Status.Phase == kibashipv1.ProjectReady &&
		a.Namespace == naming.Namespace(o.Project.Name)
}

// observe asks for Secrets only where the operator may read them. Their names are watched, their content is not kept.
func (r *Reconciler) observe(ctx context.Context, a *kibashipv1.Application) (o Observed, err error) {
	project := &kibashipv1.Project{}
	err = r.Client.Get(ctx, types.NamespacedName{Name: a.Spec.ProjectRef.Name}, project)
	switch {
	case err == nil:
		o.Project = project
	case !apierrors.IsNotFound(err):
		return o, err
	}
	names := slices.Sorted(maps.Keys(rules.Secrets(&a.Spec)))
	// Without the Project's rights the operator cannot read Secrets.
	if len(names) > 0 && o.usable(a) {
		o.Missing, o.SecretsKnown = r.Secrets.Missing(secretsUser, a.Namespace, names) //nolint:contextcheck // a watch outlives the reconciliation that opens it
	}
	return o, nil
}
