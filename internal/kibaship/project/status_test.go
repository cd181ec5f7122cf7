package project

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kibaship/naming"
	"github.com/bergctf/berg-operator/internal/kibaship/usage"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
	"github.com/bergctf/berg-operator/internal/kit/reconcile"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func good() *kibashipv1.Project {
	return &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{
		Name: "mystore", UID: "uid-a", Generation: 2,
		Labels: map[string]string{kibashipv1.LabelUUID: "6f6f2c9e-3b1a-4f0e-9a51-0d7c6a4c2b10"},
	}}
}

func ownNamespace(p *kibashipv1.Project) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: naming.Namespace(p.Name)}}
	labelledOwner(p).SetOn(ns)
	ns.UID, p.Status.NamespaceUID = "created", "created"
	return ns
}

func TestCheckNamespace(t *testing.T) {
	p := good()
	for name, tc := range map[string]struct {
		modify func(*corev1.Namespace)
		ours   bool
	}{
		"ours":            {func(*corev1.Namespace) {}, true},
		"more labels":     {func(ns *corev1.Namespace) { ns.Labels["a"] = "b" }, true},
		"no uuid":         {func(ns *corev1.Namespace) { delete(ns.Labels, kibashipv1.LabelUUID) }, false},
		"another uuid":    {func(ns *corev1.Namespace) { ns.Labels[kibashipv1.LabelUUID] = "x" }, false},
		"no UID":          {func(ns *corev1.Namespace) { ns.Annotations = nil }, false},
		"UID of a former": {func(ns *corev1.Namespace) { ns.Annotations[kibashipv1.AnnotationProjectUID] = "uid-b" }, false},
	} {
		ns := ownNamespace(p)
		tc.modify(ns)
		problem := checkNamespace(p, Observed{Namespace: ns})
		if (problem == nil) != tc.ours || problem != nil && (problem.Reason != kibashipv1.ReasonNamespaceConflict || problem.Class != outcome.Blocked) {
			t.Errorf("%s: %+v", name, problem)
		}
	}
	if problem := checkNamespace(p, Observed{}); problem != nil {
		t.Errorf("none yet: %+v", problem)
	}
}

func TestNothingIsBoundWithoutThePolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		missing string
		there   bool
		waits   bool
	}{
		"in force": {"", false, false}, "missing": {"missing", false, true}, "missing by now": {"missing", true, false},
	} {
		p := checkPolicies(kibashipv1.ConditionAccessReady, Observed{MissingPolicy: tc.missing}, tc.there)
		if (p != nil) != tc.waits || p != nil && (p.Reason != kibashipv1.ReasonAdmissionPolicyMissing || p.Class != outcome.Blocked) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestComputeStatus(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "resourcequotas"}, "q", errors.New("no"))
	for name, tc := range map[string]struct {
		mode     config.TektonMode
		tekton   bool
		problems []*outcome.Problem
		phase    kibashipv1.ProjectPhase
		ready    string
		tektonIs string
	}{
		"all in place":     {config.TektonOptional, true, nil, kibashipv1.ProjectReady, kibashipv1.ReasonProjectReady, kibashipv1.ReasonCreated},
		"without Tekton":   {config.TektonOptional, false, nil, kibashipv1.ProjectReady, kibashipv1.ReasonProjectReady, kibashipv1.ReasonTektonNotInstalled},
		"Tekton is off":    {config.TektonOff, false, nil, kibashipv1.ProjectReady, kibashipv1.ReasonProjectReady, kibashipv1.ReasonTektonOff},
		"Tekton is needed": {config.TektonRequired, false, []*outcome.Problem{checkTekton(Observed{}, config.TektonRequired)}, kibashipv1.ProjectFailed, kibashipv1.ReasonTektonNotInstalled, kibashipv1.ReasonTektonNotInstalled},
		"Tekton is not ours": {
			config.TektonOptional, true,
			[]*outcome.Problem{newProblem(kibashipv1.ConditionTektonIntegrated, kibashipv1.ReasonOwnershipConflict, &ownership.RefusedError{Kind: "RoleBinding"})},
			kibashipv1.ProjectReady, kibashipv1.ReasonProjectReady, kibashipv1.ReasonOwnershipConflict,
		},
		"no role":        {config.TektonOptional, true, []*outcome.Problem{checkAdmin(Observed{}, "admin")}, kibashipv1.ProjectFailed, kibashipv1.ReasonAdminRoleMissing, kibashipv1.ReasonWaiting},
		"no policy":      {config.TektonOptional, true, []*outcome.Problem{checkPolicies(kibashipv1.ConditionAccessReady, Observed{MissingPolicy: "missing"}, false)}, kibashipv1.ProjectFailed, kibashipv1.ReasonAdmissionPolicyMissing, kibashipv1.ReasonWaiting},
		"bound already":  {config.TektonOptional, true, []*outcome.Problem{checkPolicies(kibashipv1.ConditionTektonIntegrated, Observed{MissingPolicy: "missing"}, false)}, kibashipv1.ProjectReady, kibashipv1.ReasonProjectReady, kibashipv1.ReasonAdmissionPolicyMissing},
		"quota refused":  {config.TektonOptional, true, []*outcome.Problem{newProblem(kibashipv1.ConditionLimitsReady, "", refused)}, kibashipv1.ProjectFailed, kibashipv1.ReasonRefused, kibashipv1.ReasonWaiting},
		"server is down": {config.TektonOptional, true, []*outcome.Problem{newProblem(kibashipv1.ConditionAccessReady, "", errors.New("down"))}, kibashipv1.ProjectPending, kibashipv1.ReasonWriteFailed, kibashipv1.ReasonWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			p := good()
			state := State{Observed: Observed{Namespace: ownNamespace(p), Tekton: tc.tekton, Usage: usage.Now{Applications: 2}}, Mode: tc.mode}
			update := func(p *kibashipv1.Project, now time.Time) {
				computeStatus(p, state, tc.problems, now).SetOn(&p.Status.Conditions, p.Generation, now)
			}
			update(p, noon)
			s := p.Status
			if s.Phase != tc.phase || s.NamespaceName != "project-mystore-ns-kibaship-com" || s.Usage.Applications != 2 || s.Message == "" {
				t.Errorf("status %+v", s)
			}
			if c := meta.FindStatusCondition(s.Conditions, kibashipv1.ConditionReady); c.Reason != tc.ready || (c.Status == metav1.ConditionTrue) != (tc.phase == kibashipv1.ProjectReady) {
				t.Errorf("Ready is %+v", c)
			}
			if c := meta.FindStatusCondition(s.Conditions, kibashipv1.ConditionTektonIntegrated); c.Reason != tc.tektonIs {
				t.Errorf("TektonIntegrated is %+v", c)
			}
			if err := conditions.Violations(nil, s.Conditions, 2); err != nil {
				t.Error(err)
			}
			again := p.DeepCopy()
			update(again, noon.Add(time.Hour))
			if err := conditions.Violations(s.Conditions, again.Status.Conditions, 2); err != nil {
				t.Error(err)
			}
			stalled := meta.IsStatusConditionTrue(again.Status.Conditions, reconcile.ConditionStalled)
			if stalled != (tc.phase == kibashipv1.ProjectFailed) {
				t.Errorf("Stalled is %v in phase %s", stalled, tc.phase)
			}
			if want := len(steps) + 1; len(again.Status.Conditions) != want && !stalled {
				t.Errorf("%d conditions", len(again.Status.Conditions))
			}
		})
	}
}

func TestComputeDeleting(t *testing.T) {
	p := good()
	terminating := ownNamespace(p)
	terminating.Status.Conditions = []corev1.NamespaceCondition{{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: "Some content has finalizers remaining: example.org/holds",
	}}
	for name, tc := range map[string]struct {
		deletion Deletion
		reason   string
		named    bool
	}{
		"under way":        {Deletion{Namespace: ownNamespace(p)}, kibashipv1.ReasonTerminating, true},
		"held":             {Deletion{Namespace: terminating}, kibashipv1.ReasonDeletionBlocked, true},
		"refused":          {Deletion{Namespace: ownNamespace(p), DeleteErr: errors.New("no")}, kibashipv1.ReasonDeletionBlocked, true},
		"not ours":         {Deletion{Namespace: ownNamespace(p), Foreign: true}, kibashipv1.ReasonNamespaceConflict, false},
		"gone":             {Deletion{}, kibashipv1.ReasonTerminating, false},
		"gone, but Tekton": {Deletion{TektonErr: errors.New("no")}, kibashipv1.ReasonDeletionBlocked, false},
	} {
		p := good()
		p.Status.NamespaceName = naming.Namespace(p.Name)
		computeDeleting(p, tc.deletion, noon)
		c := meta.FindStatusCondition(p.Status.Conditions, kibashipv1.ConditionNamespaceReady)
		if c.Reason != tc.reason || p.Status.Phase != kibashipv1.ProjectPending || (p.Status.NamespaceName != "") != tc.named || p.Status.Message != c.Message {
			t.Errorf("%s: %+v, %+v", name, c, p.Status)
		}
		if err := conditions.Violations(nil, p.Status.Conditions, 2); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A namespace that has lost its label goes all the same where the Project owns it.
func TestWhatBecomesOfANamespaceWithoutOwner(t *testing.T) {
	p := good()
	for name, tc := range map[string]struct {
		owners  []metav1.OwnerReference
		message string
	}{
		"without an owner":     {nil, "stays"},
		"owned by the Project": {[]metav1.OwnerReference{{UID: p.UID}}, "deletes it with the Project"},
		"owned by another":     {[]metav1.OwnerReference{{UID: "uid-b"}}, "stays"},
		"owned by both":        {[]metav1.OwnerReference{{UID: p.UID}, {UID: "uid-b"}}, "stays"},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: naming.Namespace(p.Name), OwnerReferences: tc.owners}}
		p := good()
		computeDeleting(p, Deletion{Namespace: ns, Foreign: true}, noon)
		if !strings.Contains(p.Status.Message, tc.message) {
			t.Errorf("%s: %s", name, p.Status.Message)
		}
	}
}

func TestTheOperatorComesBackIntoTheSharedBinding(t *testing.T) {
	me := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "system", Name: "operator"}
	other := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "system", Name: "operator-of-before"}
	for name, tc := range map[string]struct {
		modify func(*rbacv1.RoleBinding)
		want   []rbacv1.Subject
	}{
		"as it was made":      {func(*rbacv1.RoleBinding) {}, nil},
		"with another":        {func(b *rbacv1.RoleBinding) { b.Subjects = append(b.Subjects, other) }, nil},
		"empty":               {func(b *rbacv1.RoleBinding) { b.Subjects = nil }, []rbacv1.Subject{me}},
		"of another alone":    {func(b *rbacv1.RoleBinding) { b.Subjects = []rbacv1.Subject{other} }, []rbacv1.Subject{other, me}},
		"of another operator": {func(b *rbacv1.RoleBinding) { b.Subjects, b.Labels = nil, nil }, nil},
		"to another role":     {func(b *rbacv1.RoleBinding) { b.Subjects, b.RoleRef.Name = nil, "x" }, nil},
		"being deleted":       {func(b *rbacv1.RoleBinding) { b.Subjects, b.DeletionTimestamp = nil, &metav1.Time{Time: noon} }, nil},
	} {
		live := sharedBinding(me)
		tc.modify(live)
		got := withOperator(live, me)
		if (got != nil) != (tc.want != nil) || got != nil && !slices.Equal(got.Subjects, tc.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhichProjectsAreEnqueued(t *testing.T) {
	for name, tc := range map[string]struct {
		object metav1.ObjectMeta
		want   string
	}{
		"in its namespace":     {metav1.ObjectMeta{Namespace: "project-mystore-ns-kibaship-com", Name: "any"}, "mystore"},
		"in Tekton's":          {metav1.ObjectMeta{Namespace: "tekton-pipelines", Name: "any", Annotations: map[string]string{kibashipv1.AnnotationProject: "mystore"}}, "mystore"},
		"in Tekton's, foreign": {metav1.ObjectMeta{Namespace: "tekton-pipelines", Name: "any"}, ""},
		"elsewhere":            {metav1.ObjectMeta{Namespace: "default", Name: "any", Annotations: map[string]string{kibashipv1.AnnotationProject: "mystore"}}, ""},
	} {
		got := ofObject(t.Context(), &rbacv1.RoleBinding{ObjectMeta: tc.object})
		if (len(got) == 1) != (tc.want != "") || len(got) == 1 && got[0].Name != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
