package deployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

// computeStatus writes into the status of a Deployment what an outcome means. The order matters: the history is computed before
// the image and the current run, which are taken from it.
func computeStatus(out Outcome, builds config.Builds, now time.Time) reconcile.Ready {
	d := out.Deployment
	s := &d.Status
	// All three are read before the fields that they compare are written.
	handled := s.ObservedGeneration == d.Generation
	runAgain, asked := effectiveRunAgain(d), imageRequest(d)
	s.ObservedGeneration, s.RunAgain = d.Generation, runAgain
	computeHistory(out, builds.Timeout, now)
	computeImage(out, asked, now)

	current := currentRun(out, handled)
	s.Phase, s.Message = computePhase(out, current, builds.ResultTime, now)
	s.Message = conditions.Bound(s.Message)
	succeeded := succeededCondition(out, current, builds.Timeout, now)
	conditions.Upsert(&s.Conditions, d.Generation, now, applicationReady(out), pipelineAvailable(out), succeeded)
	return computeReady(out, succeeded)
}

// computeHistory writes the known runs, the newest first. A deleted run keeps its record. A record outlives its PipelineRun,
// which may be deleted at any time: the history is the only place that has the image of a run then.
func computeHistory(out Outcome, timeout time.Duration, now time.Time) {
	s := &out.Deployment.Status
	var all []kibashipv1.PipelineRunStatus
	for _, run := range out.Runs {
		known := knownRun(s, run.Name)
		record := kibashipv1.PipelineRunStatus{
			Name: run.Name, Namespace: out.Deployment.Namespace, Phase: run.Phase, StartTime: run.Started, CompletionTime: run.Completed,
			CommitSHA: run.Commit, Source: run.Source, Message: conditions.Bound(runMessage(run, known)),
		}
		if problem, after := unattended(run, timeout, now); problem != "" && after <= 0 {
			record.Message = problem
		}
		if run.Phase == kibashipv1.DeploymentSucceeded {
			record.Image, record.ImageBytes = pushedImage(out, run, known), run.ImageBytes
		}
		all = append(all, record)
	}
	for _, known := range s.RunHistory {
		if !slices.ContainsFunc(all, func(r kibashipv1.PipelineRunStatus) bool { return r.Name == known.Name }) {
			if out.lost(known) {
				known.Phase, known.Message = kibashipv1.DeploymentFailed, "The PipelineRun was deleted before its end"
				known.CompletionTime = &metav1.Time{Time: now.Truncate(time.Second)}
			}
			all = append(all, known)
		}
	}
	if out.In != nil && out.In.Adopted != nil {
		all = append(all, *out.In.Adopted)
	}
	slices.SortStableFunc(all, func(a, b kibashipv1.PipelineRunStatus) int { return sortTime(b).Compare(sortTime(a)) })
	if out.In != nil && out.In.Earlier != "" { // the run that the spec asks for stays, also if others are newer
		if index := slices.IndexFunc(all, func(r kibashipv1.PipelineRunStatus) bool { return r.Name == out.In.Earlier }); index >= kibashipv1.HistoryLimit {
			all[kibashipv1.HistoryLimit-1] = all[index]
		}
	}
	s.RunHistory = all[:min(len(all), kibashipv1.HistoryLimit)]
	if len(s.RunHistory) == 0 {
		return
	}
	s.CurrentPipelineRun = s.RunHistory[0].DeepCopy()
	if out.In != nil {
		if index := slices.IndexFunc(s.RunHistory, func(r kibashipv1.PipelineRunStatus) bool { return r.Name == out.In.runName() }); index >= 0 {
			s.CurrentPipelineRun = s.RunHistory[index].DeepCopy()
		}
	}
	if index := slices.IndexFunc(s.RunHistory, func(r kibashipv1.PipelineRunStatus) bool { return r.Phase == kibashipv1.DeploymentSucceeded }); index >= 0 {
		s.LastSuccessfulRun = s.RunHistory[index].DeepCopy()
	}
}

// sortTime returns the time that orders runs: a run that Tekton has not started yet counts as the newest.
func sortTime(r kibashipv1.PipelineRunStatus) time.Time {
	switch {
	case r.StartTime != nil:
		return r.StartTime.Time
	case r.CompletionTime != nil:
		return r.CompletionTime.Time
	default:
		return time.Unix(1<<40, 0)
	}
}

// lost reports whether an unfinished run was deleted and will not be started again, because the
// spec asks for another one. While the wanted run is not known, it reports false. A wanted run that was deleted is not lost: it
// is started again under the same name.
func (out Outcome) lost(known kibashipv1.PipelineRunStatus) bool {
	if !out.Tekton || known.Phase != kibashipv1.DeploymentRunning {
		return false
	}
	return out.buildsNothing() || out.In != nil && out.In.runName() != known.Name
}

// buildsNothing reports whether the Application is known, and is none that is built.
func (out Outcome) buildsNothing() bool {
	return out.Application != nil && out.Application.Spec.Type != kibashipv1.TypeGitRepository
}

// runMessage returns the message for a run. Tekton deletes the reason of a waiting pod together with
// the pod, so for a run that timed out before any step started the previously recorded reason is used.
func runMessage(run Run, known kibashipv1.PipelineRunStatus) string {
	switch {
	case run.Executed || known.Message == "":
	case !run.over() && run.Message == "" && run.Ending:
		return known.Message
	case run.over() && run.Reason == kibashipv1.ReasonRunTimedOut && known.Phase == kibashipv1.DeploymentRunning:
		return run.Message + ". No step of it began: " + known.Message
	case run.over() && run.Reason == kibashipv1.ReasonRunTimedOut:
		return known.Message
	}
	return run.Message
}

// pushedImage returns the reference of the image that a run pushed, with the repository that the run
// was started with, as the settings may name another registry by now. A recorded reference stays. A record of an image is never
// computed again.
func pushedImage(out Outcome, run Run, known kibashipv1.PipelineRunStatus) string {
	repository := run.Repository
	switch {
	case known.Image != "":
		return known.Image
	case repository == "" && out.In != nil:
		repository = out.In.repository()
	case repository == "":
		return ""
	}
	return repository + "@" + run.Digest
}

// computeImage writes the current image. asked is the request that out.Image answers.
func computeImage(out Outcome, asked string, now time.Time) {
	s := &out.Deployment.Status
	switch {
	// BuiltAt stays where the same request has the same answer.
	case out.Image != nil:
		if known := s.BuiltImage; known != nil && known.Reference == out.Image.Reference && known.Tag == out.Image.Tag && known.Request == asked {
			return
		}
		s.BuiltImage = &kibashipv1.BuiltImage{
			Reference: out.Image.Reference, Digest: out.Image.Digest, Tag: out.Image.Tag,
			BuiltAt: &metav1.Time{Time: now.Truncate(time.Second)}, Request: asked,
		}
	case out.buildsNothing(), out.Application == nil && s.BuiltImage != nil && s.BuiltImage.Request != "":
		// Runs of an earlier source do not describe the current one.
	case s.LastSuccessfulRun != nil && s.LastSuccessfulRun.Image != "":
		last := s.LastSuccessfulRun
		if current := s.CurrentPipelineRun; current != nil && current.Phase == kibashipv1.DeploymentSucceeded && current.Image != "" {
			last = current // the requested source was built before a source that was requested in between
		}
		_, digest, _ := strings.Cut(last.Image, "@")
		s.BuiltImage = &kibashipv1.BuiltImage{
			Reference: last.Image, Digest: digest, Tag: last.CommitSHA, BuiltAt: last.CompletionTime, CommitSHA: last.CommitSHA,
		}
	}
}

// currentRun is the run that the spec asks for, nil if there is none yet, or if the Application
// is none that is built. Where the Application is not known, it is the last one, if it was
// started for this spec.
func currentRun(out Outcome, handled bool) *kibashipv1.PipelineRunStatus {
	current := out.Deployment.Status.CurrentPipelineRun
	if current == nil || out.buildsNothing() || out.In == nil && !handled || out.In != nil && current.Name != out.In.runName() {
		return nil
	}
	return current
}

// computePhase is where a Deployment stands, in a word and in a sentence. A result is the phase for a limited time. After it the
// phase is Waiting, and the condition Succeeded still has the result.
func computePhase(out Outcome, current *kibashipv1.PipelineRunStatus, shown time.Duration, now time.Time) (kibashipv1.DeploymentPhase, string) {
	over := current != nil && current.Phase != kibashipv1.DeploymentRunning
	// The result of a run that is over stays visible, also while a problem stops the next reconciliation.
	if p := out.Problem; p != nil && !over {
		switch {
		case p.Condition != kibashipv1.ConditionApplicationReady && p.Class != outcome.Retry:
			return kibashipv1.DeploymentWaiting, p.Message
		case current == nil:
			return kibashipv1.DeploymentInitializing, p.Message
		}
	}
	app := out.Application
	switch {
	case current != nil && !over:
		return current.Phase, cmp.Or(current.Message, "An image is being built by PipelineRun "+current.Name)
	case over:
		text := fmt.Sprintf("PipelineRun %s: %s", current.Name, current.Message)
		if current.Phase == kibashipv1.DeploymentSucceeded {
			text = "Built " + cmp.Or(current.Image, "by PipelineRun "+current.Name) + note(current)
		}
		if resultShown(current, shown, now) > 0 {
			return current.Phase, text
		}
		return kibashipv1.DeploymentWaiting, "Waits for a change of its spec. " + text
	case app != nil && app.Spec.Type == kibashipv1.TypeDockerImage && out.Deployment.Status.BuiltImage != nil:
		text := "The image is " + out.Deployment.Status.BuiltImage.Reference
		if built := out.Deployment.Status.BuiltImage.BuiltAt; built != nil && built.Add(shown).After(now) {
			return kibashipv1.DeploymentSucceeded, text
		}
		return kibashipv1.DeploymentWaiting, "Waits for a change of its spec. " + text
	case app != nil && nothingToBuild(app):
		return kibashipv1.DeploymentWaiting, nothing(app)
	default:
		return kibashipv1.DeploymentInitializing, "The run is about to be started"
	}
}

// note is what a run reported although it succeeded, as another sentence.
func note(run *kibashipv1.PipelineRunStatus) string {
	if run.Message == "" {
		return ""
	}
	return ". " + run.Message
}

// resultShown is how much longer the result of a run is the phase.
func resultShown(run *kibashipv1.PipelineRunStatus, shown time.Duration, now time.Time) time.Duration {
	if run.CompletionTime == nil {
		return 0
	}
	return max(run.CompletionTime.Add(shown).Sub(now), 0)
}

// responseTime is how long Tekton may take to respond to a new run, or to end one whose time is over.
const responseTime = time.Minute

// unattended returns the problem for a run that Tekton's controller does not respond to, and the time until it becomes one: it is
// due where that is not positive. The text is empty if the controller responds.
func unattended(run Run, timeout time.Duration, now time.Time) (problem string, after time.Duration) {
	const advice = "see whether its controller runs, with kubectl get pods -n tekton-pipelines"
	switch {
	case run.over():
		return "", 0
	case !run.Seen:
		return fmt.Sprintf("Tekton has not started PipelineRun %s within %s: %s", run.Name, responseTime, advice), run.Created.Add(responseTime).Sub(now)
	case !run.IdleSince.IsZero():
		return fmt.Sprintf("Tekton has not continued PipelineRun %s for %s, although its pod has ended: %s", run.Name, responseTime, advice), run.IdleSince.Add(responseTime).Sub(now)
	case run.Started != nil && timeout > 0:
		return fmt.Sprintf("Tekton has not ended PipelineRun %s at its timeout: %s", run.Name, advice), run.Started.Add(timeout + responseTime).Sub(now)
	default:
		return "", 0
	}
}

// notResponding reports whether Tekton's controller does not respond to a run.
func (out Outcome) notResponding(name string, timeout time.Duration, now time.Time) bool {
	run := out.find(name)
	if run == nil {
		return false
	}
	problem, after := unattended(*run, timeout, now)
	return problem != "" && after <= 0
}

// requeueAfter is after how long time alone changes the status, zero for never. The pod of a run is looked up at intervals: only Tekton
// sees its end, and may not run. A moment that has passed gives a millisecond, as zero would mean that time changes nothing.
func requeueAfter(out Outcome, builds config.Builds, now time.Time) time.Duration {
	s, shown := out.Deployment.Status, builds.ResultTime
	if s.CurrentPipelineRun != nil && s.CurrentPipelineRun.Phase == kibashipv1.DeploymentRunning {
		if run := out.find(s.CurrentPipelineRun.Name); run != nil {
			if problem, after := unattended(*run, builds.Timeout, now); problem != "" && after > 0 {
				return min(after, responseTime)
			}
			return responseTime
		}
	}
	if s.Phase != kibashipv1.DeploymentSucceeded && s.Phase != kibashipv1.DeploymentFailed {
		return 0
	}
	if out.buildsNothing() && s.BuiltImage != nil && s.BuiltImage.BuiltAt != nil {
		return max(s.BuiltImage.BuiltAt.Add(shown).Sub(now), time.Millisecond)
	}
	if s.CurrentPipelineRun != nil {
		return max(resultShown(s.CurrentPipelineRun, shown, now), time.Millisecond)
	}
	return 0
}

// nothingToBuild reports whether an Application is a database: it is checked, and no more.
func nothingToBuild(app *kibashipv1.Application) bool {
	return app.Spec.Type != kibashipv1.TypeGitRepository && app.Spec.Type != kibashipv1.TypeDockerImage
}

func nothing(app *kibashipv1.Application) string {
	return fmt.Sprintf("An Application of type %s has no image: there is nothing to build, and the operator starts no database. Your platform must run one", app.Spec.Type)
}

func newCondition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// on reports whether an outcome was stopped by a problem of a condition.
func (out Outcome) on(conditionType string) bool {
	return out.Problem != nil && out.Problem.Condition == conditionType
}

func applicationReady(out Outcome) metav1.Condition {
	const this = kibashipv1.ConditionApplicationReady
	if out.on(this) {
		return newCondition(this, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message)
	}
	return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonApplicationReady, "The Application is Ready")
}

func pipelineAvailable(out Outcome) metav1.Condition {
	const this = kibashipv1.ConditionPipelineAvailable
	switch {
	case out.on(this):
		return newCondition(this, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message)
	case out.In != nil:
		return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonPipelineAvailable, "Pipeline "+out.In.pipelineName()+" is in place")
	case out.Application != nil && out.Application.Spec.Type != kibashipv1.TypeGitRepository:
		return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonPipelineNotNeeded, fmt.Sprintf("An Application of type %s needs no Pipeline", out.Application.Spec.Type))
	default:
		return newCondition(this, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Waits for "+kibashipv1.ConditionApplicationReady)
	}
}

// succeededCondition puts the end of the current run before every problem: a run that is over has its result, also if the next
// one could not start.
func succeededCondition(out Outcome, current *kibashipv1.PipelineRunStatus, timeout time.Duration, now time.Time) metav1.Condition {
	const this = kibashipv1.ConditionSucceeded
	over := current != nil && current.Phase != kibashipv1.DeploymentRunning
	app := out.Application
	switch {
	case over && current.Phase == kibashipv1.DeploymentSucceeded:
		return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonSucceeded, fmt.Sprintf("PipelineRun %s built %s from commit %s", current.Name, current.Image, current.CommitSHA)+note(current))
	case over:
		reason := kibashipv1.ReasonRunFailed
		if run := out.find(current.Name); run != nil {
			reason = run.Reason
			// The run was deleted. The condition has the reason that it ended with.
		} else if old := meta.FindStatusCondition(out.Deployment.Status.Conditions, this); old != nil && old.Status == metav1.ConditionFalse {
			reason = old.Reason
		}
		return newCondition(this, metav1.ConditionFalse, reason, fmt.Sprintf("PipelineRun %s: %s", current.Name, current.Message))
	case out.on(this) && (out.Problem.Class == outcome.Waiting || out.Problem.Class == outcome.Retry):
		return newCondition(this, metav1.ConditionUnknown, out.Problem.Reason, out.Problem.Message)
	case out.on(this):
		return newCondition(this, metav1.ConditionFalse, out.Problem.Reason, out.Problem.Message)
	case out.Problem != nil:
		return newCondition(this, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "Waits for "+out.Problem.Condition)
	case current != nil && out.notResponding(current.Name, timeout, now):
		return newCondition(this, metav1.ConditionUnknown, kibashipv1.ReasonTektonNotResponding, current.Message)
	case current != nil:
		return newCondition(this, metav1.ConditionUnknown, kibashipv1.ReasonRunning, cmp.Or(current.Message, "PipelineRun "+current.Name+" runs"))
	case app != nil && app.Spec.Type == kibashipv1.TypeDockerImage && out.Deployment.Status.BuiltImage != nil:
		return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonImageResolved, "The image is "+out.Deployment.Status.BuiltImage.Reference)
	case app != nil && nothingToBuild(app):
		return newCondition(this, metav1.ConditionTrue, kibashipv1.ReasonNothingToBuild, nothing(app))
	default:
		return newCondition(this, metav1.ConditionUnknown, kibashipv1.ReasonWaiting, "The run is about to be started")
	}
}

// computeReady computes Ready: it is true when the image that the spec asks for exists. A failed run
// needs a change of the spec.
func computeReady(out Outcome, succeeded metav1.Condition) reconcile.Ready {
	switch {
	case succeeded.Status == metav1.ConditionTrue:
		return reconcile.Ready{Status: metav1.ConditionTrue, Reason: succeeded.Reason, Message: succeeded.Message}
	case out.Problem != nil:
		return reconcile.ReadyUnless(out.Problem, "", "")
	default:
		return reconcile.Ready{
			Status: metav1.ConditionFalse, Reason: succeeded.Reason, Message: succeeded.Message,
			Stalled: succeeded.Status == metav1.ConditionFalse,
		}
	}
}
