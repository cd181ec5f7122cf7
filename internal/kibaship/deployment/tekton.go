package deployment

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
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

// runStatus holds the fields that are read from the status of a PipelineRun and of a TaskRun.
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
// when it ends their pod: without the time of their beginning.
type endState struct {
	ExitCode  int32        `json:"exitCode"`
	Reason    string       `json:"reason"`
	StartedAt *metav1.Time `json:"startedAt"`
}

// began reports whether the container of a step ran.
func (s stepState) began() bool {
	return s.Running != nil || s.Terminated != nil && s.Terminated.StartedAt != nil && s.TerminationReason != "Skipped"
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
	// Source is the hash of the source that the run was started for, "" where it is not known.
	Source string
	// Repository is where it had to push to, "" of one that pushes nothing.
	Repository string
	// Cancelling: a client asked for its end.
	Cancelling bool
}

func (r Run) over() bool { return r.Phase != kibashipv1.DeploymentRunning }

var (
	commitPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// readRun reads a PipelineRun and the TaskRuns that it owns.
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
	for _, child := range children {
		run.Ending = run.Ending || findSucceeded(child).Status != metav1.ConditionUnknown
		for _, s := range child.Steps {
			run.Executed = run.Executed || s.began()
			switch s.Name {
			case stepClone:
				if commit := s.result(resultCommit); commitPattern.MatchString(commit) {
					run.Commit = commit
				}
			case stepPush:
				if digest := s.result(resultDigest); digestPattern.MatchString(digest) {
					run.Digest = digest
				}
			}
		}
	}
	if asked := findParam(pipelineRun, paramCommit); asked != "" {
		run.Commit = asked
	}
	switch succeeded.Status {
	case metav1.ConditionTrue:
		run.Phase, run.Reason = kibashipv1.DeploymentSucceeded, kibashipv1.ReasonSucceeded
		if run.Digest == "" || run.Commit == "" {
			run.Phase, run.Reason = kibashipv1.DeploymentFailed, kibashipv1.ReasonRunFailed
			run.Message = "The run is over and does not tell which image it pushed, or of which commit: BUILD_PUSH_IMAGE must be an image of this operator"
		}
	case metav1.ConditionFalse:
		run.Phase = kibashipv1.DeploymentFailed
		run.Reason, run.Message = whyFailed(pipelineRun.GetNamespace(), succeeded, children)
	default:
		run.Reason = kibashipv1.ReasonRunning
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

func findSucceeded(status runStatus) metav1.Condition {
	for _, c := range status.Conditions {
		if c.Type == "Succeeded" {
			return c
		}
	}
	return metav1.Condition{Status: metav1.ConditionUnknown}
}

// childStatuses returns the status of the TaskRuns of a PipelineRun, in the order in which it
// names them.
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

// whyFailed says why a run failed: a TaskRun knows more than the PipelineRun, and a step more
// than the TaskRun.
func whyFailed(namespace string, succeeded metav1.Condition, children []runStatus) (reason, message string) {
	reason, message = classify(succeeded.Reason), succeeded.Message
	switch reason {
	case kibashipv1.ReasonRunCancelled:
		return reason, cmp.Or(message, "The run was ended: "+succeeded.Reason)
	case kibashipv1.ReasonRunTimedOut:
		return reason, cmp.Or(message, "The run was ended: "+succeeded.Reason) + ": make the build quicker, or raise BUILD_TIMEOUT"
	}
	for _, child := range children {
		failed := findSucceeded(child)
		if failed.Status != metav1.ConditionFalse {
			continue
		}
		reason, message = classify(failed.Reason), failed.Reason+": "+failed.Message
		if reason != kibashipv1.ReasonRunFailed {
			break // Tekton ends the steps of such a TaskRun, as if they had failed themselves
		}
		if evicted.MatchString(failed.Message) {
			return reason, failed.Message + ": make the build smaller, or raise BUILD_LIMITS or BUILD_STORAGE_SIZE"
		}
		for _, s := range child.Steps {
			if s.Terminated != nil && s.Terminated.ExitCode != 0 && s.TerminationReason != "Skipped" {
				return reason, whyStep(namespace, child.PodName, s)
			}
		}
		break
	}
	return reason, cmp.Or(message, succeeded.Reason, "Tekton does not say why")
}

func whyStep(namespace, pod string, s stepState) string {
	problem := conditions.Shorten(s.result(resultProblem), maxProblem)
	logs := fmt.Sprintf("kubectl logs -n %s %s -c %s", namespace, pod, cmp.Or(s.Container, "step-"+s.Name))
	if problem != "" {
		return fmt.Sprintf("Step %s failed: %s", s.Name, problem)
	}
	if s.Terminated.Reason == "OOMKilled" {
		return fmt.Sprintf("Step %s needed more memory than it may have: make the build smaller, or raise BUILD_LIMITS", s.Name)
	}
	return fmt.Sprintf("Step %s failed with exit code %d: %s tells more", s.Name, s.Terminated.ExitCode, logs)
}

// maxProblem is the maximum length of a step's report in a status, in bytes.
const maxProblem = 700

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
		waits := c.Reason == pending && unplaced.MatchString(c.Message) && !slices.ContainsFunc(child.Steps, stepState.began)
		if waits || slices.Contains(stuck, c.Reason) {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}
