package deployment

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
)

const (
	shown   = 10 * time.Minute
	timeout = 30 * time.Minute
)

var (
	now    = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	commit = strings.Repeat("c", 40)
	digest = "sha256:" + strings.Repeat("d", 64)
)

func aDeployment() *kibashipv1.Deployment {
	return &kibashipv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "project-shop-app-web-deployment-live-kibaship-com", Generation: 3, CreationTimestamp: metav1.Time{Time: now}}}
}

func testApplication(kind kibashipv1.ApplicationType) *kibashipv1.Application {
	return &kibashipv1.Application{Spec: kibashipv1.ApplicationSpec{Type: kind}}
}

func aRun(name string, phase kibashipv1.DeploymentPhase, ended time.Time) Run {
	r := Run{Name: name, Phase: phase, Created: now, Seen: true, Started: &metav1.Time{Time: ended.Add(-time.Minute)}, Commit: commit}
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

// setStatus does what the frame does with the status of a Deployment.
func setStatus(out Outcome, now time.Time) {
	d := out.Deployment
	computeStatus(out, config.Builds{ResultTime: shown, Timeout: timeout}, now).SetOn(&d.Status.Conditions, d.Generation, now)
}

func TestComputeStatus(t *testing.T) {
	in := inputs()
	name := in.runName()
	problem := func(condition, reason string, class outcome.Class) *outcome.Problem {
		return &outcome.Problem{Condition: condition, Reason: reason, Message: "because", Class: class, Err: errors.New("because")}
	}
	git := testApplication(kibashipv1.TypeGitRepository)
	for title, tc := range map[string]struct {
		out      Outcome
		phase    kibashipv1.DeploymentPhase
		message  string
		ready    metav1.ConditionStatus
		reason   string
		requeues bool
		hasImage bool
	}{
		"no application":         {Outcome{Problem: problem(kibashipv1.ConditionApplicationReady, kibashipv1.ReasonApplicationNotFound, outcome.Blocked)}, kibashipv1.DeploymentInitializing, "because", metav1.ConditionFalse, kibashipv1.ReasonApplicationNotFound, false, false},
		"no Tekton":              {Outcome{Observed: Observed{Application: git}, Problem: problem(kibashipv1.ConditionPipelineAvailable, kibashipv1.ReasonPipelineUnavailable, outcome.Blocked)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable, false, false},
		"a Secret missing":       {Outcome{Observed: Observed{Application: git}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonSecretNotFound, outcome.External)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound, false, false},
		"a Secret lost":          {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentRunning, now)}}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonSecretNotFound, outcome.External)}, kibashipv1.DeploymentWaiting, "because", metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound, true, false},
		"the API server fails":   {Outcome{Observed: Observed{Application: git}, In: &in, Problem: problem(kibashipv1.ConditionSucceeded, kibashipv1.ReasonWriteFailed, outcome.Retry)}, kibashipv1.DeploymentInitializing, "because", metav1.ConditionFalse, kibashipv1.ReasonWriteFailed, false, false},
		"running":                {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentRunning, now)}}, In: &in}, kibashipv1.DeploymentRunning, name, metav1.ConditionFalse, kibashipv1.ReasonRunning, true, false},
		"succeeded":              {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentSucceeded, now)}}, In: &in}, kibashipv1.DeploymentSucceeded, digest, metav1.ConditionTrue, kibashipv1.ReasonSucceeded, true, true},
		"succeeded long ago":     {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentSucceeded, now.Add(-shown))}}, In: &in}, kibashipv1.DeploymentWaiting, digest, metav1.ConditionTrue, kibashipv1.ReasonSucceeded, false, true},
		"failed":                 {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentFailed, now)}}, In: &in}, kibashipv1.DeploymentFailed, "refused", metav1.ConditionFalse, kibashipv1.ReasonPodRefused, true, false},
		"failed, once succeeded": {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun(name, kibashipv1.DeploymentFailed, now), aRun("earlier", kibashipv1.DeploymentSucceeded, now.Add(-time.Hour))}}, In: &in}, kibashipv1.DeploymentFailed, "refused", metav1.ConditionFalse, kibashipv1.ReasonPodRefused, true, true},
		"another run":            {Outcome{Observed: Observed{Application: git, Runs: []Run{aRun("earlier", kibashipv1.DeploymentSucceeded, now)}}, In: &in}, kibashipv1.DeploymentInitializing, "about to be started", metav1.ConditionFalse, kibashipv1.ReasonWaiting, false, true},
		"an image":               {Outcome{Observed: Observed{Application: testApplication(kibashipv1.TypeDockerImage)}, Image: &registry.Image{Reference: "x@" + digest, Digest: digest, Tag: "1"}}, kibashipv1.DeploymentSucceeded, digest, metav1.ConditionTrue, kibashipv1.ReasonImageResolved, true, true},
		"a database":             {Outcome{Observed: Observed{Application: testApplication(kibashipv1.TypeMySQL)}}, kibashipv1.DeploymentWaiting, "MySQL", metav1.ConditionTrue, kibashipv1.ReasonNothingToBuild, false, false},
	} {
		t.Run(title, func(t *testing.T) {
			out := tc.out
			out.Deployment = aDeployment()
			setStatus(out, now)
			s := out.Deployment.Status
			if s.Phase != tc.phase || !strings.Contains(s.Message, tc.message) {
				t.Errorf("phase %s: %s", s.Phase, s.Message)
			}
			for _, c := range s.Conditions {
				if c.Type == kibashipv1.ConditionReady && (c.Status != tc.ready || c.Reason != tc.reason) {
					t.Errorf("Ready is %s: %s: %s", c.Status, c.Reason, c.Message)
				}
			}
			if len(s.Conditions) < 4 {
				t.Errorf("%d conditions", len(s.Conditions))
			}
			if err := conditions.Violations(nil, s.Conditions, out.Deployment.Generation); err != nil {
				t.Error(err)
			}
			if got := requeueAfter(out, config.Builds{ResultTime: shown, Timeout: timeout}, now) > 0; got != tc.requeues {
				t.Errorf("a timer: %v", got)
			}
			if (s.BuiltImage != nil) != tc.hasImage {
				t.Errorf("built image %+v", s.BuiltImage)
			}
			again := out.Deployment.DeepCopy()
			out.Deployment = again
			setStatus(out, now.Add(time.Second))
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
		setStatus(Outcome{Observed: Observed{Deployment: d, Application: testApplication(kibashipv1.TypeGitRepository), Runs: []Run{r}}, In: &in}, now)
	}
	var names string
	for _, r := range d.Status.RunHistory {
		names += r.Name
	}
	if names != "ihgfe" {
		t.Errorf("got %s", names)
	}
}

// What an Application was before is not what a Deployment of it is now.
func TestTheRunsOfAnotherTypeAreHistory(t *testing.T) {
	in := inputs()
	for title, tc := range map[string]struct {
		last  kibashipv1.DeploymentPhase
		kind  kibashipv1.ApplicationType
		image *registry.Image
		want  string
	}{
		"a failed run, and an image":  {kibashipv1.DeploymentFailed, kibashipv1.TypeDockerImage, &registry.Image{Reference: "x@" + digest, Digest: digest}, "x@" + digest},
		"a built image, and another":  {kibashipv1.DeploymentSucceeded, kibashipv1.TypeDockerImage, &registry.Image{Reference: "x@" + digest, Digest: digest}, "x@" + digest},
		"a failed run, and nothing":   {kibashipv1.DeploymentFailed, kibashipv1.TypeMySQL, nil, ""},
		"a run that lives, and image": {kibashipv1.DeploymentRunning, kibashipv1.TypeDockerImage, &registry.Image{Reference: "x@" + digest, Digest: digest}, "x@" + digest},
	} {
		d := aDeployment()
		runs := []Run{aRun(in.runName(), tc.last, now)}
		setStatus(Outcome{Observed: Observed{Deployment: d, Tekton: true, Application: testApplication(kibashipv1.TypeGitRepository), Runs: runs}, In: &in}, now)
		out := Outcome{Observed: Observed{Deployment: d, Tekton: true, Application: testApplication(tc.kind), Runs: runs}, Image: tc.image}
		setStatus(out, now)
		if c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionReady); c.Status != metav1.ConditionTrue {
			t.Errorf("%s: Ready is %s: %s: %s", title, c.Status, c.Reason, c.Message)
		}
		if strings.Contains(d.Status.Message, in.runName()) || strings.Contains(d.Status.Message, "refused") {
			t.Errorf("%s: %s", title, d.Status.Message)
		}
		if tc.want != "" && (d.Status.BuiltImage == nil || d.Status.BuiltImage.Reference != tc.want) {
			t.Errorf("%s: %+v", title, d.Status.BuiltImage)
		}
		before := d.DeepCopy()
		if setStatus(out, now.Add(time.Minute)); !equality.Semantic.DeepEqual(before.Status, d.Status) {
			t.Errorf("%s: another pass changes the status", title)
		}
	}
}

func TestAnImageIsLookedUpOnceForEachRequest(t *testing.T) {
	d := aDeployment()
	image := &registry.Image{Reference: "x@" + digest, Digest: digest, Tag: "1"}
	pass := func() (asked string, moved bool) {
		asked = imageRequest(d)
		before := d.Status.BuiltImage.DeepCopy()
		setStatus(Outcome{Observed: Observed{Deployment: d, Application: testApplication(kibashipv1.TypeDockerImage)}, Image: image}, now)
		if d.Status.BuiltImage.Request != asked || imageRequest(d) != asked {
			t.Errorf("asked for %s, got %s, asks for %s next", asked, d.Status.BuiltImage.Request, imageRequest(d))
		}
		return asked, before == nil || before.Request != asked
	}
	seen := map[string]bool{}
	for _, step := range []struct {
		title, again string
		generation   int64
		asks         bool
	}{
		{"at first", "", 3, true},
		{"once more", "", 3, false},
		{"annotated", "now", 3, true},
		{"once more", "now", 3, false},
		{"taken off", "", 3, false},
		{"with another value", "later", 3, true},
		{"another spec", "later", 4, true},
		{"taken off", "", 4, false},
		{"another spec, unannotated", "", 5, true},
	} {
		d.Generation = step.generation
		if d.Annotations = nil; step.again != "" {
			d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: step.again}
		}
		asked, moved := pass()
		if moved != step.asks || moved && seen[asked] {
			t.Errorf("%s: asks: %v, as %s", step.title, moved, asked)
		}
		seen[asked] = true
	}
}

// Where the annotation is taken off, the run that it asked for stays the one of its generation.
func TestTheLastRunOfAGenerationStays(t *testing.T) {
	app := testApplication(kibashipv1.TypeGitRepository)
	app.Name, app.Spec.ProjectRef.Name = "project-shop-app-web-kibaship-com", "shop"
	d := aDeployment()
	d.Spec.ApplicationRef.Name = app.Name
	pass := func() string {
		in := newInputs(Observed{Deployment: d, Application: app}, inputs().Builds, "push")
		setStatus(Outcome{Observed: Observed{Deployment: d, Application: app, Runs: []Run{aRun(in.runName(), kibashipv1.DeploymentSucceeded, now)}}, In: &in}, now)
		return in.runName()
	}
	first := pass()
	d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "now"}
	again := pass()
	d.Annotations = nil
	if off := pass(); again == first || off != again {
		t.Errorf("first %s, then %s, and %s when it was taken off", first, again, off)
	}
	d.Generation++
	if next := pass(); next == first || next == again || strings.Contains(next, d.Status.RunAgain) && d.Status.RunAgain != "" {
		t.Errorf("of another generation: %s", next)
	}
}

// What the Application says of the source is followed; a run of before the operator noted the source counts for what is asked for.
func TestAChangedSourceIsAnotherRun(t *testing.T) {
	app := testApplication(kibashipv1.TypeGitRepository)
	app.Name, app.Spec.ProjectRef.Name = "project-shop-app-web-kibaship-com", "shop"
	app.Spec.GitRepository = &kibashipv1.GitRepository{Provider: kibashipv1.GitHub, Repository: "team/web", Branch: "main", PublicAccess: true}
	d := aDeployment()
	d.Spec.ApplicationRef.Name = app.Name
	var runs []Run
	name := func() string {
		return newInputs(Observed{Deployment: d, Application: app, Runs: runs}, inputs().Builds, "push").runName()
	}
	first := name()
	runs = []Run{aRun(first, kibashipv1.DeploymentSucceeded, now)}
	app.Spec.GitRepository.Branch = "next"
	if got := name(); got != first {
		t.Errorf("of a run whose source is not known: %s", got)
	}
	app.Spec.GitRepository.Branch = "main"
	runs[0].Source = newInputs(Observed{Deployment: d, Application: app}, inputs().Builds, "push").source()
	setStatus(Outcome{Observed: Observed{Deployment: d, Application: app, Runs: runs}}, now)

	for title, change := range map[string]struct {
		do      func(*kibashipv1.GitRepository, *kibashipv1.Deployment)
		another bool
	}{
		"nothing":     {func(*kibashipv1.GitRepository, *kibashipv1.Deployment) {}, false},
		"the branch":  {func(git *kibashipv1.GitRepository, _ *kibashipv1.Deployment) { git.Branch = "next" }, true},
		"the command": {func(git *kibashipv1.GitRepository, _ *kibashipv1.Deployment) { git.BuildCommand = "make" }, true},
		"the login": {func(git *kibashipv1.GitRepository, _ *kibashipv1.Deployment) {
			git.SecretRef = &kibashipv1.LocalReference{Name: "git"}
		}, false},
		"a branch of its own": {func(git *kibashipv1.GitRepository, d *kibashipv1.Deployment) {
			git.Branch, d.Spec.GitRepository = "next", &kibashipv1.DeploymentSource{Branch: "main"}
		}, false},
		"a tag": {func(_ *kibashipv1.GitRepository, d *kibashipv1.Deployment) {
			d.Spec.GitRepository = &kibashipv1.DeploymentSource{Tag: "main"}
		}, true},
	} {
		git, source := *app.Spec.GitRepository, d.Spec.GitRepository
		change.do(app.Spec.GitRepository, d)
		if got := name(); (got != first) != change.another {
			t.Errorf("%s: %s after %s", title, got, first)
		}
		live := runs
		runs = nil // the history knows it as well
		if got := name(); (got != first) != change.another {
			t.Errorf("%s, with the run gone: %s after %s", title, got, first)
		}
		runs = live
		*app.Spec.GitRepository, d.Spec.GitRepository = git, source
	}
}

func TestTektonThatDoesNotRespond(t *testing.T) {
	in := inputs()
	name := in.runName()
	started := func(ago time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-ago)} }
	for title, tc := range map[string]struct {
		run    Run
		reason string
		wakes  time.Duration
	}{
		"just made":       {Run{Created: now}, kibashipv1.ReasonRunning, responseTime},
		"not taken up":    {Run{Created: now.Add(-responseTime)}, kibashipv1.ReasonTektonNotResponding, responseTime},
		"running":         {Run{Created: now, Seen: true, Started: started(time.Minute)}, kibashipv1.ReasonRunning, responseTime},
		"nearly over":     {Run{Created: now, Seen: true, Started: started(timeout + responseTime - time.Second)}, kibashipv1.ReasonRunning, time.Second},
		"long over time":  {Run{Created: now, Seen: true, Started: started(timeout + responseTime)}, kibashipv1.ReasonTektonNotResponding, responseTime},
		"taken up lately": {Run{Created: now.Add(-time.Hour), Seen: true, Started: started(0)}, kibashipv1.ReasonRunning, responseTime},
		"just idle":       {Run{Created: now, Seen: true, Started: started(time.Minute), IdleSince: now.Add(-time.Second)}, kibashipv1.ReasonRunning, responseTime - time.Second},
		"left alone":      {Run{Created: now, Seen: true, Started: started(time.Minute), IdleSince: now.Add(-responseTime)}, kibashipv1.ReasonTektonNotResponding, responseTime},
	} {
		tc.run.Name, tc.run.Phase = name, kibashipv1.DeploymentRunning
		d := aDeployment()
		out := Outcome{Observed: Observed{Deployment: d, Application: testApplication(kibashipv1.TypeGitRepository), Runs: []Run{tc.run}}, In: &in}
		setStatus(out, now)
		c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded)
		if c.Reason != tc.reason || d.Status.Phase != kibashipv1.DeploymentRunning {
			t.Errorf("%s: %s, %s: %s", title, d.Status.Phase, c.Reason, c.Message)
		}
		if tc.reason != kibashipv1.ReasonRunning && !strings.Contains(d.Status.Message, "controller") {
			t.Errorf("%s: %s", title, d.Status.Message)
		}
		if got := requeueAfter(out, config.Builds{ResultTime: shown, Timeout: timeout}, now); got != tc.wakes {
			t.Errorf("%s: looks again after %s, want %s", title, got, tc.wakes)
		}
	}
}

func TestTheImageIsWhereTheRunPushedIt(t *testing.T) {
	in := inputs()
	run := aRun(in.runName(), kibashipv1.DeploymentSucceeded, now)
	run.Repository = "old.example.org/shop/web"
	git := testApplication(kibashipv1.TypeGitRepository)
	notReady := &outcome.Problem{Condition: kibashipv1.ConditionApplicationReady, Reason: kibashipv1.ReasonApplicationNotReady, Class: outcome.Blocked, Message: "not yet"}
	for title, out := range map[string]Outcome{
		"another registry by now":     {Observed: Observed{Application: git, Runs: []Run{run}}, In: &in},
		"an Application not Ready":    {Observed: Observed{Application: git, Runs: []Run{run}}, Problem: notReady},
		"an Application that is gone": {Observed: Observed{Runs: []Run{run}}, Problem: notReady},
	} {
		out.Deployment = aDeployment()
		out.Deployment.Status.ObservedGeneration = out.Deployment.Generation
		setStatus(out, now)
		s := out.Deployment.Status
		if want := "old.example.org/shop/web@" + digest; s.BuiltImage == nil || s.BuiltImage.Reference != want || !strings.Contains(s.Message, "Built "+want) {
			t.Errorf("%s: %s, %+v", title, s.Message, s.BuiltImage)
		}
	}
}

func TestALostRunIsOver(t *testing.T) {
	in := inputs()
	git, image := testApplication(kibashipv1.TypeGitRepository), testApplication(kibashipv1.TypeDockerImage)
	running := kibashipv1.PipelineRunStatus{Name: "earlier", Phase: kibashipv1.DeploymentRunning, StartTime: &metav1.Time{Time: now.Add(-time.Hour)}}
	wanted := running
	wanted.Name = in.runName()
	for title, tc := range map[string]struct {
		known kibashipv1.PipelineRunStatus
		out   Outcome
		want  bool
	}{
		"gone, and not wanted":          {running, Outcome{Observed: Observed{Tekton: true, Application: git}, In: &in}, true},
		"gone, of another type":         {wanted, Outcome{Observed: Observed{Tekton: true, Application: image}}, true},
		"gone, and started again":       {wanted, Outcome{Observed: Observed{Tekton: true, Application: git}, In: &in}, false},
		"there":                         {running, Outcome{Observed: Observed{Tekton: true, Application: git, Runs: []Run{{Name: "earlier", Phase: kibashipv1.DeploymentRunning}}}, In: &in}, false},
		"not seen":                      {running, Outcome{Observed: Observed{Application: git}, In: &in}, false},
		"it is not known what is asked": {running, Outcome{Observed: Observed{Tekton: true, Application: git}}, false},
	} {
		d := aDeployment()
		d.Status.RunHistory = []kibashipv1.PipelineRunStatus{tc.known}
		tc.out.Deployment = d
		setStatus(tc.out, now)
		got := knownRun(&d.Status, tc.known.Name)
		if (got.Phase == kibashipv1.DeploymentFailed) != tc.want || tc.want && (got.CompletionTime == nil || !strings.Contains(got.Message, "deleted before its end")) {
			t.Errorf("%s: %+v", title, got)
		}
		before := d.DeepCopy()
		if setStatus(tc.out, now.Add(time.Hour)); !equality.Semantic.DeepEqual(before.Status.RunHistory, d.Status.RunHistory) {
			t.Errorf("%s: another pass changes it", title)
		}
	}
}

func TestARunThatNeverBeganTellsWhatItWaitedFor(t *testing.T) {
	in := inputs()
	d := aDeployment()
	pass := func(run Run) string {
		run.Name = in.runName()
		setStatus(Outcome{Observed: Observed{Deployment: d, Tekton: true, Application: testApplication(kibashipv1.TypeGitRepository), Runs: []Run{run}}, In: &in}, now)
		return d.Status.Message
	}
	over := Run{Phase: kibashipv1.DeploymentFailed, Reason: kibashipv1.ReasonRunTimedOut, Message: "too late", Completed: &metav1.Time{Time: now}, Ending: true}
	pass(Run{Seen: true, Phase: kibashipv1.DeploymentRunning, Message: "Pending: no volume"})
	if got := pass(Run{Seen: true, Phase: kibashipv1.DeploymentRunning, Ending: true}); got != "Pending: no volume" {
		t.Errorf("while it is ended: %s", got)
	}
	for range 2 {
		if got := pass(over); !strings.Contains(got, "too late. No step of it began: Pending: no volume") || strings.Count(got, "no volume") != 1 {
			t.Errorf("afterwards: %s", got)
		}
	}
	d = aDeployment()
	pass(Run{Seen: true, Phase: kibashipv1.DeploymentRunning, Message: "Pending: no volume"})
	if got := pass(Run{Seen: true, Phase: kibashipv1.DeploymentRunning, Executed: true}); strings.Contains(got, "no volume") {
		t.Errorf("of one that runs: %s", got)
	}
	over.Executed = true
	if got := pass(over); strings.Contains(got, "No step") {
		t.Errorf("of one that ran: %s", got)
	}
}

// Time alone changes the phase of a result, and of nothing else.
func TestNoTimerGoesOffImmediately(t *testing.T) {
	in := inputs()
	d := aDeployment()
	runs := []Run{aRun(in.runName(), kibashipv1.DeploymentFailed, now), aRun("earlier", kibashipv1.DeploymentSucceeded, now.Add(-time.Hour))}
	runs[1].Repository = "registry.example.org/shop/web"
	d.Status.ObservedGeneration = d.Generation
	out := Outcome{Observed: Observed{Deployment: d, Application: testApplication(kibashipv1.TypeGitRepository), Runs: runs}, In: &in}
	setStatus(out, now)
	out.In, out.Problem = nil, &outcome.Problem{Condition: kibashipv1.ConditionApplicationReady, Reason: kibashipv1.ReasonApplicationNotReady, Class: outcome.Blocked, Message: "not yet"}
	setStatus(out, now)
	if got := requeueAfter(out, config.Builds{ResultTime: shown, Timeout: timeout}, now); got < time.Minute {
		t.Errorf("%s is looked at again after %s", d.Status.Phase, got)
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
	pipelineRun.Object["spec"] = object{"params": []any{object{"name": paramCommit, "value": strings.Repeat("e", 40)}}}
	set(step(stepClone, resultCommit, commit), step(stepPush, resultDigest, digest))
	if got := readRun(pipelineRun, []unstructured.Unstructured{*taskRun}); got.Phase != kibashipv1.DeploymentFailed || got.Digest != "" || got.Commit == commit {
		t.Errorf("of another commit: %+v", got)
	}
	taskRun.SetOwnerReferences([]metav1.OwnerReference{{UID: "another", Controller: &yes}})
	set(step(stepClone, resultCommit, commit), step(stepPush, resultDigest, digest))
	if got := readRun(pipelineRun, []unstructured.Unstructured{*taskRun}); got.Digest != "" {
		t.Errorf("of another owner's TaskRun: %+v", got)
	}
}
