package application

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/poll"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

const projectUUID = "6f6f2c9e-3b1a-4f0e-9a51-0d7c6a4c2b10"

func readyProject() *kibashipv1.Project {
	return &kibashipv1.Project{
		ObjectMeta: metav1.ObjectMeta{Name: "mystore", Labels: map[string]string{kibashipv1.LabelUUID: projectUUID}},
		Status:     kibashipv1.ProjectStatus{Phase: kibashipv1.ProjectReady},
	}
}

func private() *kibashipv1.Application {
	return &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Name: "project-mystore-app-web-kibaship-com", Namespace: "project-mystore-ns-kibaship-com", Generation: 3},
		Spec: kibashipv1.ApplicationSpec{
			ProjectRef: kibashipv1.LocalReference{Name: "mystore"}, Type: kibashipv1.TypeGitRepository,
			GitRepository: &kibashipv1.GitRepository{
				Provider: kibashipv1.GitHub, Repository: "org/repo", SecretRef: &kibashipv1.LocalReference{Name: "token"},
			},
		},
	}
}

func TestComputeStatus(t *testing.T) {
	now := metav1.NewTime(noon)
	waits, goes := readyProject(), readyProject()
	waits.Status.Phase = kibashipv1.ProjectPending
	goes.DeletionTimestamp = &now
	off := readyProject()
	off.Spec.ApplicationTypes.GitRepository = &kibashipv1.TypePolicy{}
	for name, tc := range map[string]struct {
		modify   func(*kibashipv1.Application)
		observed Observed
		phase    string
		reason   string
	}{
		"all there":         {nil, Observed{Project: readyProject(), SecretsKnown: true}, kibashipv1.ApplicationReady, kibashipv1.ReasonApplicationReady},
		"no project":        {nil, Observed{}, kibashipv1.ApplicationPending, kibashipv1.ReasonProjectNotFound},
		"project is made":   {nil, Observed{Project: waits}, kibashipv1.ApplicationPending, kibashipv1.ReasonProjectNotReady},
		"project goes":      {nil, Observed{Project: goes}, kibashipv1.ApplicationPending, kibashipv1.ReasonProjectNotReady},
		"no secret":         {nil, Observed{Project: readyProject(), SecretsKnown: true, Missing: []string{"token"}}, kibashipv1.ApplicationPending, kibashipv1.ReasonSecretNotFound},
		"secrets not known": {nil, Observed{Project: readyProject()}, kibashipv1.ApplicationPending, kibashipv1.ReasonWaiting},
		"public, no secrets": {func(a *kibashipv1.Application) {
			a.Spec.GitRepository.PublicAccess, a.Spec.GitRepository.SecretRef = true, nil
		}, Observed{Project: readyProject()}, kibashipv1.ApplicationReady, kibashipv1.ReasonApplicationReady},
		"type is off":     {nil, Observed{Project: off, SecretsKnown: true}, kibashipv1.ApplicationFailed, kibashipv1.ReasonTypeDisabled},
		"wrong namespace": {func(a *kibashipv1.Application) { a.Namespace = "default" }, Observed{Project: readyProject()}, kibashipv1.ApplicationFailed, kibashipv1.ReasonWrongNamespace},
		"bad, no project": {func(a *kibashipv1.Application) { a.Spec.GitRepository.Repository = "x" }, Observed{}, kibashipv1.ApplicationFailed, kibashipv1.ReasonProjectNotFound},
		"bad":             {func(a *kibashipv1.Application) { a.Spec.GitRepository.Repository = "x" }, Observed{Project: readyProject(), SecretsKnown: true}, kibashipv1.ApplicationFailed, kibashipv1.ReasonInvalidSpec},
	} {
		t.Run(name, func(t *testing.T) {
			a := private()
			if tc.modify != nil {
				tc.modify(a)
			}
			computeStatus(a, tc.observed, check(a, tc.observed), noon).SetOn(&a.Status.Conditions, a.Generation, noon)
			c := meta.FindStatusCondition(a.Status.Conditions, kibashipv1.ConditionReady)
			if a.Status.Phase != tc.phase || c.Reason != tc.reason || (c.Status == metav1.ConditionTrue) != (tc.phase == kibashipv1.ApplicationReady) {
				t.Errorf("phase %s, Ready %+v", a.Status.Phase, c)
			}
			if a.Status.Message != c.Message || len(a.Status.Conditions) < 4 {
				t.Errorf("status %+v", a.Status)
			}
			if stalled := meta.IsStatusConditionTrue(a.Status.Conditions, reconcile.ConditionStalled); stalled != (tc.phase == kibashipv1.ApplicationFailed) {
				t.Errorf("Stalled is %v in phase %s", stalled, tc.phase)
			}
			if err := conditions.Violations(nil, a.Status.Conditions, 3); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADatabaseIsAcceptedAndNotStarted(t *testing.T) {
	a := private()
	a.Spec = kibashipv1.ApplicationSpec{ProjectRef: a.Spec.ProjectRef, Type: kibashipv1.TypePostgres, Postgres: &kibashipv1.Database{}}
	o := Observed{Project: readyProject(), SecretsKnown: true}
	computeStatus(a, o, check(a, o), noon)
	if a.Status.Phase != kibashipv1.ApplicationReady || !strings.Contains(a.Status.Message, "starts no database") {
		t.Errorf("%s: %s", a.Status.Phase, a.Status.Message)
	}
}

func TestLabels(t *testing.T) {
	p := readyProject()
	got := ProjectLabels(map[string]string{"a": "b", kibashipv1.LabelWorkspaceUUID: "former"}, p)
	if len(got) != 2 || got[kibashipv1.LabelProjectUUID] != projectUUID || got["a"] != "b" {
		t.Errorf("labels %v", got)
	}
	p.Labels[kibashipv1.LabelWorkspaceUUID] = "0f0e0d0c-0b0a-4908-8706-050403020100"
	if got := ProjectLabels(nil, p); len(got) != 2 {
		t.Errorf("labels %v", got)
	}
	if got := ProjectLabels(map[string]string{"a": "b"}, nil); len(got) != 1 {
		t.Errorf("without a project: %v", got)
	}
}

func TestConditionOfAutoBuild(t *testing.T) {
	refs := []kibashipv1.AutoBuildRef{{Ref: "refs/heads/main", CommitSHA: "a", Deployment: "d"}}
	for name, tc := range map[string]struct {
		build  *AutoBuild
		status metav1.ConditionStatus
		reason string
	}{
		"not ready":       {nil, metav1.ConditionUnknown, kibashipv1.ReasonWaiting},
		"off":             {&AutoBuild{Off: true}, metav1.ConditionFalse, kibashipv1.ReasonAutoBuildOff},
		"not asked":       {&AutoBuild{}, metav1.ConditionUnknown, kibashipv1.ReasonWaiting},
		"never answered":  {&AutoBuild{Answered: true, Answer: poll.Answer{Problem: "x"}}, metav1.ConditionFalse, kibashipv1.ReasonRepositoryNotRead},
		"nothing matches": {&AutoBuild{Answered: true}, metav1.ConditionFalse, kibashipv1.ReasonNothingMatches},
		"too many":        {&AutoBuild{Answered: true, Refs: refs, Answer: poll.Answer{Branches: 21}}, metav1.ConditionFalse, kibashipv1.ReasonTooManyBranches},
		"no Secret":       {&AutoBuild{Answered: true, Refs: refs, SecretProblem: "x"}, metav1.ConditionFalse, kibashipv1.ReasonWebhookSecretInTheWay},
		"watched":         {&AutoBuild{Answered: true, Refs: refs}, metav1.ConditionTrue, kibashipv1.ReasonWatching},
	} {
		t.Run(name, func(t *testing.T) {
			a := private()
			a.Spec.GitRepository.AutoBuild = &kibashipv1.AutoBuild{Enabled: true}
			o := Observed{Project: readyProject(), SecretsKnown: true, AutoBuild: tc.build}
			ready := computeStatus(a, o, check(a, o), noon)
			c := meta.FindStatusCondition(a.Status.Conditions, kibashipv1.ConditionAutoBuild)
			if c == nil || c.Status != tc.status || c.Reason != tc.reason || c.Message == "" {
				t.Errorf("%+v", c)
			}
			if a.Status.Phase != kibashipv1.ApplicationReady || ready.Stalled {
				t.Errorf("an Application that can be built by hand is %s", a.Status.Phase)
			}
			// An answer that fails, and an Application that is not Ready for a moment, keep the refs.
			o.AutoBuild = &AutoBuild{Answered: true, Answer: poll.Answer{Problem: "x"}}
			before := a.Status.AutoBuild.DeepCopy()
			computeStatus(a, o, check(a, o), noon)
			if before != nil && len(before.Refs) != len(a.Status.AutoBuild.Refs) {
				t.Errorf("refs are %v, and were %v", a.Status.AutoBuild.Refs, before.Refs)
			}
			a.Spec.GitRepository.AutoBuild.Enabled, o.AutoBuild = false, nil
			computeStatus(a, o, check(a, o), noon)
			if a.Status.AutoBuild != nil || meta.FindStatusCondition(a.Status.Conditions, kibashipv1.ConditionAutoBuild) != nil {
				t.Error("it is switched off, and the status speaks of it")
			}
		})
	}
}
