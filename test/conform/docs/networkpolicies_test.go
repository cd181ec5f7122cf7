package docs

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// isPolicy matches an object, and the heading of one in a golden file.
var isPolicy = regexp.MustCompile(`(?m)^(kind:|#) NetworkPolicy$`)

// admitted returns what the network policies of a file say about namespaces that may come in.
func admitted(t *testing.T, text []byte) (all []*metav1.LabelSelector) {
	t.Helper()
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var policy networkingv1.NetworkPolicy
		if !isPolicy.Match(document) || yaml.Unmarshal(document, &policy) != nil {
			continue // of another kind, or a template
		}
		for _, rule := range policy.Spec.Ingress {
			for _, peer := range rule.From {
				if peer.NamespaceSelector != nil {
					all = append(all, peer.NamespaceSelector)
				}
			}
		}
	}
	return all
}

// foreignLabels are the labels of a selector that a tenant may give to its namespace. The API server alone sets the name.
func foreignLabels(s *metav1.LabelSelector) (all []string) {
	for label := range s.MatchLabels {
		all = append(all, label)
	}
	for _, e := range s.MatchExpressions {
		if e.Operator != metav1.LabelSelectorOpNotIn { // a tenant may only keep itself out
			all = append(all, e.Key)
		}
	}
	return slices.DeleteFunc(all, func(label string) bool { return label == corev1.LabelMetadataName })
}

// A tenant labels its own namespace as it likes: a policy that admits a label admits every tenant.
func TestNetworkPoliciesAdmitNamespacesByTheirNames(t *testing.T) {
	found := 0
	check := func(path string, text []byte) {
		for _, selector := range admitted(t, text) {
			found++
			if labels := foreignLabels(selector); len(labels) > 0 {
				t.Errorf("%s admits namespaces by the label %s, which a tenant may set", path, strings.Join(labels, ", "))
			}
		}
	}
	for _, folder := range []string{"config", "internal", "docs", "test/samples"} {
		err := filepath.WalkDir(filepath.Join("../../..", folder), func(path string, entry fs.DirEntry, err error) error {
			extension := filepath.Ext(path)
			if err != nil || entry.IsDir() || extension != ".yaml" && extension != ".md" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if extension == ".yaml" {
				check(path, text)
				return nil
			}
			for n, block := range bytes.Split(text, []byte("```")) {
				if body, isYAML := bytes.CutPrefix(block, []byte("yaml\n")); n%2 == 1 && isYAML {
					check(path, body)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 4 {
		t.Errorf("only %d namespaces are admitted anywhere", found)
	}
	if labelled := admitted(t, []byte(`kind: NetworkPolicy
spec: {ingress: [{from: [{namespaceSelector: {matchLabels: {platform: "true"}}}]}]}`)); len(labelled) != 1 || len(foreignLabels(labelled[0])) != 1 {
		t.Error("a label is not found")
	}
}
