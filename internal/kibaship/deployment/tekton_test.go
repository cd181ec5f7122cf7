package deployment

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// failedFor is what Tekton says of a TaskRun that failed, or of a PipelineRun.
func failedFor(reason, message string) metav1.Condition {
	return metav1.Condition{Type: "Succeeded", Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func TestWhyARunFailed(t *testing.T) {
	exited := func(step string) stepState {
		s := stepState{Name: step, TerminationReason: "Error", Terminated: &endState{ExitCode: 1, StartedAt: &metav1.Time{Time: now}}}
		if step == "slow" {
			s.Name, s.TerminationReason = stepClone, stepTimedOut
		}
		if step == "greedy" {
			s.Terminated = &endState{ExitCode: 137, Reason: "OOMKilled"}
		}
		if step == "full" {
			s.Results = append(s.Results, struct {
				Name  string `json:"name"`
				Value any    `json:"value"`
			}{resultProblem, "layer 2: write x: no space left on device"})
		}
		return s
	}
	for name, tc := range map[string]struct {
		run      metav1.Condition
		child    metav1.Condition
		step     string
		reason   string
		reported []string
		not      string
	}{
		"too slow": {
			run: failedFor("PipelineRunTimeout", `PipelineRun "x" failed to finish within "45s"`), child: failedFor("TaskRunCancelled", "cancelled"), step: stepBuild,
			reason: kibashipv1.ReasonRunTimedOut, reported: []string{"45s", "BUILD_TIMEOUT"},
		},
		"a run that clones when its time is over": {
			run: failedFor("PipelineRunTimeout", `PipelineRun "x" failed to finish within "45s"`), child: failedFor("TaskRunCancelled", "cancelled"), step: stepClone,
			reason: kibashipv1.ReasonRunTimedOut, reported: []string{`within "45s": step clone had not ended. The git server does not answer`},
		},
		"a run that pushes when its time is over": {
			run: failedFor("PipelineRunTimeout", `PipelineRun "x" failed to finish within "45s"`), child: failedFor("TaskRunCancelled", "cancelled"), step: stepPush,
			reason: kibashipv1.ReasonRunTimedOut, reported: []string{"step push had not ended. The registry"},
		},
		"a run without a pod when its time is over": {
			run: failedFor("PipelineRunTimeout", `PipelineRun "x" failed to finish within "45s"`), child: failedFor("TaskRunCancelled", "cancelled"),
			reason: kibashipv1.ReasonRunTimedOut, reported: []string{"no step had begun", "BUILD_TIMEOUT"}, not: "git server",
		},
		"a clone that takes too long": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("StepFailed", `"step-clone" exited because the step exceeded the specified timeout limit`), step: "slow",
			reason: kibashipv1.ReasonRunTimedOut, reported: []string{"Step clone was ended: The git server does not answer"}, not: "kubectl logs",
		},
		"cancelled": {
			run: failedFor("Cancelled", "PipelineRun was cancelled"), child: failedFor("TaskRunCancelled", "cancelled"), step: stepBuild,
			reason: kibashipv1.ReasonRunCancelled, reported: []string{"cancelled"}, not: "BUILD_TIMEOUT",
		},
		"an image that is not there, whose pod Tekton ends with all steps": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("TaskRunImagePullFailed", `the step "build" failed to pull the image "gone:1"`), step: stepClone,
			reason: kibashipv1.ReasonImagePullFailed, reported: []string{"gone:1"}, not: "kubectl logs",
		},
		"a pod that is refused": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("PodAdmissionFailed", "violates PodSecurity"),
			reason: kibashipv1.ReasonPodRefused, reported: []string{"PodSecurity"},
		},
		"a step that failed": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", "exit status 7"), step: stepBuild,
			reason: kibashipv1.ReasonRunFailed, reported: []string{"Step build failed", "kubectl logs"},
		},
		"a step that takes too much memory": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", "exit status 137"), step: "greedy",
			reason: kibashipv1.ReasonRunFailed, reported: []string{"memory", "BUILD_LIMITS"}, not: "kubectl logs",
		},
		"a step that finds the disk full": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", "exit status 1"), step: "full",
			reason: kibashipv1.ReasonRunFailed, reported: []string{"layer 2: write x: no space left on device. The disk of the node", "BUILD_STORAGE_SIZE"}, not: "kubectl logs",
		},
		"a directory that is full": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", `Usage of EmptyDir volume "ws-a" exceeds the limit "24Gi". `), step: stepBuild,
			reason: kibashipv1.ReasonRunFailed, reported: []string{`the limit "24Gi": make`, "BUILD_STORAGE_SIZE"}, not: "kubectl logs",
		},
		"a pod that fills the node": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", "Pod ephemeral local storage usage exceeds the total limit of containers 48Gi. "), step: stepBuild,
			reason: kibashipv1.ReasonRunFailed, reported: []string{"of containers 48Gi: make", "BUILD_LIMITS"}, not: "kubectl logs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			child := runStatus{Conditions: []metav1.Condition{tc.child}}
			if tc.step != "" {
				child.Steps = []stepState{exited(tc.step)}
			}
			reason, message, failed := whyFailed(tc.run, []runStatus{child})
			if failed != nil {
				message += ": " + failed.logs("ns")
			}
			if reason != tc.reason {
				t.Errorf("reason %s, want %s", reason, tc.reason)
			}
			for _, text := range tc.reported {
				if !strings.Contains(message, text) {
					t.Errorf("%q does not tell %q", message, text)
				}
			}
			if tc.not != "" && strings.Contains(message, tc.not) {
				t.Errorf("%q tells %q", message, tc.not)
			}
		})
	}
}

func TestWhatARunIsStuckAt(t *testing.T) {
	const unbound = `pod status "PodScheduled":"False"; message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."`
	ran := stepState{Name: stepClone, Terminated: &endState{StartedAt: &metav1.Time{Time: now}}}
	for name, tc := range map[string]struct {
		status  metav1.ConditionStatus
		reason  string
		message string
		steps   []stepState
		want    bool
	}{
		"a quota":                         {metav1.ConditionUnknown, "ExceededResourceQuota", "no room", nil, true},
		"no node":                         {metav1.ConditionUnknown, "ExceededNodeResources", "no room", nil, true},
		"an image that is not there":      {metav1.ConditionUnknown, "PullImageFailed", "gone", []stepState{ran}, true},
		"a volume that is not bound":      {metav1.ConditionUnknown, "Pending", unbound, nil, true},
		"a container that cannot be made": {metav1.ConditionUnknown, "Pending", `build step "step-clone" is pending with reason "no such mount"`, []stepState{{Name: stepClone}}, true},
		"a pod that begins":               {metav1.ConditionUnknown, "Pending", `pod status "Initialized":"False"; message: "containers with incomplete status: [prepare]"`, nil, false},
		"a pod of which nothing is known": {metav1.ConditionUnknown, "Pending", "Pending", nil, false},
		"a step that ran":                 {metav1.ConditionUnknown, "Pending", unbound, []stepState{ran}, false},
		"a run that continues":            {metav1.ConditionUnknown, "Running", "Not all Steps in the Task have finished executing", []stepState{{Name: stepClone, Running: &struct{}{}}}, false},
		"a run that is over":              {metav1.ConditionFalse, "Pending", unbound, nil, false},
	} {
		c := metav1.Condition{Type: "Succeeded", Status: tc.status, Reason: tc.reason, Message: tc.message}
		got := whyStuck([]runStatus{{Conditions: []metav1.Condition{c}, Steps: tc.steps}})
		if (got != "") != tc.want || tc.want && !strings.Contains(got, tc.message) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Only where the API server refuses a pod, a message says what helps against that.
func TestARefusedPodOfARunHasARemedy(t *testing.T) {
	for message, want := range map[string]string{
		`failed to create task run pod "a": pods "a-pod" is forbidden: exceeded quota: q, requested: pods=1`:              "kubectl get resourcequotas",
		`failed to create task run pod "a": pods "a-pod" is forbidden: violates PodSecurity "restricted:latest": seccomp`: "lower the level of the namespace",
		`Back-off pulling image "a": dial tcp 10.0.0.1:443: i/o timeout`:                                                  "",
	} {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionUnknown, metav1.ConditionFalse} {
			child := runStatus{Conditions: []metav1.Condition{{Type: "Succeeded", Status: status, Reason: "ExceededResourceQuota", Message: message}}}
			got := whyStuck([]runStatus{child})
			if status == metav1.ConditionFalse {
				_, got, _ = whyFailed(metav1.Condition{Status: status, Reason: "Failed"}, []runStatus{child})
			}
			if !strings.Contains(got, want) || want == "" && !strings.HasSuffix(got, message) {
				t.Errorf("%s: %q", status, got)
			}
		}
	}
}

// Tekton writes an end for containers that never began.
func TestWhichStepBegan(t *testing.T) {
	at, created := &metav1.Time{Time: now}, metav1.Time{Time: now.Add(-time.Second)}
	for name, tc := range map[string]struct {
		step stepState
		want bool
	}{
		"waits":                       {stepState{}, false},
		"runs":                        {stepState{Running: &struct{}{}}, true},
		"ran":                         {stepState{Terminated: &endState{StartedAt: at}}, true},
		"ended while it waited":       {stepState{Terminated: &endState{ExitCode: 1, Reason: "TaskRunTimeout"}}, false},
		"ended, as newer Tektons say": {stepState{Terminated: &endState{ExitCode: 1, Reason: "TaskRunTimeout", StartedAt: &created}}, false},
		"skipped after a failure ":    {stepState{Terminated: &endState{StartedAt: at}, TerminationReason: "Skipped"}, false},
	} {
		if got := (runStatus{Created: created}).began(tc.step); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
