package environment

import (
	"errors"
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ruleOf reads "<groups> <resources> <verbs>", each a comma-separated list; core is
// the group without a name.
func ruleOf(text string) rbacv1.PolicyRule {
	parts := strings.Fields(text)
	lists := make([][]string, len(parts))
	for i, part := range parts {
		lists[i] = strings.Split(strings.ReplaceAll(part, "core", ""), ",")
	}
	return rbacv1.PolicyRule{APIGroups: lists[0], Resources: lists[1], Verbs: lists[2]}
}

const (
	rbacAPI  = "rbac.authorization.k8s.io"
	authnAPI = "authentication.k8s.io"
)

// Every combination that is rejected, and the nearest that is accepted.
func TestRulesThatLetRightsGrow(t *testing.T) {
	for _, tc := range []struct{ rejected, accepted string }{
		// Role bindings: each verb that writes, each resource, each way to say all.
		{rbacAPI + " rolebindings create", rbacAPI + " rolebindings get"},
		{rbacAPI + " rolebindings update", rbacAPI + " rolebindings list"},
		{rbacAPI + " rolebindings patch", rbacAPI + " rolebindings watch"},
		{rbacAPI + " rolebindings delete", "apps rolebindings delete"},
		{rbacAPI + " rolebindings deletecollection", "core pods deletecollection"},
		{rbacAPI + " rolebindings *", rbacAPI + " rolebindings get,list,watch"},
		{rbacAPI + " clusterrolebindings create", rbacAPI + " clusterrolebindings get"},
		{rbacAPI + " clusterrolebindings deletecollection", rbacAPI + " clusterrolebindings watch"},
		{rbacAPI + " * create", rbacAPI + " * get,list,watch"},
		{"* rolebindings create", "* rolebindings get"},
		{"apps," + rbacAPI + " deployments,rolebindings get,patch", "apps," + rbacAPI + " deployments,rolebindings get"},
		// Roles.
		{rbacAPI + " roles create", rbacAPI + " roles get"},
		{rbacAPI + " roles update", "apps roles update"},
		{rbacAPI + " roles patch", rbacAPI + " roles list"},
		{rbacAPI + " clusterroles delete", rbacAPI + " clusterroles watch"},
		{rbacAPI + " clusterroles deletecollection", rbacAPI + " clusterroles get"},
		{rbacAPI + " roles bind", rbacAPI + " pods bind"},
		{rbacAPI + " clusterroles bind", "core clusterroles bind"},
		{rbacAPI + " roles escalate", rbacAPI + " pods escalate"},
		{rbacAPI + " clusterroles escalate", "core clusterroles escalate"},
		{rbacAPI + " rolebindings bind", rbacAPI + " other bind"},
		{rbacAPI + " clusterrolebindings escalate", rbacAPI + " other escalate"},
		{rbacAPI + " clusterroles *", rbacAPI + " clusterroles get,list,watch"},
		{"* * bind", "* pods bind"},
		// Impersonation.
		{"core users impersonate", "core pods impersonate"},
		{"core groups impersonate", "apps groups impersonate"},
		{"core serviceaccounts impersonate", "core serviceaccounts get,create,update,patch,delete"},
		{"core serviceaccounts *", "core services *"},
		{"core * impersonate", "core pods,services impersonate"},
		{"* users impersonate", "apps users impersonate"},
		{authnAPI + " uids impersonate", authnAPI + " tokenreviews impersonate"},
		{authnAPI + " userextras impersonate", authnAPI + " userextras get"},
		{authnAPI + " userextras/scopes impersonate", authnAPI + " userextras/scopes get"},
		{authnAPI + " */scopes impersonate", "apps */scopes impersonate"},
		{authnAPI + " * *", authnAPI + " tokenreviews *"},
		{authnAPI + " serviceaccounts impersonate", authnAPI + " serviceaccounts get"},
		{authnAPI + " users impersonate:user-info", authnAPI + " users get"},
		{"core pods impersonate-on:serviceaccount:list", "core pods list"},
		// Tokens.
		{"core serviceaccounts/token create", "core serviceaccounts/token get"},
		{"core */token create", "core */log create"},
		{"* serviceaccounts/token *", "apps serviceaccounts/token *"},
		{"core pods/exec,serviceaccounts/token create", "core pods/exec create"},
		// All of everything, and the most that is accepted.
		{"* * *", "* pods *"},
		{"core * *", "core secrets *"},
		{"core * create", "core * get,list,watch,update,patch,delete"},
	} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "platform"}}
		role.Rules = []rbacv1.PolicyRule{ruleOf("core pods get"), ruleOf(tc.rejected)}
		err := validateClusterRole(role)
		if !errors.Is(err, ErrSecurityViolation) || !strings.Contains(err.Error(), "security violation") ||
			!strings.Contains(err.Error(), "ClusterRole platform") || !strings.Contains(err.Error(), "rules[1]") {
			t.Errorf("%s: error %v", tc.rejected, err)
		}
		role.Rules[1].ResourceNames = []string{"one"}
		if err := validateClusterRole(role); err == nil {
			t.Errorf("%s: accepted for one name", tc.rejected)
		}
		role.Rules[1] = ruleOf(tc.accepted)
		if err := validateClusterRole(role); err != nil {
			t.Errorf("%s: %v", tc.accepted, err)
		}
	}
}

func TestRolesWhoseRulesAreNotTheirOwn(t *testing.T) {
	aggregated := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}
	if err := validateClusterRole(aggregated); !errors.Is(err, ErrSecurityViolation) || !strings.Contains(err.Error(), "aggregationRule") {
		t.Errorf("an aggregated role: %v", err)
	}
	for label, ok := range map[string]bool{
		"rbac.authorization.k8s.io/aggregate-to-admin":    false,
		"rbac.authorization.k8s.io/aggregate-to-anything": false,
		"rbac.authorization.k8s.io/autoupdate":            true,
		"aggregate-to-admin":                              true,
	} {
		// The value does not count: upstream controllers read the value, but people read the key.
		for _, value := range []string{"true", "false", ""} {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: value}}}
			if err := validateClusterRole(role); (err == nil) != ok {
				t.Errorf("%s=%q: error %v, want accepted: %v", label, value, err, ok)
			}
		}
	}
}

func TestNoRulesAreNoDanger(t *testing.T) {
	if err := validateClusterRole(&rbacv1.ClusterRole{Rules: []rbacv1.PolicyRule{{}, {NonResourceURLs: []string{"*"}, Verbs: []string{"*"}}}}); err != nil {
		t.Error(err)
	}
}

// The operator binds the role of its own manifests.
func TestThePlatformsRoleIsAccepted(t *testing.T) {
	text, err := os.ReadFile("../../../config/quix/platform/platform_role.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		t.Fatal(err)
	}
	if len(role.Rules) < 5 || role.Name != testConfig(t, nil).ClusterRoleName {
		t.Errorf("role %s of %d rules", role.Name, len(role.Rules))
	}
	if err := validateClusterRole(role); err != nil {
		t.Error(err)
	}
}
