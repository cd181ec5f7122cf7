package deployment

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

const shown = 10 * time.Minute

var (
	now    = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	commit = strings.Repeat("c", 40)
	digest = "sha256:" + strings.Repeat("d", 64)
)

func aDeployment() *kibashipv1.Deployment {
	return &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "project-shop-app-web-deployment-live-kibaship-com", Generation: 3, CreationTimestamp: metav1.Time{Time: now}}}
}

func application(kind kibashipv1.ApplicationType) *kibashipv1.Application {
	return &kibashipv1.Application{Spec: kibashipv1.ApplicationSpec{Type: kind}}
}

func aRun(name string, phase kibashipv1.DeploymentPhase, ended time.Time) Run {
	r := Run{Name: name, Phase: phase, Created: now, Started: &metav1.Time{Time: ended.Add(-time.Minute)}, Commit: commit}
	switch phase {
	case kibashipv1.DeploymentSucceeded:
		r.Reason, r.Digest = kibashipv1.ReasonSucceeded, digest
	case kibashipv1.DeploymentFailed:
		r.Reason, r.Message = kibashipv1.ReasonPodRefused, "refused"
	}
	if phase != kibashipv1.DeploymentRunning {
		r.Completed = &metav1.Time{Time: ended}
	}
	return r
}

func TestDerive(t *testing.T) {
	in := inputs()
	name := in.runName()
	problem := func(condition, reason string, class outcome.Class) *outcome.Problem {
		return &outcome.Problem{Condition: condition, Reason: reason, Message: "because", Class: class, Err: errors.New("because")}
	}
	git := application(kibashipv1.TypeGitRepository)
	for title, tc := range map[string]struct {
		out      Outcome
		phase    kibashipv1.DeploymentPhase
		message  string
		ready    metav1.ConditionStatus
		reason   string
		wake     bool
		hasImage bool
	}{
		"no application":         {Outcome{Problem: problem(kibashipv1.ConditionApplicationReady, kibashipv1.ReasonApplicationNotFound, outcome.Blocked)}, kibashipv1.DeploymentInitializing, "because", metav1.ConditionFalse, kibashipv1.ReasonApplicationNotFound, false, false},
		"no Tekton":              {Outcome{Observed: Observed{Application: git}, Problem: problem(kibashipv1.ConditionPipelineAvailable, kibashipv1.ReasonPipelineUnavailable, outcome.Blocked)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable, false, false},
		"a Secret missing":       {Outcome{Observed: Observed{Application: git}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonSecretNotFound, outcome.Foreign)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound, false, false},
		"a Secret lost":          {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentRunning, now)}}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonSecretNotFound, outcome.Foreign)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound, false, false},
		"the API server fails":   {Outcome{Observed: Observed{Application: git}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonWriteFailed, outcome.Retry)}, kibashipv1.DeploymentInitializing, "because", metav1.ConditionFalse, kibashipv1.ReasonWriteFailed, false, false},
		"running":                {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentRunning, now)}}, In: &in}, kibashipv1.DeploymentRunning, name, metav1.ConditionFalse, kibashipv1.ReasonRunning, false, false},
		"succeeded":              {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentSucceeded, now)}}, In: &in}, kibashipv1.DeploymentSucceeded, digest, metav1.ConditionTrue, kibashipv1.ReasonSucceeded, true, true},
		"succeeded long ago":     {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentSucceeded, now.Add(-shown))}}, In: &in}, kibashipv1.DeploymentWaiting, digest, metav1.ConditionTrue, kibashipv1.ReasonSucceeded, false, true},
		"failed":                 {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentFailed, now)}}, In: &in}, kibashipv1.DeploymentFailed, "refused", metav1.ConditionFalse, kibashipv1.ReasonPodRefused, true, false},
		"failed, once succeeded": {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentFailed, now), aRun("earlier", kibashipv1.DeploymentSucceeded, now.Add(-time.Hour))}}, In: &in}, kibashipv1.DeploymentFailed, "refused", metav1.ConditionFalse, kibashipv1.ReasonPodRefused, true, true},
		"another run":            {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun("earlier", kibashipv1.DeploymentSucceeded, now)}}, In: &in}, kibashipv1.DeploymentInitializing, "about to be started", metav1.ConditionFalse, kibashipv1.ReasonWaiting, false, true},
		"an image":               {Outcome{Observed: Observed{Application: application(kibashipv1.TypeDockerImage)}, Image: &registry.Image{Reference: "x@" + digest, Digest: digest, Tag: "1"}}, kibashipv1.DeploymentSucceeded, digest, metav1.ConditionTrue, kibashipv1.ReasonImageResolved, true, true},
		"a database":             {Outcome{Observed: Observed{Application: application(kibashipv1.TypeMySQL)}}, kibashipv1.DeploymentWaiting, "MySQL", metav1.ConditionTrue, kibashipv1.ReasonNothingToBuild, false, false},
	} {
		t.Run(title, func(t *testing.T) {
			out := tc.out
			out.Deployment = aDeployment()
			derive(out, shown, now)
			s := out.Deployment.Status
			if s.Phase != tc.phase || !strings.Contains(s.Message, tc.message) {
				t.Errorf("phase %s: %s", s.Phase, s.Message)
			}
			for _, c := range s.Conditions {
				if c.Type == kibashipv1.ConditionReady && (c.Status != tc.ready || c.Reason != tc.reason) {
					t.Errorf("Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
				}
			}
			if len(s.Conditions) != 4 {
				t.Errorf("%d conditions", len(s.Conditions))
			}
			if err := conditions.Violations(nil, s.Conditions, out.Deployment.Generation); err != nil {
				t.Error(err)
			}
			if got := wakeUp(out, shown, now) > 0; got != tc.wake {
				t.Errorf("a timer: %v", got)
			}
			if (s.BuiltImage != nil) != tc.hasImage {
				t.Errorf("built image %+v", s.BuiltImage)
			}
			again := out.Deployment.DeepCopy()
			out.Deployment = again
			derive(out, shown, now.Add(time.Second))
			if err := conditions.Violations(s.Conditions, again.Status.Conditions, 3); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestDue(t *testing.T) {
	for title, tc := range map[string]struct {
		o    Observed
		want bool
	}{
		"never seen":                 {Observed{}, true},
		"there":                      {Observed{Runs: []Run{{Name: "r"}}}, false},
		"over, and deleted":          {Observed{Deployment: &kibashipv1.Deployment{Status: kibashipv1.DeploymentStatus{RunHistory: []kibashipv1.PipelineRunStatus{{Name: "r", Phase: kibashipv1.DeploymentFailed}}}}}, false},
		"deleted before it was over": {Observed{Deployment: &kibashipv1.Deployment{Status: kibashipv1.DeploymentStatus{RunHistory: []kibashipv1.PipelineRunStatus{{Name: "r", Phase: kibashipv1.DeploymentRunning}}}}}, true},
	} {
		if tc.o.Deployment == nil {
			tc.o.Deployment = aDeployment()
		}
		if got := due(tc.o, "r"); got != tc.want {
			t.Errorf("%s: %v", title, got)
		}
	}
}

func TestHistoryKeepsFive(t *testing.T) {
	d := aDeployment()
	in := inputs()
	for i := range 9 {
		r := aRun(string(rune('a'+i)), kibashipv1.DeploymentSucceeded, now.Add(time.Duration(i)*time.Hour))
		derive(Outcome{Observed: Observed{Deployment: d, Application: application(kibashipv1.TypeGitRepository), Runs: []Run{r}}, In: &in}, shown, now)
	}
	var names string
	for _, r := range d.Status.RunHistory {
		names += r.Name
	}
	if names != "ihgfe" {
		t.Errorf("got %s", names)
	}
}

// What a RUN can write to stands in another step than what is read.
func TestReadRunBelievesTwoStepsAlone(t *testing.T) {
	pipelineRun := empty(pipelineRunKind)
	pipelineRun.SetName("r")
	pipelineRun.SetUID("u")
	pipelineRun.Object["status"] = object{
		"conditions":      []any{object{"type": "Succeeded", "status": "True", "reason": "Succeeded"}},
		"childReferences": []any{object{"kind": "TaskRun", "name": "t"}},
		"results":         []any{object{"name": "digest", "value": "sha256:forged"}},
	}
	step := func(name, result, value string) any {
		return object{"name": name, "terminated": object{"exitCode": int64(0)}, "results": []any{object{"name": result, "type": "string", "value": value}}}
	}
	yes := true
	taskRun := empty(taskRunKind)
	taskRun.SetName("t")
	taskRun.SetOwnerReferences([]metav1.OwnerReference{{UID: "u", Controller: &yes}})
	set := func(steps ...any) {
		taskRun.Object["status"] = object{"steps": steps, "conditions": []any{object{"type": "Succeeded", "status": "True"}}}
	}
	set(step(stepClone, resultCommit, commit), step(stepBuild, resultDigest, "sha256:"+strings.Repeat("0", 64)), step(stepPush, resultDigest, digest))
	got := readRun(pipelineRun, []unstructured.Unstructured{*taskRun})
	if got.Phase != kibashipv1.DeploymentSucceeded || got.Commit != commit || got.Digest != digest {
		t.Errorf("got %+v", got)
	}
	set(step(stepClone, resultCommit, commit), step(stepBuild, resultDigest, digest))
	if got := readRun(pipelineRun, []unstructured.Unstructured{*taskRun}); got.Phase != kibashipv1.DeploymentFailed {
		t.Errorf("without a digest of the step that pushes: %+v", got)
	}
	taskRun.SetOwnerReferences([]metav1.OwnerReference{{UID: "another", Controller: &yes}})
	set(step(stepClone, resultCommit, commit), step(stepPush, resultDigest, digest))
	if got := readRun(pipelineRun, []unstructured.Unstructured{*taskRun}); got.Digest != "" {
		t.Errorf("of somebody else's TaskRun: %+v", got)
	}
}
