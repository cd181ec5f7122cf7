// Package admission refuses Projects, Applications and Deployments that break their rules, before
// they are stored. The controllers report a violation that reached storage without this webhook in
// the status.
//
// An update is validated only where it changes a field that the rules check: other writes, the
// operator's own among them, pass for objects that were stored under earlier rules. Objects that
// are being deleted always pass.
package admission

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/project"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/family"
)

// The webhooks use the operator's own certificate, unless another is provided.
//
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=berg-operator-webhooks,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=system
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=berg-operator-webhook,verbs=list;watch;update,namespace=system

// Webhooks returns the validating webhooks of the family.
func Webhooks() []family.Webhook {
	const path = "/validate-platform-operator-kibaship-com-v1alpha1-"
	return []family.Webhook{
		{Path: path + "project", Handler: func(deps family.Dependencies) http.Handler {
			mgr := deps.Manager
			return admission.WithValidator(mgr.GetScheme(), validator[*kibashipv1.Project]{
				kind: "Project", check: projects{mgr.GetClient(), mgr.GetAPIReader()}.check, touched: projectTouched,
			})
		}},
		{Path: path + "application", Handler: func(deps family.Dependencies) http.Handler {
			mgr := deps.Manager
			return admission.WithValidator(mgr.GetScheme(), validator[*kibashipv1.Application]{
				kind: "Application", check: applications{mgr.GetClient()}.check,
				touched: func(before, after *kibashipv1.Application) bool {
					return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
				},
			})
		}},
		{Path: path + "deployment", Handler: func(deps family.Dependencies) http.Handler {
			return admission.WithValidator(deps.Manager.GetScheme(), validator[*kibashipv1.Deployment]{
				kind: "Deployment", check: func(_ context.Context, _, d *kibashipv1.Deployment) (rules.Violations, error) {
					return rules.Deployment(d), nil
				},
				touched: func(before, after *kibashipv1.Deployment) bool {
					return !equality.Semantic.DeepEqual(before.Spec, after.Spec)
				},
			})
		}},
	}
}

// validator checks the objects of one kind.
type validator[T client.Object] struct {
	kind string
	// check returns the violations of an object; before is nil when it is created.
	check func(ctx context.Context, before, after T) (rules.Violations, error)
	// touched reports whether an update changes a field that check reads.
	touched func(before, after T) bool
}

// ValidateCreate implements admission.Validator.
func (v validator[T]) ValidateCreate(ctx context.Context, o T) (admission.Warnings, error) {
	var none T
	return nil, v.validate(ctx, none, o)
}

// ValidateUpdate implements admission.Validator.
func (v validator[T]) ValidateUpdate(ctx context.Context, before, after T) (admission.Warnings, error) {
	if after.GetDeletionTimestamp() != nil || !v.touched(before, after) {
		return nil, nil
	}
	return nil, v.validate(ctx, before, after)
}

// ValidateDelete implements admission.Validator: everything may be deleted.
func (v validator[T]) ValidateDelete(context.Context, T) (admission.Warnings, error) { return nil, nil }

// validate refuses with the status of the API server for invalid objects, so that clients show each field.
func (v validator[T]) validate(ctx context.Context, before, after T) error {
	violations, err := v.check(ctx, before, after)
	if err != nil || len(violations) == 0 {
		return err
	}
	refusal := apierrors.NewInvalid(kibashipv1.GroupVersion.WithKind(v.kind).GroupKind(), after.GetName(), nil)
	refusal.ErrStatus.Message = v.kind + " " + after.GetName() + " is not valid: " + violations.String()
	for _, violation := range violations {
		refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Field: violation.Field, Message: violation.Message,
		})
	}
	return refusal
}

// projects checks Projects. live reads past the cache: a ProjectClass may be created right before the Project that names it.
type projects struct{ client, live client.Reader }

// projectTouched: labels of others do not matter.
func projectTouched(before, after *kibashipv1.Project) bool {
	return !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
		before.Labels[kibashipv1.LabelUUID] != after.Labels[kibashipv1.LabelUUID] ||
		before.Labels[kibashipv1.LabelWorkspaceUUID] != after.Labels[kibashipv1.LabelWorkspaceUUID]
}

// A class that the Project had before is not looked up: its deletion must not block other changes.
func (c projects) check(ctx context.Context, before, after *kibashipv1.Project) (rules.Violations, error) {
	violations := rules.Project(after)
	if before != nil {
		violations = append(rules.ProjectChange(before, after), violations...)
	}
	if class := after.Spec.Class; class != "" && (before == nil || before.Spec.Class != class) {
		classes, err := project.Classes(ctx, c.live)
		if err != nil {
			return nil, err
		}
		violations = append(violations, rules.UnknownClass(class, classes)...)
	}
	id := after.Labels[kibashipv1.LabelUUID]
	if !rules.UUID(id) || before != nil && before.Labels[kibashipv1.LabelUUID] == id {
		return violations, nil
	}
	var same kibashipv1.ProjectList
	if err := c.client.List(ctx, &same, client.MatchingFields{project.IndexUUID: id}, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return nil, err
	}
	// Two Projects that are created in the same moment may both pass, as the cache has neither. The controller then reports the
	// newer one.
	return append(violations, rules.UUIDInUse(after, same.Items)...), nil
}

type applications struct{ client client.Reader }

// check: a condition says whether the Project exists. It may be created a moment later.
func (c applications) check(ctx context.Context, _, after *kibashipv1.Application) (rules.Violations, error) {
	violations := rules.Application(after)
	var owner kibashipv1.Project
	err := c.client.Get(ctx, types.NamespacedName{Name: after.Spec.ProjectRef.Name}, &owner, client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsNotFound(err):
		return violations, nil
	case err != nil:
		return nil, err
	default:
		return append(violations, rules.Allowed(&after.Spec, &owner.Spec)...), nil
	}
}
