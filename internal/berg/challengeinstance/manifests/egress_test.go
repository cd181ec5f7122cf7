package manifests_test

import (
	"os"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
)

// installed is what an organiser applies.
const installed = "../../../../deploy/install.yaml"

// Instances are Running when the operator has connected to their programs and node ports, so its own network policy must
// allow that.
func TestOperatorMayConnectToInstances(t *testing.T) {
	text, err := os.ReadFile(installed)
	if err != nil {
		t.Fatal(err)
	}
	namespace := labels.Set{bergv1.LabelComponent: bergv1.ComponentNamespace}
	pods, nodes := false, false
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var policy networkingv1.NetworkPolicy
		if !strings.Contains(document, "kind: NetworkPolicy\n") {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &policy); err != nil {
			t.Fatal(err)
		}
		for _, rule := range policy.Spec.Egress {
			for _, peer := range rule.To {
				selector, err := metav1.LabelSelectorAsSelector(peer.NamespaceSelector)
				pods = pods || err == nil && selector.Matches(namespace) && allows(rule.Ports, 1, 65535)
			}
			nodes = nodes || len(rule.To) == 0 && allows(rule.Ports, 30000, 32767)
		}
	}
	if !pods {
		t.Errorf("%s lets the operator connect to no port of pods in namespaces with %s", installed, namespace)
	}
	if !nodes {
		t.Errorf("%s lets the operator connect to no node port", installed)
	}
}

// allows reports whether a rule has exactly a range of TCP ports.
func allows(ports []networkingv1.NetworkPolicyPort, from, to int32) bool {
	if len(ports) != 1 || ports[0].Port == nil || ports[0].EndPort == nil || ports[0].Protocol == nil {
		return false
	}
	return ports[0].Port.IntVal == from && *ports[0].EndPort == to && *ports[0].Protocol == "TCP"
}
