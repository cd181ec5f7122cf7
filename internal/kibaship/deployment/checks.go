package deployment

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns why a Deployment cannot be taken further, nil when it can: it looks at what
// must hold for every type of Application.
func check(o Observed) *outcome.Problem {
	blocked := func(reason, message string) *outcome.Problem {
		return &outcome.Problem{Condition: kibashipv1.ConditionApplicationReady, Reason: reason, Class: outcome.Blocked, Message: message}
	}
	d := o.Deployment
	if wrong := rules.Deployment(d); len(wrong) > 0 {
		return blocked(wrong[0].Reason, wrong.String())
	}
	app := o.Application
	if app == nil {
		return blocked(kibashipv1.ReasonApplicationNotFound,
			fmt.Sprintf("spec.applicationRef: Application %s not found: create it, or delete this Deployment", client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.ApplicationRef.Name}))
	}
	if app.DeletionTimestamp != nil {
		return blocked(kibashipv1.ReasonApplicationNotReady, fmt.Sprintf("Application %s is being deleted", app.Name))
	}
	if !ready(app) {
		message := app.Status.Message
		if message == "" || app.Status.ObservedGeneration != app.Generation {
			message = "the operator has not checked it yet"
		}
		return blocked(kibashipv1.ReasonApplicationNotReady, fmt.Sprintf("Application %s is not Ready: %s", app.Name, message))
	}
	return nil
}

// checkLabel returns what it means that the label of a Deployment was not written: without it,
// who looks for the Deployments of an Application misses this one.
func checkLabel(err error) *outcome.Problem {
	if err == nil {
		return nil
	}
	return &outcome.Problem{
		Condition: kibashipv1.ConditionApplicationReady, Reason: kibashipv1.ReasonRefused, Class: outcome.External, Err: err,
		Message: "The API server refuses the label of this Deployment: " + err.Error(),
	}
}

// ready reports whether an Application is, as its controller says of its present spec.
func ready(app *kibashipv1.Application) bool {
	return app.Status.ObservedGeneration == app.Generation && app.Status.Phase == kibashipv1.ApplicationReady
}

// checkPipeline returns why nothing can be built in this cluster, nil when it can.
func checkPipeline(o Observed, cfg config.KibaShip, pushImage string) *outcome.Problem {
	blocked := func(reason, message string) *outcome.Problem {
		return &outcome.Problem{Condition: kibashipv1.ConditionPipelineAvailable, Reason: reason, Class: outcome.Blocked, Message: message}
	}
	switch {
	case cfg.Tekton == config.TektonOff:
		return blocked(kibashipv1.ReasonPipelineUnavailable, "TEKTON_MODE is off: nothing is built in this cluster")
	case !o.Tekton:
		return blocked(kibashipv1.ReasonPipelineUnavailable, "Tekton Pipelines is not installed: the build starts when its API (tekton.dev/v1) is there")
	case cfg.Builds.Registry == "":
		return blocked(kibashipv1.ReasonRegistryNotSet, "BUILD_REGISTRY is not set: an administrator must say where images go")
	case pushImage == "":
		p := blocked(kibashipv1.ReasonRegistryNotSet, "BUILD_PUSH_IMAGE is not set, and the operator does not run in a pod whose image could be used: an administrator must say which image pushes")
		p.Class, p.Err = outcome.External, missingError(p.Message) // its pod may only not have been read
		return p
	default:
		return nil
	}
}

// checkMissing returns what a run cannot be started without, nil if nothing is missing. The
// coming of a Secret is an event; the rest is looked for at intervals.
func checkMissing(o Observed) *outcome.Problem {
	if len(o.Missing) == 0 {
		return nil
	}
	m := o.Missing[0]
	p := &outcome.Problem{Condition: kibashipv1.ConditionSucceeded, Class: outcome.External}
	switch m.Kind {
	case "Secret":
		p.Reason = kibashipv1.ReasonSecretNotFound
		p.Message = fmt.Sprintf("Secret %s not found in this namespace (%s): create it", m.Name, m.Where)
	case "ConfigMap":
		p.Reason = kibashipv1.ReasonConfigMapNotFound
		p.Message = fmt.Sprintf("ConfigMap %s not found in this namespace (%s): create it", m.Name, m.Where)
	default:
		p.Reason = kibashipv1.ReasonStorageClassNotFound
		p.Message = fmt.Sprintf("StorageClass %s not found (%s): create it, or set another", m.Name, m.Where)
		if m.Name == "" {
			p.Message = "No StorageClass is the default, and BUILD_STORAGE_CLASS is not set: set it, or mark one as the default"
		}
	}
	p.Err = missingError(p.Message)
	return p
}

// missingError has a Deployment reconciled again with exponential backoff.
type missingError string

func (e missingError) Error() string { return string(e) }

// due reports whether a run is to be started: there is none of that name, and it is not known
// how it ended. One that is deleted before its end, with all of Tekton perhaps, is started
// again; one that is not wanted any more can be cancelled.
func due(o Observed, name string) bool {
	return o.find(name) == nil && !slices.ContainsFunc(o.Deployment.Status.RunHistory, func(r kibashipv1.PipelineRunStatus) bool {
		return r.Name == name && r.Phase != kibashipv1.DeploymentRunning
	})
}

// writeProblem turns what stopped a write, or a read of what a run needs, into a problem.
func newProblem(condition string, err error) *outcome.Problem {
	p := &outcome.Problem{Condition: condition, Message: err.Error(), Err: err}
	switch outcome.FindCause(err) {
	case outcome.NotOwned:
		p.Class, p.Reason = outcome.External, kibashipv1.ReasonOwnershipConflict
	case outcome.Conflict:
		p.Class = outcome.Stale
	case outcome.Terminating:
		// The end of what is in the way need not be seen by the name of this one: so we look again.
		p.Class, p.Reason, p.Err = outcome.Waiting, kibashipv1.ReasonWaiting, outcome.ErrConflict
		p.Message = "The namespace, or an object of an earlier Deployment, is being deleted"
	case outcome.Contested:
		p.Class, p.Reason = outcome.Retry, kibashipv1.ReasonContested
	case outcome.NotInstalled, outcome.NotServed:
		p.Class, p.Reason, p.Condition = outcome.External, kibashipv1.ReasonPipelineUnavailable, kibashipv1.ConditionPipelineAvailable
		p.Message = "Tekton Pipelines is being installed or removed: " + err.Error()
	case outcome.Rejected:
		p.Class, p.Reason = outcome.External, kibashipv1.ReasonRefused
	case outcome.Failed:
		p.Class, p.Reason = outcome.Retry, kibashipv1.ReasonWriteFailed
	}
	return p
}
