package deployment

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
)

// failedFor is what Tekton says of a TaskRun that failed, or of a PipelineRun.
func failedFor(reason, message string) metav1.Condition {
	return metav1.Condition{Type: "Succeeded", Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func TestWhyARunFailed(t *testing.T) {
	exited := func(step string) stepState {
		s := stepState{Name: step, TerminationReason: "Error"}
		s.Terminated = &struct {
			ExitCode int32 `json:"exitCode"`
		}{ExitCode: 1}
		return s
	}
	for name, tc := range map[string]struct {
		run    metav1.Condition
		child  metav1.Condition
		step   string
		reason string
		told   []string
		not    string
	}{
		"too slow": {
			run: failedFor("PipelineRunTimeout", `PipelineRun "x" failed to finish within "45s"`), child: failedFor("TaskRunCancelled", "cancelled"), step: stepBuild,
			reason: kibashipv1.ReasonRunTimedOut, told: []string{"45s", "BUILD_TIMEOUT"},
		},
		"cancelled": {
			run: failedFor("Cancelled", "PipelineRun was cancelled"), child: failedFor("TaskRunCancelled", "cancelled"), step: stepBuild,
			reason: kibashipv1.ReasonRunCancelled, told: []string{"cancelled"}, not: "BUILD_TIMEOUT",
		},
		"an image that is not there, whose pod Tekton ends with all steps": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("TaskRunImagePullFailed", `the step "build" failed to pull the image "gone:1"`), step: stepClone,
			reason: kibashipv1.ReasonImagePullFailed, told: []string{"gone:1"}, not: "kubectl logs",
		},
		"a pod that is refused": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("PodAdmissionFailed", "violates PodSecurity"),
			reason: kibashipv1.ReasonPodRefused, told: []string{"PodSecurity"},
		},
		"a step that failed": {
			run: failedFor("Failed", "Tasks Completed: 1"), child: failedFor("Failed", "exit status 7"), step: stepBuild,
			reason: kibashipv1.ReasonRunFailed, told: []string{"Step build failed", "kubectl logs"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			child := runStatus{Conditions: []metav1.Condition{tc.child}}
			if tc.step != "" {
				child.Steps = []stepState{exited(tc.step)}
			}
			reason, message := whyFailed("ns", tc.run, []runStatus{child})
			if reason != tc.reason {
				t.Errorf("reason %s, want %s", reason, tc.reason)
			}
			for _, text := range tc.told {
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
