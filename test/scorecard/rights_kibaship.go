package main

var _ = allow("platform.operator.kibaship.com", map[string][]string{
	"cluster: projects.platform.operator.kibaship.com":            {"list", "patch", "watch"},
	"cluster: projects/status.platform.operator.kibaship.com":     {"patch"},
	"cluster: projects/finalizers.platform.operator.kibaship.com": {"update"}, // to own a namespace
	"cluster: projectclasses.platform.operator.kibaship.com":      see,
	"cluster: applications.platform.operator.kibaship.com":        {"get", "list", "patch", "watch"},
	"cluster: applications/status.platform.operator.kibaship.com": {"patch"},
	"cluster: deployments.platform.operator.kibaship.com":         {"list", "delete", "patch", "watch"},
	"cluster: deployments/status.platform.operator.kibaship.com":  {"patch"},
	// To own Pipelines and their runs, which are written by the right in the namespace.
	"cluster: deployments/finalizers.platform.operator.kibaship.com": {"update"},
	"cluster: pipelines.tekton.dev":                                  {"list", "watch"},
	"cluster: pipelineruns.tekton.dev":                               {"list", "watch"},
	"cluster: taskruns.tekton.dev":                                   {"list", "watch"},
	"cluster: storageclasses.storage.k8s.io":                         {"get", "list"},
	"namespace: pods":                                                {"get"}, // whose image pushes: the operator's own
	"cluster: namespaces":                                            own,
	// What is in the namespace of a Project is written by the right that the operator gives
	// itself there, by the first of the two roles that it may bind.
	"cluster: rolebindings.rbac.authorization.k8s.io":                             own,
	"cluster: roles.rbac.authorization.k8s.io":                                    {"get", "list", "watch"},
	"cluster: clusterroles.rbac.authorization.k8s.io":                             see,
	"cluster: clusterroles.rbac.authorization.k8s.io/kibaship-project-admin":      {"bind"},
	"cluster: clusterroles.rbac.authorization.k8s.io/kibaship-tekton-integration": {"bind"},
	"cluster: serviceaccounts":                                                    see,
	"cluster: resourcequotas":                                                     see,
	"cluster: limitranges":                                                        see,
	"cluster: networkpolicies.networking.k8s.io":                                  see,
	"cluster: customresourcedefinitions.apiextensions.k8s.io":                     see,
	// Whether the API server limits what RBAC cannot.
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-fence":                        see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-fence":                  see,
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-kibaship-tenants":             see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-kibaship-tenants":       see,
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-kibaship-confined-pods":       see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-kibaship-confined-pods": see,
})
