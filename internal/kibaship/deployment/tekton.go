package deployment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/refusal"
)

// Tekton's kinds. Its Go types are not imported: the API is optional, and only the few fields below
// are read.
var (
	tektonVersion   = schema.GroupVersion{Group: "tekton.dev", Version: "v1"}
	pipelineKind    = tektonVersion.WithKind("Pipeline")
	pipelineRunKind = tektonVersion.WithKind("PipelineRun")
	taskRunKind     = tektonVersion.WithKind("TaskRun")
)

func empty(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

func emptyList(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// runStatus holds the fields that are read from the status of a PipelineRun and of a TaskRun. TrimRun keeps these alone: a field
// that is added here must be added there.
type runStatus struct {
	Conditions      []metav1.Condition `json:"conditions"`
	StartTime       *metav1.Time       `json:"startTime"`
	CompletionTime  *metav1.Time       `json:"completionTime"`
	ChildReferences []struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"childReferences"`
	PodName string      `json:"podName"`
	Steps   []stepState `json:"steps"`

	// Created is when the object was created.
	Created metav1.Time `json:"-"`
}

type stepState struct {
	Name              string    `json:"name"`
	Container         string    `json:"container"`
	Terminated        *endState `json:"terminated"`
	Running           *struct{} `json:"running"`
	TerminationReason string    `json:"terminationReason"`
	Results           []struct {
		Name  string `json:"name"`
		Value any    `json:"value"`
	} `json:"results"`
}

// endState is how a container ended. Tekton writes one for containers that never began, too,
// when it ends their pod: without the time of their beginning, or with the creation of the TaskRun as that time.
type endState struct {
	ExitCode  int32        `json:"exitCode"`
	Reason    string       `json:"reason"`
	StartedAt *metav1.Time `json:"startedAt"`
}

// began reports whether the container of a step ran.
func (r runStatus) began(s stepState) bool {
	return s.Running != nil || s.Terminated != nil && s.Terminated.StartedAt != nil && !s.Terminated.StartedAt.Equal(&r.Created) && s.TerminationReason != "Skipped"
}

func (s stepState) result(name string) string {
	for _, r := range s.Results {
		if text, ok := r.Value.(string); ok && r.Name == name {
			return text
		}
	}
	return ""
}

// The reasons of Tekton that say more than that a run failed:
// https://tekton.dev/docs/pipelines/pipelineruns/#monitoring-execution-status
var (
	cancelled = []string{"Cancelled", "CancelledRunningFinally", "StoppedRunningFinally", "PipelineRunStopping", "TaskRunCancelled"}
	timedOut  = []string{"PipelineRunTimeout", "PipelineRunTimeoutRunningFinally", "TaskRunTimeout"}
	refused   = []string{"PodAdmissionFailed", "PodCreationFailed", "ExceededResourceQuota"}
	pulling   = []string{"TaskRunImagePullFailed", "PullImageFailed"}
	// stuck are the reasons of a TaskRun that is not over and makes no progress by itself.
	stuck = []string{"PullImageFailed", "CreateContainerConfigError", "ExceededResourceQuota", "ExceededNodeResources", "PodCreationFailed"}
	// unplaced matches the messages of Tekton for a pod that has no node, often because a volume is not
	// bound, or whose containers cannot be created. Every other pod is Pending for a moment, too.
	unplaced = regexp.MustCompile(`"PodScheduled":"False"|^build step .* is pending with reason `)
	// evicted matches the message of a kubelet that evicted a pod for its usage:
	// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#resource-emphemeralstorage-consumption
	evicted = regexp.MustCompile(`exceeds the (total )?limit|exceeded its local ephemeral storage limit|[Nn]ode was low on resource`)
)

const pending = "Pending"

// failedStep is a step that ended a run and reported nothing itself.
type failedStep struct{ Pod, Container, Step string }

func (f failedStep) logs(namespace string) string {
	return fmt.Sprintf("kubectl logs -n %s %s -c %s shows more", namespace, f.Pod, f.Container)
}

// Run is the observed state of a PipelineRun.
type Run struct {
	Name      string
	Created   time.Time
	Started   *metav1.Time
	Completed *metav1.Time
	// Phase is Running, Succeeded or Failed.
	Phase kibashipv1.DeploymentPhase
	// Reason and Message say why the run failed, or why it waits.
	Reason, Message string
	// Seen: Tekton has written a status.
	Seen bool
	// Executed: a container of the run started. Ending: one of its TaskRuns is over.
	Executed, Ending bool
	// Commit is the requested commit, else the result of the step that clones; Digest is the result of
	// the step that pushes. No step between them can write these results.
	Commit, Digest string
	// ImageBytes is the size of the image, as the same step reported it; 0 if it is not known.
	ImageBytes int64
	// Source is the hash of the source that the run was started for, "" where it is not known.
	Source string
	// Repository is where it had to push to, "" of one that pushes nothing.
	Repository string
	// Cancelling: a client asked for its end.
	Cancelling bool
	// Warning is what the step that prepares reported about a run that goes on.
	Warning string
	// Failed is the step that ended the run without a report, nil for none.
	Failed *failedStep
	// PullSecret is the Secret that the step that builds can read, "" for none.
	PullSecret string
	// Pod is the pod of a TaskRun that is not over, "" if there is none yet.
	Pod string
	// IdleSince is the time since when Tekton's controller has something to do for the run, zero if the run waits for its pod.
	IdleSince time.Time
}

func (r Run) over() bool { return r.Phase != kibashipv1.DeploymentRunning }

var (
	commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// readRun reads a PipelineRun and the TaskRuns that it owns. Only results of a known form are taken, and none of the step that
// builds.
func readRun(pipelineRun *unstructured.Unstructured, taskRuns []unstructured.Unstructured) Run {
	run := Run{Name: pipelineRun.GetName(), Created: pipelineRun.GetCreationTimestamp().Time, Phase: kibashipv1.DeploymentRunning}
	asked, _, _ := unstructured.NestedString(pipelineRun.Object, "spec", "status") // a value of another type counts as unset
	run.Cancelling = asked != ""
	status := parseStatus(pipelineRun)
	run.Started, run.Completed = status.StartTime, status.CompletionTime
	run.Seen = status.StartTime != nil || len(status.Conditions) > 0
	succeeded := findSucceeded(status)
	children := childStatuses(pipelineRun, status, taskRuns)
	run.Repository = findParam(pipelineRun, paramRepository)
	run.Source = pipelineRun.GetAnnotations()[kibashipv1.AnnotationSource]
	run.PullSecret = findSecret(pipelineRun, workspacePull)
	for _, child := range children {
		run.Ending = run.Ending || findSucceeded(child).Status != metav1.ConditionUnknown
		for _, s := range child.Steps {
			run.Executed = run.Executed || child.began(s)
			switch s.Name {
			case stepClone:
				if commit := s.result(resultCommit); commitPattern.MatchString(commit) {
					run.Commit = commit
				}
			case stepPrepare:
				run.Warning = conditions.Shorten(s.result(resultWarning), maxProblem)
			case stepPush:
				if digest := s.result(resultDigest); digestPattern.MatchString(digest) {
					run.Digest = digest
				}
				if size, err := strconv.ParseInt(s.result(resultSize), 10, 64); err == nil {
					run.ImageBytes = max(size, 0)
				}
			}
		}
	}
	asked = findParam(pipelineRun, paramCommit)
	// The step that clones must report the commit that the parameter names.
	another := asked != "" && run.Commit != "" && run.Commit != asked
	run.Commit = cmp.Or(asked, run.Commit)
	switch succeeded.Status {
	case metav1.ConditionTrue:
		run.Phase, run.Reason, run.Message = kibashipv1.DeploymentSucceeded, kibashipv1.ReasonSucceeded, run.Warning
		if run.Digest == "" || run.Commit == "" {
			run.Phase, run.Reason = kibashipv1.DeploymentFailed, kibashipv1.ReasonRunFailed
			run.Message = "The run is over and does not tell which image it pushed, or of which commit: BUILD_PUSH_IMAGE must be an image of this operator"
		}
		if another {
			run.Phase, run.Reason = kibashipv1.DeploymentFailed, kibashipv1.ReasonRunFailed
			run.Message, run.Digest = "The run reports an image of another commit, which another pod of this name has built: ask for another run", ""
		}
	case metav1.ConditionFalse:
		run.Phase = kibashipv1.DeploymentFailed
		run.Reason, run.Message, run.Failed = whyFailed(succeeded, children)
	default:
		run.Reason = kibashipv1.ReasonRunning
		run.Pod, run.IdleSince = unfinished(status, children)
		run.Message = whyStuck(children)
		if run.Message == "" && slices.Contains(cancelled, succeeded.Reason) {
			run.Message = "The run is being cancelled"
		}
	}
	return run
}

func parseStatus(u *unstructured.Unstructured) runStatus {
	var status runStatus
	if content, ok := u.Object["status"].(map[string]any); ok {
		// Fields of other types, which another version of Tekton may write, are left out.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status)
	}
	status.Created = u.GetCreationTimestamp()
	return status
}

// findParam returns the value of a parameter of a PipelineRun, "" if it is not set.
func findParam(pipelineRun *unstructured.Unstructured, name string) string {
	all, _, _ := unstructured.NestedSlice(pipelineRun.Object, "spec", "params") // a value of another type counts as no parameters
	for _, p := range all {
		if param, ok := p.(map[string]any); ok && param["name"] == name {
			value, _ := param["value"].(string)
			return value
		}
	}
	return ""
}

// findSecret returns the Secret of a workspace of a run, "" if there is none.
func findSecret(pipelineRun *unstructured.Unstructured, workspace string) string {
	all, _, _ := unstructured.NestedSlice(pipelineRun.Object, "spec", "workspaces") // a value of another type counts as no workspaces
	for _, w := range all {
		if binding, ok := w.(map[string]any); ok && binding["name"] == workspace {
			name, _, _ := unstructured.NestedString(binding, "secret", "secretName") // as above
			return name
		}
	}
	return ""
}

func findSucceeded(status runStatus) metav1.Condition {
	for _, c := range status.Conditions {
		if c.Type == "Succeeded" {
			return c
		}
	}
	return metav1.Condition{Status: metav1.ConditionUnknown}
}

// childStatuses returns the status of the TaskRuns of a PipelineRun, in the order in which it
// names them. A TaskRun counts only with the owner's UID. A label or a name may be taken by any object of the namespace.
func childStatuses(pipelineRun *unstructured.Unstructured, status runStatus, taskRuns []unstructured.Unstructured) []runStatus {
	var children []runStatus
	for _, reference := range status.ChildReferences {
		for i := range taskRuns {
			owner := metav1.GetControllerOf(&taskRuns[i])
			if taskRuns[i].GetName() == reference.Name && owner != nil && owner.UID == pipelineRun.GetUID() {
				children = append(children, parseStatus(&taskRuns[i]))
			}
		}
	}
	return children
}

// unfinished returns the pod that a run waits for, and since when the run waits for Tekton instead: each TaskRun is over, or there is
// none yet.
func unfinished(status runStatus, children []runStatus) (pod string, idle time.Time) {
	if status.StartTime != nil {
		idle = status.StartTime.Time
	}
	for _, child := range children {
		switch {
		case findSucceeded(child).Status == metav1.ConditionUnknown:
			return child.PodName, time.Time{}
		case child.CompletionTime != nil && child.CompletionTime.After(idle):
			idle = child.CompletionTime.Time
		}
	}
	return "", idle
}

// failure returns the step at which a TaskRun failed, nil for none. Tekton ends the steps behind it, too.
func failure(child runStatus) *stepState {
	for i, s := range child.Steps {
		if s.Terminated != nil && s.Terminated.ExitCode != 0 && s.TerminationReason != "Skipped" {
			return &child.Steps[i]
		}
	}
	return nil
}

// whyFailed says why a run failed: a TaskRun knows more than the PipelineRun, and a step more
// than the TaskRun.
func whyFailed(succeeded metav1.Condition, children []runStatus) (reason, message string, failed *failedStep) {
	reason, message = classify(succeeded.Reason), clause(succeeded.Message)
	switch reason {
	case kibashipv1.ReasonRunCancelled:
		return reason, cmp.Or(message, "The run was ended: "+succeeded.Reason), nil
	case kibashipv1.ReasonRunTimedOut:
		return reason, cmp.Or(message, "The run was ended: "+succeeded.Reason) + ": " + whyTimedOut(children), nil
	}
	for _, child := range children {
		condition := findSucceeded(child)
		if condition.Status != metav1.ConditionFalse {
			continue
		}
		reason, message = classify(condition.Reason), condition.Reason+": "+condition.Message
		step := failure(child)
		if step != nil && step.TerminationReason == stepTimedOut {
			return kibashipv1.ReasonRunTimedOut, fmt.Sprintf("Step %s was ended: %s", step.Name, adviceTimedOut(step.Name)), nil
		}
		if reason != kibashipv1.ReasonRunFailed {
			break // Tekton ends the steps of such a TaskRun, as if they had failed themselves
		}
		if evicted.MatchString(condition.Message) {
			return reason, clause(condition.Message) + ": make the build smaller, or raise BUILD_LIMITS or BUILD_STORAGE_SIZE", nil
		}
		if step != nil {
			message, failed = whyStep(child.PodName, *step)
			return reason, message, failed
		}
		break
	}
	return reason, explainRefusal(cmp.Or(message, succeeded.Reason, "Tekton does not say why")), nil
}

// explainRefusal adds what helps where the API server refuses the pod of a run. Other messages, as of a registry, are not its own.
func explainRefusal(message string) string {
	if !strings.Contains(message, " is forbidden: ") {
		return message
	}
	return refusal.Annotate(message)
}

// clause returns a message of Tekton without the mark at its end, so that it can be continued.
func clause(message string) string { return strings.TrimRight(message, ". ") }

// stepTimedOut is Tekton's reason for a step that took longer than its own timeout.
const stepTimedOut = "TimeoutExceeded"

// whyTimedOut says what took a run so long: Tekton ends the step that runs, and those behind it.
func whyTimedOut(children []runStatus) string {
	for _, child := range children {
		if step := failure(child); step != nil && child.began(*step) {
			return "step " + step.Name + " had not ended. " + adviceTimedOut(step.Name)
		}
	}
	return "no step had begun. " + adviceTimedOut(stepBuild)
}

func adviceTimedOut(step string) string {
	switch step {
	case stepClone:
		return "The git server does not answer, or sends too slowly for half of BUILD_TIMEOUT: see whether it works, make the repository smaller, or raise BUILD_TIMEOUT"
	case stepPush:
		return "The registry of BUILD_REGISTRY does not answer, or receives too slowly: see whether it works, or raise BUILD_TIMEOUT"
	default:
		return "Make the build quicker, or raise BUILD_TIMEOUT"
	}
}

// adviseSpace returns what to do if a step found the disk full, "" for another output.
func adviseSpace(output string) string {
	if !strings.Contains(strings.ToLower(output), "no space left on device") { // the text of ENOSPC
		return ""
	}
	return ". The disk of the node, or the volume, is full: free space on the node, make the build smaller, or raise BUILD_STORAGE_SIZE"
}

// whyStep says why a step failed. Without a report of the step it names the step, whose log says more.
func whyStep(pod string, s stepState) (message string, failed *failedStep) {
	if problem := conditions.Shorten(s.result(resultProblem), maxProblem); problem != "" {
		return fmt.Sprintf("Step %s failed: %s%s", s.Name, problem, adviseSpace(problem)), nil
	}
	if s.Terminated.Reason == "OOMKilled" {
		return fmt.Sprintf("Step %s needed more memory than it may have: make the build smaller, or raise BUILD_LIMITS", s.Name), nil
	}
	return fmt.Sprintf("Step %s failed with exit code %d", s.Name, s.Terminated.ExitCode),
		&failedStep{Pod: pod, Container: cmp.Or(s.Container, "step-"+s.Name), Step: s.Name}
}

// maxProblem is the maximum length of a step's report in a status, in bytes.
const maxProblem = 700

// classify maps the reasons of Tekton, whose versions differ, to those of the API. An unknown reason is a failure.
func classify(reason string) string {
	switch {
	case slices.Contains(cancelled, reason):
		return kibashipv1.ReasonRunCancelled
	case slices.Contains(timedOut, reason):
		return kibashipv1.ReasonRunTimedOut
	case slices.Contains(refused, reason):
		return kibashipv1.ReasonPodRefused
	case slices.Contains(pulling, reason):
		return kibashipv1.ReasonImagePullFailed
	default:
		return kibashipv1.ReasonRunFailed
	}
}

// whyStuck returns the reason why an unfinished run makes no progress, "" if none is known.
func whyStuck(children []runStatus) string {
	for _, child := range children {
		c := findSucceeded(child)
		if c.Status != metav1.ConditionUnknown {
			continue
		}
		waits := c.Reason == pending && unplaced.MatchString(c.Message) && !slices.ContainsFunc(child.Steps, child.began)
		if waits || slices.Contains(stuck, c.Reason) {
			return explainRefusal(c.Reason + ": " + c.Message)
		}
	}
	return ""
}
