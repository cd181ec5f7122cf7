package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

const log = `
{"stage":"ResponseStarted","verb":"watch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"pods","apiVersion":"v1"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"watch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"pods","apiVersion":"v1"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"get","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"secrets","namespace":"berg-operator-system","name":"registry","apiVersion":"v1"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"admin"},"impersonatedUser":{"username":"` + operatorUser + `"},"objectRef":{"resource":"challengeinstances","apiGroup":"berg.norelect.ch","subresource":"status","namespace":"berg","name":"a"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseStarted","verb":"watch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"daemonsets","apiGroup":"apps","namespace":"kube-system","name":"cilium"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"list","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"nodes","apiVersion":"v1"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"stage":"ResponseComplete","verb":"create","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"serviceaccounts","namespace":"project-a-ns-kibaship-com","name":"a"},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"b/c\" of ClusterRole \"kibaship-project-admin\" to ServiceAccount \"d\""}}
{"stage":"ResponseComplete","verb":"create","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"roles","namespace":"project-a-ns-kibaship-com","name":"a"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"stage":"ResponseStarted","verb":"watch","user":{"username":"` + operatorUser + `"},"objectRef":{"resource":"secrets","namespace":"upgraded","name":"key"},"annotations":{"authorization.k8s.io/decision":"allow","authorization.k8s.io/reason":"RBAC: allowed by RoleBinding \"b/upgraded\" of Role \"berg-operator.v0.0.1\" to User \"d\""}}
{"stage":"ResponseComplete","verb":"list","user":{"username":"another user"},"objectRef":{"resource":"nodes"},"annotations":{"note":"` + operatorUser + `"}}
`

func TestCompare(t *testing.T) {
	used := usage{}
	if err := used.add(strings.NewReader(log[1:])); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(used)
	if err != nil {
		t.Fatal(err)
	}
	again := usage{}
	if err := json.Unmarshal(raw, &again); err != nil || again.requests() != 5 {
		t.Fatalf("%v, %d requests in %s", err, again.requests(), raw)
	}
	watch := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"watch"}}
	status := rbacv1.PolicyRule{APIGroups: []string{"berg.norelect.ch"}, Resources: []string{"challengeinstances/status"}, Verbs: []string{"patch"}}
	secret := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"registry"}, Verbs: []string{"get"}}
	nodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}
	agents := rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"daemonsets"}, ResourceNames: []string{"cilium"}, Verbs: []string{"list", "watch"}}
	granted := func(own []rbacv1.PolicyRule, everywhere ...rbacv1.PolicyRule) grants {
		g := grants{}
		g.add(agents, false)
		for _, r := range own {
			g.add(r, true)
		}
		for _, r := range everywhere {
			g.add(r, false)
		}
		return g
	}
	for name, tc := range map[string]struct {
		granted grants
		want    []string
	}{
		"missing": {granted([]rbacv1.PolicyRule{secret}, watch, status), []string{"needed, and not granted: list nodes"}},
		"list for want of a watch that begins with a list": {granted([]rbacv1.PolicyRule{secret}, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"},
		}, status), []string{"needed, and not granted: list nodes"}},
		"unused": {granted([]rbacv1.PolicyRule{secret}, watch, status, nodes), []string{"granted, and never used: list nodes"}},
		"from elsewhere": {granted([]rbacv1.PolicyRule{secret}, watch), []string{
			"needed, and not granted: list nodes", "used, and granted by something else than config: patch challengeinstances/status.berg.norelect.ch",
		}},
		"too wide, but covering": {granted(nil, watch, status, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}), []string{
			"needed, and not granted: list nodes",
		}},
		"elsewhere only": {granted([]rbacv1.PolicyRule{secret, watch}, status), []string{
			"granted, and never used: watch pods in the operator's namespace", "needed, and not granted: list nodes",
			"used, and granted by something else than config: watch pods",
		}},
	} {
		if got := compare(tc.granted, again); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestGrants(t *testing.T) {
	all, err := readGrants("../../../config", usual)
	if err != nil {
		t.Fatal(err)
	}
	for right, want := range map[use]bool{
		{Verb: "create", Resource: "secrets"}:         true,
		{Verb: "get", Resource: "secrets", Own: true}: true,
		{Verb: "get", Resource: "secrets"}:            false,
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Name: "berg-operator.berg.norelect.ch", Own: true}: true,
		{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}:                                            true,
		{Verb: "create", Group: "berg.norelect.ch", Resource: "challengeinstances"}:                                           false, // of the editor role
	} {
		if all[right] != want {
			t.Errorf("%s: %t", right, all[right])
		}
	}
	asked, err := readGrants("../../../config", onRequest)
	if err != nil {
		t.Fatal(err)
	}
	if !asked[use{Verb: "create", Group: "berg.norelect.ch", Resource: "challengeinstances"}] {
		t.Error("who makes checks may not create instances")
	}
}
