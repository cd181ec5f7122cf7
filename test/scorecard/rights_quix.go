package main

var _ = allow("quix.io", map[string][]string{
	"cluster: environments.quix.io":            {"list", "patch", "watch"},
	"cluster: environments/status.quix.io":     {"patch"},
	"cluster: environments/finalizers.quix.io": {"update"}, // to own a namespace
	"cluster: namespaces":                      own,
	// Whether the kind is being deleted, with the Environments of another operator.
	"cluster: customresourcedefinitions.apiextensions.k8s.io/environments.quix.io": {"get"},
	// The binding of an environment, to the one role that the operator may bind.
	"cluster: rolebindings.rbac.authorization.k8s.io":                            own,
	"cluster: clusterroles.rbac.authorization.k8s.io":                            see,
	"cluster: clusterroles.rbac.authorization.k8s.io/quix-platform-account-role": {"bind"},
	// Whether the API server limits what RBAC cannot.
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-fence":       see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-fence": see,
})
