package deployment

import (
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/rules"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// check returns the problem that blocks a Deployment of any type of Application, nil when there is
// none.
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
		// The message of an earlier generation says nothing about this one.
		if message == "" || app.Status.ObservedGeneration != app.Generation {
			message = "the operator has not checked it yet"
		}
		return blocked(kibashipv1.ReasonApplicationNotReady, fmt.Sprintf("Application %s is not Ready: %s", app.Name, message))
	}
	return nil
}

// checkLabel returns the problem for a Deployment whose label was not written: a client that lists
// the Deployments of an Application by label does not find it.
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
		p.Class, p.Err = outcome.External, errors.New(p.Message) // its pod may only not have been read
		return p
	default:
		return nil
	}
}

// checkMissing returns the problem for objects that a run needs and that do not exist, nil if all
// exist. A created Secret is an event; other kinds are read again at intervals. Only the first is reported. The next one is found
// when the first exists.
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
	p.Err = errors.New(p.Message)
	return p
}

// due reports whether a run is to be started: there is none of that name, and it is not known
// how it ended. One that is deleted before its end, with all of Tekton perhaps, is started
// again; one that is not wanted any more can be cancelled.
func due(o Observed, name string) bool {
	return o.find(name) == nil && !slices.ContainsFunc(o.Deployment.Status.RunHistory, func(r kibashipv1.PipelineRunStatus) bool {
		return r.Name == name && r.Phase != kibashipv1.DeploymentRunning
	})
}

// newProblem returns the problem for the error of a write, or of a read that a run needs.
func newProblem(condition string, err error) *outcome.Problem {
	p := outcome.NewProblem(condition, err)
	switch {
	case p.Class == outcome.Waiting:
		// The end of what is in the way need not be seen by the name of this one, so the write is repeated.
		p.Err, p.Message = outcome.ErrConflict, "The namespace, or an object of an earlier Deployment, is being deleted"
	case p.Reason == outcome.ReasonAPINotInstalled:
		p.Reason, p.Condition = kibashipv1.ReasonPipelineUnavailable, kibashipv1.ConditionPipelineAvailable
		p.Message = "Tekton Pipelines is being installed or removed: " + p.Message
	}
	return p
}
