package deployment

import (
	"slices"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

// Observed is everything that decides what happens to a Deployment.
type Observed struct {
	Deployment *kibashipv1.Deployment
	// Application is nil where it does not exist.
	Application *kibashipv1.Application
	// Project is nil where it does not exist, or where the Application is not known.
	Project *kibashipv1.Project
	// Siblings are the Deployments of the Application where a commit is asked for: one of them may have built it.
	Siblings []kibashipv1.Deployment
	// Tekton: its kinds are served, and the settings do not say to leave them alone.
	Tekton bool
	// Runs are the runs of this Deployment, the newest first.
	Runs []Run
	// Missing is what a run needs and does not find. It is looked for where a run is to be
	// started, or does not get on.
	Missing []Missing
}

// Missing is an object that a run needs.
type Missing struct {
	Kind, Name string
	// Where says who names it.
	Where string
}

// find returns a run by its name, nil if there is none.
func (o Observed) find(name string) *Run {
	index := slices.IndexFunc(o.Runs, func(r Run) bool { return r.Name == name })
	if index < 0 {
		return nil
	}
	return &o.Runs[index]
}

// Outcome is what one reconciliation observed and did, and all that a status is computed from.
type Outcome struct {
	Observed
	// Problem is what stopped the reconciliation; nil when everything is in place or in progress.
	Problem *outcome.Problem
	// Started is the name of the run that this reconciliation created, "" for none.
	Started string
	// In is nil where the Application has nothing to build, or is not known.
	In *Inputs
	// Image is what the registry said of a DockerImage; nil where it was not asked.
	Image *registry.Image
}

// runSource stands for what a run was started to build, "" where that is not known.
func (o Observed) runSource(run string) string {
	if live := o.find(run); live != nil {
		return live.Source
	}
	return knownRun(&o.Deployment.Status, run).Source
}

// knownRun returns the record of a run in the status, an empty one if there is none.
func knownRun(s *kibashipv1.DeploymentStatus, name string) kibashipv1.PipelineRunStatus {
	for _, known := range s.RunHistory {
		if known.Name == name {
			return known
		}
	}
	return kibashipv1.PipelineRunStatus{}
}
