package main

var _ = allow("apps.hexactf.io", map[string][]string{
	"cluster: challenges.apps.hexactf.io":            {"list", "patch", "watch", "delete"},
	"cluster: challenges/status.apps.hexactf.io":     {"patch"},
	"cluster: challenges/finalizers.apps.hexactf.io": {"update"}, // to own what a challenge consists of
	// That a definition is missing is confirmed by the API server before the platform is told.
	"cluster: challengedefinitions.apps.hexactf.io": {"get", "list", "watch"},
	// What a challenge owns is deleted by Kubernetes with it.
	"cluster: services":                          kept,
	"cluster: deployments.apps":                  kept,
	"cluster: networkpolicies.networking.k8s.io": own, // the last step of an end
	"cluster: pods":                              see,
	"namespace: leases.coordination.k8s.io":      {"create", "delete", "list"}, // ends that the broker has not acknowledged
})

var kept = []string{"create", "get", "list", "update", "watch"}
