package cluster

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// With a wrong resource, the API server would answer that the object was not found.
func TestMapperKnowsTheResourceOfEveryKind(t *testing.T) {
	_, mapper := kinds()
	for kind, want := range map[schema.GroupVersionKind]string{
		{Group: "berg.norelect.ch", Version: "v1", Kind: "Challenge"}:                    "challenges",
		{Group: "berg.norelect.ch", Version: "v1", Kind: "ChallengeInstance"}:            "challengeinstances",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Gateway"}:             "gateways",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}:           "httproutes",
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "TLSRoute"}:            "tlsroutes",
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: "customresourcedefinitions",
		{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview"}:  "selfsubjectaccessreviews",
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"}:                     "leases",
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                               "deployments",
		{Group: "apps", Version: "v1", Kind: "ReplicaSet"}:                               "replicasets",
		{Version: "v1", Kind: "Pod"}:                                                     "pods",
		{Version: "v1", Kind: "Event"}:                                                   "events",
		{Version: "v1", Kind: "Secret"}:                                                  "secrets",
		{Version: "v1", Kind: "ConfigMap"}:                                               "configmaps",
		{Version: "v1", Kind: "Service"}:                                                 "services",
		{Version: "v1", Kind: "ResourceQuota"}:                                           "resourcequotas",
		{Version: "v1", Kind: "Namespace"}:                                               "namespaces",
		{Version: "v1", Kind: "Node"}:                                                    "nodes",
	} {
		found, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil || found.Resource.Resource != want {
			t.Errorf("%s is taken for %+v (%v), want %s", kind, found, err, want)
		}
	}
}
