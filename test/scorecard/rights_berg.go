package main

var _ = allow("berg.norelect.ch", map[string][]string{
	"namespace: events.events.k8s.io":                     {"create"}, // of the gate and the platform API, about settings
	"cluster: challenges/status.berg.norelect.ch":         {"patch"},
	"cluster: challenges.berg.norelect.ch":                {"get", "list", "watch"}, // get: as it is when a rollout is asked for
	"cluster: challengeinstances.berg.norelect.ch":        {"delete", "list", "patch", "watch"},
	"cluster: challengeinstances/status.berg.norelect.ch": {"patch"},
	// The objects of an instance.
	"cluster: configmaps":                                                own,
	"cluster: namespaces":                                                own,
	"cluster: services":                                                  own,
	"cluster: deployments.apps":                                          own,
	"cluster: poddisruptionbudgets.policy":                               own,
	"cluster: networkpolicies.networking.k8s.io":                         own,
	"cluster: ciliumnetworkpolicies.cilium.io":                           own,
	"cluster: httproutes.gateway.networking.k8s.io":                      own,
	"cluster: tlsroutes.gateway.networking.k8s.io":                       own,
	"cluster: secrets":                                                   {"create"},                  // the copy of the pull secret
	"cluster: pods":                                                      {"delete", "list", "watch"}, // delete: with a grace period, before their policies
	"cluster: clusterroles.rbac.authorization.k8s.io/berg-operator-berg": {"get"},                     // goes when the operator is removed
	"cluster: daemonsets.apps/cilium":                                    see,                         // whether agents of Cilium run
	// Whether players reach an instance.
	"cluster: gateways.gateway.networking.k8s.io":       see,
	"cluster: gatewayclasses.gateway.networking.k8s.io": see,
	"cluster: endpointslices.discovery.k8s.io":          see,
	// Whether optional APIs are there.
	"cluster: customresourcedefinitions.apiextensions.k8s.io": see,
	// Why a node refuses a pod stands in events alone.
	"cluster: events.events.k8s.io": see,
	// In the operator's own namespace.
	"namespace: secrets":     {"delete", "get", "list", "patch"}, // the pull secret, and what instances were started with
	"namespace: pods":        {"get"},                            // the check of isolation looks at the operator itself
	"namespace: pods/status": {"patch"},                          // what the check of isolation found
})
