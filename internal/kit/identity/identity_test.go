package identity

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestSubjectOf(t *testing.T) {
	for username, want := range map[string]rbacv1.Subject{
		"system:serviceaccount:berg:operator": {Kind: "ServiceAccount", Namespace: "berg", Name: "operator"},
		"alice":                               {Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "alice"},
		// Not a ServiceAccount, since it names no namespace.
		"system:serviceaccount:berg": {Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "system:serviceaccount:berg"},
	} {
		if got := parseSubject(username); got != want {
			t.Errorf("%s is %+v, want %+v", username, got, want)
		}
	}
}
