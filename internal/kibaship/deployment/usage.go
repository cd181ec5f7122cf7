package deployment

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/commitstatus"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

// endedBuilds returns the runs that have started, and have ended since the status was written. A run that was deleted before its end used
// the time until now, also if it is started again. The status before this reconciliation says which ends are counted: one with a
// CompletionTime and the same start is.
func endedBuilds(d *kibashipv1.Deployment, runs []Run, tekton bool, now time.Time) (ended []usage.Build) {
	observed := Observed{Runs: runs}
	for _, run := range runs {
		if known := knownRun(&d.Status, run.Name); run.Started != nil && run.over() && (known.CompletionTime == nil || !known.StartTime.Equal(run.Started)) {
			build := usage.Build{Run: run.Name, Started: run.Started.Time, Ended: now, ImageBytes: run.ImageBytes, Succeeded: run.Phase == kibashipv1.DeploymentSucceeded}
			if run.Completed != nil {
				build.Ended = run.Completed.Time
			}
			ended = append(ended, build)
		}
	}
	for _, known := range d.Status.RunHistory {
		live := observed.find(known.Name)
		if tekton && known.Phase == kibashipv1.DeploymentRunning && known.StartTime != nil && (live == nil || !known.StartTime.Equal(live.Started)) {
			ended = append(ended, usage.Build{Run: known.Name, Started: known.StartTime.Time, Ended: now})
		}
	}
	return ended
}

// finalize counts the builds of a Deployment that is being deleted, and waits until its last state is sent to the provider. A run that is not
// over is deleted with the Deployment: it ends now.
func (r *Reconciler) finalize(ctx context.Context, d *kibashipv1.Deployment, now time.Time) (done bool, after time.Duration, err error) {
	if r.Config.Pushes.CommitStatus {
		a := &kibashipv1.Application{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.ApplicationRef.Name}, a)
		if apply.IgnoreAbsent(err) != nil {
			return false, 0, err
		}
		if wait := commitstatus.Unsent(d, a, now); err == nil && wait > 0 {
			return false, wait, nil
		}
	}
	var runs []Run
	tekton := r.hasTekton()
	if tekton {
		if runs, err = r.observeRuns(ctx, d); err != nil {
			return false, 0, err
		}
	}
	for i := range runs {
		if !runs[i].over() {
			runs[i].Phase = kibashipv1.DeploymentFailed
		}
	}
	err = r.countBuilds(ctx, d.Namespace, endedBuilds(d, runs, tekton, now))
	return err == nil, 0, err
}

// countBuilds adds builds that have ended to the usage of the Project. It is called before their ends are recorded in the Deployment, so that
// none is missed; the usage itself knows which ones it has. A Project that is being deleted counts nothing. The patch has the
// lock. A conflict is returned, and the whole reconciliation is repeated with the newer usage.
func (r *Reconciler) countBuilds(ctx context.Context, namespace string, ended []usage.Build) error {
	name, ok := naming.ParseNamespace(namespace)
	if len(ended) == 0 || !ok {
		return nil
	}
	p := &kibashipv1.Project{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, p); err != nil {
		return apply.IgnoreAbsent(err)
	}
	if p.DeletionTimestamp != nil || p.Status.NamespaceName != namespace {
		return nil
	}
	before := p.DeepCopy()
	var added []usage.Build
	for _, build := range ended {
		if usage.AddBuild(&p.Status.Usage, build, r.Config.Builds.Limits) {
			added = append(added, build)
		}
	}
	if len(added) == 0 {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return apply.IgnoreAbsent(err)
	}
	// The counters of Prometheus follow only after the write has succeeded.
	for _, build := range added {
		buildSeconds.Add(float64(build.Seconds()))
		imageBytes.Add(float64(build.ImageBytes))
	}
	return nil
}
