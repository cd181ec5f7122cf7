package project

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/outcome"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

func TestBoundedRulesLeaveOutWhatTakesBoundsOff(t *testing.T) {
	for _, rule := range boundedRules() {
		writes := slices.ContainsFunc(rule.Verbs, func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) })
		for _, resource := range rule.Resources {
			if resource == rbacv1.ResourceAll || slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) {
				t.Errorf("%v: everything of a group, and so what later versions add to it", rule)
			}
			forbidden := []string{"endpoints", "endpointslices", "namespaces", "resourcequotas", "limitranges", "networkpolicies"}
			if writes && (strings.HasSuffix(resource, "/status") || slices.Contains(forbidden, resource)) {
				t.Errorf("%v writes %s", rule, resource)
			}
		}
		for _, verb := range []string{"bind", "escalate", "impersonate", rbacv1.VerbAll} {
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("%v may %s", rule, verb)
			}
		}
	}
}

func TestRightsBeyondTheBounds(t *testing.T) {
	rule := func(group, resource, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	for name, tc := range map[string]struct {
		rules  []rbacv1.PolicyRule
		within bool
	}{
		"nothing":        {nil, true},
		"the same":       {boundedRules(), true},
		"less":           {[]rbacv1.PolicyRule{rule("apps", "deployments", "get")}, true},
		"everything":     {[]rbacv1.PolicyRule{rule("*", "*", "*")}, false},
		"the namespace":  {[]rbacv1.PolicyRule{rule("", "namespaces", "update")}, false},
		"a quota":        {[]rbacv1.PolicyRule{rule("", "resourcequotas", "delete")}, false},
		"a status":       {[]rbacv1.PolicyRule{rule("platform.operator.kibaship.com", "applications/status", "patch")}, false},
		"all of a group": {[]rbacv1.PolicyRule{rule("apps", "*", "get")}, false},
	} {
		if within, _ := validation.Covers(boundedRules(), tc.rules); within != tc.within {
			t.Errorf("%s: within the bounds %t, want %t", name, within, tc.within)
		}
	}
}

func TestRulesThatAreAdded(t *testing.T) {
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	for name, tc := range map[string]struct {
		rule    rbacv1.PolicyRule
		refused bool
	}{
		"certificates":              {rule("cert-manager.io", "certificates", "get", "create", "delete"), false},
		"a status of another group": {rule("postgresql.cnpg.io", "clusters/status", "patch"), false},
		"to see quotas":             {rule("", "resourcequotas", "get", "list"), false},
		"quotas":                    {rule("", "resourcequotas", "update"), true},
		"the namespace's finalizer": {rule("", "namespaces/finalize", "update"), true},
		"every finalizer":           {rule("", "*/finalize", "update"), true},
		"every scale":               {rule("apps", "*/scale", "update"), false},
		"network policies":          {rule("networking.k8s.io", "networkpolicies", "delete"), true},
		"Cilium's":                  {rule("cilium.io", "ciliumnetworkpolicies", "create"), true},
		"the own status":            {rule("platform.operator.kibaship.com", "projects/status", "patch"), true},
		"every verb":                {rule("cert-manager.io", "certificates", "*"), true},
		"every resource":            {rule("cert-manager.io", "*", "get"), true},
		"every group":               {rule("*", "certificates", "get"), true},
		"to bind roles":             {rule("rbac.authorization.k8s.io", "roles", "bind"), true},
		"paths":                     {rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}, true},
	} {
		if got := takesBoundsOff(tc.rule); got != tc.refused {
			t.Errorf("%s: refused %t, want %t", name, got, tc.refused)
		}
	}
}

func TestBindingsOfTenants(t *testing.T) {
	const where = "project-a-ns-kibaship-com"
	for name, tc := range map[string]struct {
		subject rbacv1.Subject
		tenant  bool
	}{
		"an account of it":     {rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: where, Name: "a"}, true},
		"another's account":    {rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "ops", Name: "a"}, false},
		"of another Project":   {rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "project-b-ns-kibaship-com", Name: "a"}, true},
		"all of another's":     {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:project-b-ns-kibaship-com"}, true},
		"its name as a user":   {rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + where + ":a"}, true},
		"all of its accounts":  {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + where}, true},
		"all accounts":         {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"}, true},
		"every user":           {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "system:authenticated"}, true},
		"administrators":       {rbacv1.Subject{Kind: rbacv1.GroupKind, Name: "admins"}, false},
		"a longer name's user": {rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:" + where + "-b:a"}, false},
		"an account elsewhere": {rbacv1.Subject{Kind: rbacv1.UserKind, Name: "system:serviceaccount:ops:a"}, false},
	} {
		if got := ofTenants(&rbacv1.RoleBinding{Subjects: []rbacv1.Subject{tc.subject}}); got != tc.tenant {
			t.Errorf("%s: of a tenant %t, want %t", name, got, tc.tenant)
		}
	}
}

func TestPoliciesThatOpenMoreThanTheBounds(t *testing.T) {
	in, out := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	all := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in, out}, Ingress: make([]networkingv1.NetworkPolicyIngressRule, 1), Egress: make([]networkingv1.NetworkPolicyEgressRule, 1)}
	none := networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{in, out}}
	outbound, unused := none, none
	outbound.Egress = all.Egress
	unused.PolicyTypes, unused.Egress = []networkingv1.PolicyType{in}, all.Egress
	for name, tc := range map[string]struct {
		spec   networkingv1.NetworkPolicySpec
		labels map[string]string
		opens  bool
	}{
		"everything":           {all, nil, true},
		"nothing":              {none, nil, false},
		"outbound":             {outbound, nil, true},
		"rules without a type": {unused, nil, false},
		"an administrator's":   {all, map[string]string{kibashipv1.LabelAllowed: "true"}, false},
		"marked as ours":       {all, map[string]string{kibashipv1.LabelManagedBy: kibashipv1.ManagedBy}, true},
	} {
		if got := opens(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, Spec: tc.spec}); got != tc.opens {
			t.Errorf("%s: opens %t, want %t", name, got, tc.opens)
		}
	}
}

func TestTheMessageNamesSomeBindings(t *testing.T) {
	if boundsProblem("a", nil) != nil {
		t.Error("a problem without a binding")
	}
	p := boundsProblem("a", []string{"g", "f", "e", "d", "c", "b", "a"})
	if !strings.Contains(p.Message, "a, b, c, d, e and 2 more") || p.Class != outcome.External || p.Err == nil {
		t.Errorf("%+v", p)
	}
}

func TestAClassGivesTheLimitsThatAProjectDoesNotSet(t *testing.T) {
	r := &Reconciler{Config: config.KibaShip{PodSecurity: config.PodSecurityPrivileged}}
	limits := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(cpu)}
	}
	class := &kibashipv1.ProjectClass{Spec: kibashipv1.ProjectClassSpec{Quota: limits("2"), ContainerLimits: &kibashipv1.ContainerLimits{Max: limits("1")}}}
	p := &kibashipv1.Project{Spec: kibashipv1.ProjectSpec{Class: "basic"}}
	spec := r.effectiveSpec(p, class)
	if !equality.Semantic.DeepEqual(spec.Quota, limits("2")) || spec.ContainerLimits != class.Spec.ContainerLimits || !bounded(spec) {
		t.Errorf("with nothing of its own it has %+v", spec)
	}
	p.Spec.Quota, p.Spec.ContainerLimits = limits("8"), &kibashipv1.ContainerLimits{Max: limits("4")}
	if spec = r.effectiveSpec(p, class); !equality.Semantic.DeepEqual(spec.Quota, limits("8")) || spec.ContainerLimits != p.Spec.ContainerLimits {
		t.Errorf("with limits of its own it has %+v", spec)
	}
	p = &kibashipv1.Project{Spec: kibashipv1.ProjectSpec{Class: "gone"}}
	p.Name, p.Labels = "shop", map[string]string{kibashipv1.LabelUUID: "00000000-0000-0000-0000-000000000001"}
	problem := check(p, Observed{Classes: []string{"basic", "pro"}}).First()
	if problem == nil || problem.Reason != kibashipv1.ReasonClassNotFound || !strings.Contains(problem.Message, "basic, pro") || !strings.Contains(problem.Message, "spec.class") {
		t.Errorf("a class that does not exist is %+v", problem)
	}
}

// An account with all rights in a namespace without a Pod Security level is root on the nodes.
func TestProjectsHaveALevelOfPodSecurity(t *testing.T) {
	for setting, want := range map[string]string{"": "baseline", "baseline": "baseline", "restricted": "restricted", "privileged": ""} {
		var cfg config.KibaShip
		env := func(name string) string { return map[string]string{"PROJECT_POD_SECURITY": setting}[name] }
		if _, err := settings.Load("", []settings.Section{cfg.Section()}, nil, env, nil); err != nil {
			t.Fatal(err)
		}
		r := &Reconciler{Config: cfg}
		p := &kibashipv1.Project{}
		in := r.inputs(p, Observed{Spec: r.effectiveSpec(p, nil)})
		if got := namespace(in).Labels["pod-security.kubernetes.io/enforce"]; got != want {
			t.Errorf("PROJECT_POD_SECURITY=%s: the level is %q, want %q", setting, got, want)
		}
		if all := slices.Contains(adminRole(in).Rules[0].Verbs, rbacv1.VerbAll); all != (want == "") {
			t.Errorf("PROJECT_POD_SECURITY=%s: the account has all rights: %v", setting, all)
		}
		p.Spec.PodSecurity = kibashipv1.PodSecurityPrivileged
		if got := namespace(r.inputs(p, Observed{Spec: r.effectiveSpec(p, nil)})).Labels["pod-security.kubernetes.io/enforce"]; got != "privileged" {
			t.Errorf("PROJECT_POD_SECURITY=%s: a Project that asks for privileged gets %q", setting, got)
		}
	}
}
