package main

var _ = allow("usvc-dev.developer.microsoft.com", map[string][]string{
	"cluster: containernetworks.usvc-dev.developer.microsoft.com":                        {"list", "patch", "watch"},
	"cluster: containernetworks/status.usvc-dev.developer.microsoft.com":                 {"patch"},
	"cluster: containernetworks/finalizers.usvc-dev.developer.microsoft.com":             {"update"},
	"cluster: containernetworktunnelproxies.usvc-dev.developer.microsoft.com":            {"list", "patch", "watch"},
	"cluster: containernetworktunnelproxies/status.usvc-dev.developer.microsoft.com":     {"patch"},
	"cluster: containernetworktunnelproxies/finalizers.usvc-dev.developer.microsoft.com": {"update"},
	"cluster: namespaces": own,
	"cluster: nodes":      see,
	"cluster: pods":       see,
	"cluster: services":   see,
	"cluster: networkpolicies.networking.k8s.io": see,
	// Whether the API server limits what RBAC cannot.
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-fence":                      see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-fence":                see,
	"cluster: validatingadmissionpolicies.admissionregistration.k8s.io/berg-operator-tunnel-confined-pods":       see,
	"cluster: validatingadmissionpolicybindings.admissionregistration.k8s.io/berg-operator-tunnel-confined-pods": see,
	// The operator binds to itself, in the namespace of each network, the one role with the rest:
	// it has no right to Secrets or to create pods elsewhere.
	"cluster: rolebindings.rbac.authorization.k8s.io":                              own,
	"cluster: clusterroles.rbac.authorization.k8s.io/berg-operator-tunnel-network": {"bind"},
})
