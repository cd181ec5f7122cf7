package environment

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/conditions"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/ownership"
)

var noon = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

func testEnvironment() *quixv1.Environment {
	env := &quixv1.Environment{
		ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a", Generation: 2},
		Spec:       quixv1.EnvironmentSpec{ID: "alpha"},
	}
	computeStarted(env, "-qdep", noon)
	env.Status.NamespaceUID = "created"
	return env
}

func ownNamespace(env *quixv1.Environment) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(env), UID: "created"}}
	namespaceOwner(env).SetOn(ns)
	return ns
}

func ownBinding(env *quixv1.Environment) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{}
	roleBindingOwner(env).SetOn(binding)
	return binding
}

// of returns problems in the given order.
func of(problems ...*outcome.Problem) (all outcome.Problems) {
	for _, p := range problems {
		all.Add(p)
	}
	return all
}

var dangerous = &rbacv1.ClusterRole{
	ObjectMeta: metav1.ObjectMeta{Name: "platform"},
	Rules:      []rbacv1.PolicyRule{ruleOf("* * *")},
}

func TestStarted(t *testing.T) {
	env := testEnvironment()
	if s := env.Status; s.Phase != quixv1.PhaseInProgress || s.Message != "processing" || s.ObservedGeneration != 0 ||
		*s.NamespaceStatus != (quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: "alpha-qdep"}) ||
		*s.RoleBindingStatus != (quixv1.ResourceStatus{Phase: quixv1.ResourceCreating, ResourceName: "alpha-quix-crb"}) {
		t.Errorf("status %+v", s)
	}
	computeStarted(env, "-other", noon)
	if namespaceName(env) != "alpha-qdep" {
		t.Errorf("a stored name became %s", namespaceName(env))
	}
}

func TestCheckNamespace(t *testing.T) {
	env := testEnvironment()
	modified := func(modify func(*corev1.Namespace)) *corev1.Namespace {
		ns := ownNamespace(env)
		modify(ns)
		return ns
	}
	for name, tc := range map[string]struct {
		ns      *corev1.Namespace
		pattern string
		reason  string
	}{
		"none":                   {nil, "", ""},
		"none, pattern matches":  {nil, "^al", ""},
		"none, pattern does not": {nil, "^be", quixv1.ReasonInvalidEnvironmentID},
		"ours":                   {ownNamespace(env), "", ""},
		"ours, pattern changed":  {ownNamespace(env), "^be", ""},
		"no labels at all":       {&corev1.Namespace{}, "", quixv1.ReasonNamespaceNotManaged},
		"managed by another":     {modified(func(ns *corev1.Namespace) { ns.Labels[quixv1.LabelManagedBy] = "environment-operator" }), "", quixv1.ReasonNamespaceNotManaged},
		"of another UID":         {modified(func(ns *corev1.Namespace) { ns.Annotations[quixv1.AnnotationUID] = "uid-b" }), "", quixv1.ReasonNamespaceOwnershipConflict},
		"no UID, labels right":   {modified(func(ns *corev1.Namespace) { ns.Annotations = nil }), "", quixv1.ReasonNamespaceOwnershipConflict},
		"of another id":          {modified(func(ns *corev1.Namespace) { ns.Labels[quixv1.LabelEnvironmentID] = "beta" }), "", quixv1.ReasonNamespaceOwnershipConflict},
		"of another name":        {modified(func(ns *corev1.Namespace) { ns.Labels[quixv1.LabelEnvironmentName] = "team-b" }), "", quixv1.ReasonNamespaceOwnershipConflict},
		"identity labels empty": {modified(func(ns *corev1.Namespace) {
			ns.Labels = map[string]string{quixv1.LabelManagedBy: quixv1.ManagedBy}
			ns.Annotations = nil
		}), "", quixv1.ReasonNamespaceOwnershipConflict},
	} {
		var pattern *regexp.Regexp
		if tc.pattern != "" {
			pattern = regexp.MustCompile(tc.pattern)
		}
		reason := ""
		if p := checkNamespace(env, Observed{Namespace: tc.ns}, pattern); p != nil {
			reason = p.Reason
		}
		if reason != tc.reason {
			t.Errorf("%s: reason %q, want %q", name, reason, tc.reason)
		}
	}
}

func TestNothingIsBoundWithoutTheFence(t *testing.T) {
	env := testEnvironment()
	cfg := config.Quix{ClusterRoleName: "platform", ServiceAccountName: "account", ServiceAccountNamespace: "quix"}
	in := Inputs{env, nil, cfg}
	bindingOf := func(modify func(*rbacv1.RoleBinding)) *rbacv1.RoleBinding {
		b := roleBinding(in)
		modify(b)
		return b
	}
	for name, tc := range map[string]struct {
		bound    *rbacv1.RoleBinding
		unfenced string
		waits    bool
	}{
		"with the fence":        {nil, "", false},
		"a new environment":     {nil, "missing", true},
		"bound already":         {bindingOf(func(*rbacv1.RoleBinding) {}), "missing", false},
		"to another role":       {bindingOf(func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "other" }), "missing", true},
		"without the platform":  {bindingOf(func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "other" }), "missing", true},
		"the platform and more": {bindingOf(func(b *rbacv1.RoleBinding) { b.Subjects = append(b.Subjects, rbacv1.Subject{Name: "more"}) }), "missing", false},
	} {
		p := check(env, Observed{Namespace: ownNamespace(env), Role: &rbacv1.ClusterRole{}, RoleBinding: tc.bound, Unfenced: tc.unfenced}, cfg).First()
		if (p != nil) != tc.waits || p != nil && (p.Condition != quixv1.ConditionRoleBindingReady || p.Reason != quixv1.ReasonAdmissionPolicyMissing || p.Message != tc.unfenced || p.Class != outcome.Blocked) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func TestComputeStatus(t *testing.T) {
	env := testEnvironment()
	refused := apierrors.NewInvalid(schema.GroupKind{Kind: "Namespace"}, "alpha-qdep", nil)
	down := errors.New("connection refused")
	terminating := &apply.TerminatingError{Kind: "Namespace", Name: "alpha-qdep"}
	foreign := &ownership.RefusedError{Kind: "RoleBinding", Name: "alpha-quix-crb"}
	violation, missing := checkRole(dangerous, "platform"), checkRole(nil, "platform")
	bound := Observed{Namespace: ownNamespace(env), RoleBinding: ownBinding(env)}

	const active, failed, creating = quixv1.ResourceActive, quixv1.ResourceFailed, quixv1.ResourceCreating
	for name, tc := range map[string]struct {
		problems    outcome.Problems
		phase       quixv1.Phase
		ns, binding quixv1.ResourcePhase
		// NamespaceReady, RoleValidated, RoleBindingReady, Ready: T, F or U.
		conditions string
		message    string
		bound      bool
	}{
		"all in place": {nil, quixv1.PhaseReady, active, active, "TTTT", "ready", false},
		"id refused": {
			of(checkNamespace(env, Observed{}, regexp.MustCompile("^x"))),
			quixv1.PhaseFailed, failed, creating, "FTUF", "invalid environment ID", false,
		},
		"namespace of another owner": {
			of(checkNamespace(env, Observed{Namespace: &corev1.Namespace{}}, nil)),
			quixv1.PhaseFailed, failed, creating, "FTUF", "namespace conflict", false,
		},
		"namespace refused by the API server": {of(namespaceProblem(Observed{}, refused)), quixv1.PhaseFailed, failed, creating, "FTUF", "invalid", false},
		"finalizer refused":                   {of(outcome.NewProblem(quixv1.ConditionNamespaceReady, fmt.Errorf("put the finalizer on this Environment: %w", refused))), quixv1.PhaseFailed, failed, creating, "FTUF", "put the finalizer on this Environment", false},
		"API server down":                     {of(namespaceProblem(Observed{}, down)), quixv1.PhaseInProgress, creating, creating, "FTUF", "connection refused", false},
		"namespace terminating":               {of(namespaceProblem(Observed{}, terminating)), quixv1.PhaseInProgress, creating, creating, "FTUF", "being deleted", false},
		"role missing":                        {of(missing), quixv1.PhaseFailed, active, failed, "TFFF", "cannot get ClusterRole platform for the role binding", false},
		"role dangerous, unbound":             {of(violation), quixv1.PhaseFailed, active, failed, "TFFF", "security violation", false},
		"role dangerous, left bound":          {of(violation), quixv1.PhaseFailed, active, active, "TFTF", "security violation", true},
		"role dangerous, namespace terminating": {
			of(namespaceProblem(Observed{}, terminating), violation),
			quixv1.PhaseFailed, creating, failed, "FFFF", "security violation", false,
		},
		"role dangerous, cannot unbind": {
			of(violation, retryProblem(quixv1.ConditionRoleBindingReady, quixv1.ReasonRoleBindingDeletionFailed, down)),
			quixv1.PhaseFailed, active, creating, "TFFF", "security violation", false,
		},
		"no fence":           {of(checkFence(Inputs{}, "The admission policy is missing")), quixv1.PhaseFailed, active, failed, "TTFF", "admission policy", false},
		"foreign binding":    {of(roleBindingProblem(Observed{}, foreign)), quixv1.PhaseFailed, active, failed, "TTFF", "left untouched", false},
		"binding refused":    {of(roleBindingProblem(Observed{}, refused)), quixv1.PhaseFailed, active, failed, "TTFF", "invalid", false},
		"binding, no answer": {of(roleBindingProblem(Observed{}, down)), quixv1.PhaseInProgress, active, creating, "TTFF", "connection refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			env := testEnvironment()
			started := env.DeepCopy().Status.Conditions
			state := State{}
			if tc.bound {
				state.Observed = bound
			}
			update := func(env *quixv1.Environment, now time.Time) {
				computeStatus(env, state, tc.problems, now).SetOn(&env.Status.Conditions, env.Generation, now)
			}
			update(env, noon.Add(time.Second))
			if err := conditions.Violations(started, env.Status.Conditions, env.Generation); err != nil {
				t.Error(err)
			}
			s := env.Status
			if s.Phase != tc.phase || s.NamespaceStatus.Phase != tc.ns || s.RoleBindingStatus.Phase != tc.binding {
				t.Errorf("phases %s, %s, %s, want %s, %s, %s", s.Phase, s.NamespaceStatus.Phase, s.RoleBindingStatus.Phase, tc.phase, tc.ns, tc.binding)
			}
			if !strings.Contains(s.Message, tc.message) {
				t.Errorf("message %q, want %q in it", s.Message, tc.message)
			}
			if s.NamespaceStatus.ResourceName != "alpha-qdep" || s.RoleBindingStatus.ResourceName != "alpha-quix-crb" {
				t.Errorf("status %+v", s)
			}
			var got strings.Builder
			for _, conditionType := range []string{quixv1.ConditionNamespaceReady, quixv1.ConditionRoleValidated, quixv1.ConditionRoleBindingReady, quixv1.ConditionReady} {
				c := meta.FindStatusCondition(s.Conditions, conditionType)
				if c == nil || c.Reason == "" || c.Message == "" || c.ObservedGeneration != 2 {
					t.Fatalf("condition %s is %+v", conditionType, c)
				}
				got.WriteByte(c.Status[0])
			}
			if got.String() != tc.conditions {
				t.Errorf("conditions %s, want %s", got.String(), tc.conditions)
			}
			if stalled := meta.IsStatusConditionTrue(s.Conditions, quixv1.ConditionStalled); stalled != (tc.phase == quixv1.PhaseFailed) {
				t.Errorf("Stalled is %v in phase %s", stalled, s.Phase)
			}
			again := env.DeepCopy()
			update(again, noon.Add(time.Hour))
			if !equality.Semantic.DeepEqual(env.Status, again.Status) {
				t.Error("the same outcome changed the status again")
			}
		})
	}
}

func TestOnlyRetryProblemsAreErrors(t *testing.T) {
	if err := of(checkRole(nil, "x"), namespaceProblem(Observed{}, &apply.TerminatingError{})).Err(); err != nil {
		t.Errorf("an event triggers the next reconciliation, but the error is %v", err)
	}
	down := errors.New("connection refused")
	if err := of(checkRole(nil, "x"), retryProblem("", "", down)).Err(); !errors.Is(err, down) {
		t.Errorf("error %v", err)
	}
}

func TestComputeDeleting(t *testing.T) {
	env := testEnvironment()
	held := ownNamespace(env)
	held.Status.Conditions = []corev1.NamespaceCondition{{Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionTrue, Message: "example.com/hold in 1 pods"}}
	unmanaged := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "alpha-qdep"}}
	other := ownNamespace(env)
	other.Annotations[quixv1.AnnotationUID] = "uid-b"
	refused := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("policy"))
	for name, tc := range map[string]struct {
		deleting    Deletion
		ns, binding quixv1.ResourcePhase
		reason      string
		message     string
		stalled     bool
	}{
		"terminating":   {Deletion{Namespace: ownNamespace(env)}, quixv1.ResourceDeleting, quixv1.ResourceDeleting, quixv1.ReasonTerminating, "is being deleted", false},
		"held back":     {Deletion{Namespace: held}, quixv1.ResourceDeleting, quixv1.ResourceDeleting, quixv1.ReasonDeletionBlocked, "example.com/hold", true},
		"refused":       {Deletion{Namespace: ownNamespace(env), DeleteErr: refused}, quixv1.ResourceFailed, quixv1.ResourceDeleting, quixv1.ReasonDeletionBlocked, "policy", true},
		"no answer":     {Deletion{Namespace: ownNamespace(env), DeleteErr: errors.New("no")}, quixv1.ResourceFailed, quixv1.ResourceDeleting, quixv1.ReasonDeletionBlocked, "no", false},
		"unmanaged":     {Deletion{Namespace: unmanaged, NotOwned: true}, quixv1.ResourceFailed, quixv1.ResourceDeleting, quixv1.ReasonNamespaceNotManaged, "is not deleted", false},
		"of another":    {Deletion{Namespace: other, NotOwned: true}, quixv1.ResourceFailed, quixv1.ResourceDeleting, quixv1.ReasonNamespaceEnvironmentIDMismatch, "is not deleted", false},
		"binding stays": {Deletion{Namespace: ownNamespace(env), UnbindErr: errors.New("no")}, quixv1.ResourceDeleting, quixv1.ResourceFailed, quixv1.ReasonTerminating, "is being deleted", false},
		"gone":          {Deletion{}, quixv1.ResourceDeleting, quixv1.ResourceDeleting, quixv1.ReasonTerminating, "gone", false},
	} {
		env := testEnvironment()
		computeDeleting(env, tc.deleting, noon)
		s := env.Status
		c := meta.FindStatusCondition(s.Conditions, quixv1.ConditionNamespaceReady)
		if s.Phase != quixv1.PhaseDeleting || s.NamespaceStatus.Phase != tc.ns || s.RoleBindingStatus.Phase != tc.binding ||
			c.Reason != tc.reason || !strings.Contains(s.NamespaceStatus.Message, tc.message) {
			t.Errorf("%s: %s, namespace %+v, binding %+v, reason %s", name, s.Phase, *s.NamespaceStatus, *s.RoleBindingStatus, c.Reason)
		}
		if !meta.IsStatusConditionFalse(s.Conditions, quixv1.ConditionReady) || meta.IsStatusConditionTrue(s.Conditions, quixv1.ConditionStalled) != tc.stalled {
			t.Errorf("%s: conditions %+v, want Stalled: %v", name, s.Conditions, tc.stalled)
		}
	}
}

func TestReasonsOfFailedWrites(t *testing.T) {
	env := testEnvironment()
	fresh, live := Observed{}, Observed{Namespace: ownNamespace(env), RoleBinding: ownBinding(env)}
	refused := apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("policy"))
	for name, tc := range map[string]struct {
		err              error
		class            outcome.Class
		created, kept    string // of the namespace: when it is new, when it exists
		bound, keptBound string // of the binding
	}{
		"refused":      {refused, outcome.External, quixv1.ReasonNamespaceCreationFailed, quixv1.ReasonNamespaceReconciliationFailed, quixv1.ReasonRoleBindingCreationFailed, quixv1.ReasonRoleBindingReconciliationFailed},
		"down":         {errors.New("refused"), outcome.Retry, quixv1.ReasonNamespaceCreationFailed, quixv1.ReasonNamespaceReconciliationFailed, quixv1.ReasonRoleBindingCreationFailed, quixv1.ReasonRoleBindingReconciliationFailed},
		"foreign":      {&ownership.RefusedError{}, outcome.External, quixv1.ReasonNamespaceOwnershipConflict, quixv1.ReasonNamespaceOwnershipConflict, quixv1.ReasonRoleBindingConflict, quixv1.ReasonRoleBindingConflict},
		"terminating":  {&apply.TerminatingError{}, outcome.Waiting, quixv1.ReasonWaiting, quixv1.ReasonWaiting, quixv1.ReasonWaiting, quixv1.ReasonWaiting},
		"contested":    {&apply.ContestedError{}, outcome.Retry, quixv1.ReasonContested, quixv1.ReasonContested, quixv1.ReasonContested, quixv1.ReasonContested},
		"out of date":  {apierrors.NewConflict(schema.GroupResource{}, "x", nil), outcome.Stale, "", "", "", ""},
		"gone by then": {apierrors.NewNotFound(schema.GroupResource{}, "x"), outcome.Stale, "", "", "", ""},
	} {
		for _, p := range []struct {
			got  *outcome.Problem
			want string
		}{
			{namespaceProblem(fresh, tc.err), tc.created},
			{namespaceProblem(live, tc.err), tc.kept},
			{roleBindingProblem(fresh, tc.err), tc.bound},
			{roleBindingProblem(live, tc.err), tc.keptBound},
		} {
			if p.got.Class != tc.class || p.want != "" && p.got.Reason != p.want {
				t.Errorf("%s: class %d and reason %s, want %d and %s", name, p.got.Class, p.got.Reason, tc.class, p.want)
			}
		}
		if stale := of(roleBindingProblem(live, tc.err)).Stale(); stale != (tc.class == outcome.Stale) {
			t.Errorf("%s: stale is %v", name, stale)
		}
	}
}

func TestLongTextsAreCut(t *testing.T) {
	long := errors.New("cannot: " + strings.Repeat("ä", 40000) + ": fix it")
	live, deleting := testEnvironment(), testEnvironment()
	computeStatus(live, State{}, of(retryProblem(quixv1.ConditionNamespaceReady, "No", long), retryProblem(quixv1.ConditionRoleBindingReady, "No", long)), noon)
	computeDeleting(deleting, Deletion{Namespace: ownNamespace(deleting), UnbindErr: long, DeleteErr: long}, noon)
	for name, env := range map[string]*quixv1.Environment{"live": live, "deleting": deleting} {
		boundMessages(&env.Status)
		texts := []string{env.Status.Message, env.Status.NamespaceStatus.Message, env.Status.RoleBindingStatus.Message}
		for _, text := range append(texts, meta.FindStatusCondition(env.Status.Conditions, quixv1.ConditionNamespaceReady).Message) {
			if len(text) > conditions.MaxMessage || !utf8.ValidString(text) || !strings.HasPrefix(text, "cannot: ä") || !strings.HasSuffix(text, "ä: fix it") {
				t.Errorf("%s: %d bytes: %.40q", name, len(text), text)
			}
		}
	}
	var empty quixv1.EnvironmentStatus
	boundMessages(&empty) // nothing was created yet
}
