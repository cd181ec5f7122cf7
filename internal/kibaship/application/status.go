package application

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/commitstatus"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// steps are the conditions of an Application, in the order in which they are checked.
var steps = []string{kibashipv1.ConditionProjectFound, kibashipv1.ConditionSpecAccepted, kibashipv1.ConditionSecretFound}

// waiting reports whether an Application waits though nothing is wrong: its Secrets are not known yet. The watch of Secrets
// enqueues the Application when it knows them.
func waiting(a *kibashipv1.Application, o Observed) bool {
	return len(rules.Secrets(&a.Spec)) > 0 && !o.SecretsKnown
}

// computeStatus computes the status of a live Application from observations and problems.
func computeStatus(a *kibashipv1.Application, o Observed, problems outcome.Problems, now time.Time) reconcile.Ready {
	s := &a.Status
	s.Limits = a.Spec.Limits
	if o.Project != nil {
		s.Limits = rules.Effective(&a.Spec, &o.Project.Spec)
	}
	set := conditions.NewSetter(a, &s.Conditions, now)
	for _, step := range steps {
		if p := problems.On(step); p != nil {
			set(step, metav1.ConditionFalse, p.Reason, p.Message)
		} else {
			status, reason, message := passed(a, o, step)
			set(step, status, reason, message)
		}
	}
	computeAutoBuild(a, o, set)
	first := problems.First()
	switch {
	case first == nil && waiting(a, o):
		s.Phase, s.Message = kibashipv1.ApplicationPending, "The Secrets of the namespace are not known yet"
		return reconcile.NotReady(kibashipv1.ReasonWaiting, s.Message)
	case first == nil:
		s.Phase, s.Message = kibashipv1.ApplicationReady, "The Application can be deployed"
		if a.Spec.Type != kibashipv1.TypeGitRepository && a.Spec.Type != kibashipv1.TypeDockerImage {
			s.Message = "The Application is accepted. The operator starts no database and stores no backup: your platform must run it"
		}
	default:
		s.Phase, s.Message = kibashipv1.ApplicationPending, first.Message
		if slices.ContainsFunc(problems, func(p *outcome.Problem) bool { return p.Class.NeedsAction() }) {
			s.Phase = kibashipv1.ApplicationFailed
		}
	}
	ready := reconcile.ReadyUnless(first, kibashipv1.ReasonApplicationReady, s.Message)
	ready.Stalled = s.Phase == kibashipv1.ApplicationFailed
	return ready
}

// computeAutoBuild computes what the status says of builds that pushes start. While nothing is known, what was known stays.
func computeAutoBuild(a *kibashipv1.Application, o Observed, set conditions.Setter) {
	s, b := &a.Status, o.AutoBuild
	if !enabled(a) {
		s.AutoBuild = nil
		meta.RemoveStatusCondition(&s.Conditions, kibashipv1.ConditionAutoBuild)
		return
	}
	status, reason, message := b.condition()
	set(kibashipv1.ConditionAutoBuild, status, reason, message)
	if b == nil {
		return
	}
	if s.AutoBuild == nil {
		s.AutoBuild = &kibashipv1.AutoBuildStatus{}
	}
	s.AutoBuild.WebhookURL, s.AutoBuild.WebhookSecret = b.URL, b.Secret
	// A failed question without an earlier answer says nothing about the refs of the status.
	if b.Answered && (b.Answer.Problem == "" || len(b.Refs) > 0) {
		s.AutoBuild.Refs = b.Refs
	}
	for i := range s.AutoBuild.Refs {
		s.AutoBuild.Refs[i].Message = conditions.Bound(s.AutoBuild.Refs[i].Message)
	}
}

// passed returns status, reason and message of a condition that has no problem.
func passed(a *kibashipv1.Application, o Observed, step string) (status metav1.ConditionStatus, reason, message string) {
	switch {
	case step == kibashipv1.ConditionProjectFound:
		return metav1.ConditionTrue, kibashipv1.ReasonProjectFound, "Project " + a.Spec.ProjectRef.Name + " is Ready, and this is its namespace"
	case step == kibashipv1.ConditionSpecAccepted && o.Project == nil:
		return metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "What the Project allows is not known"
	case step == kibashipv1.ConditionSpecAccepted:
		return metav1.ConditionTrue, kibashipv1.ReasonSpecAccepted, "Name and spec are valid, and within what the Project allows"
	case len(rules.Secrets(&a.Spec)) == 0:
		return metav1.ConditionTrue, kibashipv1.ReasonSecretNotNeeded, "The Application names no Secret"
	case !o.SecretsKnown:
		return metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Secrets are checked when the Project is Ready"
	default:
		return metav1.ConditionTrue, kibashipv1.ReasonSecretFound, "Every Secret that the Application names exists"
	}
}

// computeDeleting writes the status of an Application that is being deleted. Without a problem it waits for its provider.
func computeDeleting(a *kibashipv1.Application, problem error, now time.Time) {
	s := &a.Status
	s.ObservedGeneration = a.Generation
	s.Phase, s.Message = kibashipv1.ApplicationDeleting, fmt.Sprintf("Waits until the git provider takes the last state of a commit, at most %.0f seconds", commitstatus.LastTime.Seconds())
	reason := kibashipv1.ReasonTerminating
	if problem != nil {
		reason, s.Message = kibashipv1.ReasonDeletionBlocked, "The Deployments of the Application cannot be deleted: "+problem.Error()
	}
	reconcile.NotReady(reason, s.Message).SetOn(&s.Conditions, a.Generation, now)
}

// bound cuts the message of the status, which is no condition, to the allowed length.
func bound(a *kibashipv1.Application) { a.Status.Message = conditions.Bound(a.Status.Message) }
