package project

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/apply"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func plainInputs() Inputs {
	return Inputs{
		UID: "7c0ffee0-1111-4222-8333-444455556666", Name: "mystore",
		UUID:     "6f6f2c9e-3b1a-4f0e-9a51-0d7c6a4c2b10",
		Admin:    kibashipv1.ProjectAdmin,
		Operator: rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "operator", Name: "manager"},
	}
}

func boundedInputs() Inputs {
	in := plainInputs()
	in.WorkspaceUUID = "0f0e0d0c-0b0a-4908-8706-050403020100"
	in.Spec = kibashipv1.ProjectSpec{
		PodSecurity: kibashipv1.PodSecurityBaseline,
		Quota:       corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")},
		ContainerLimits: &kibashipv1.ContainerLimits{
			Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			Max:            corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		},
		NetworkPolicy: &kibashipv1.NetworkPolicy{IngressFrom: []string{"ingress"}, Egress: kibashipv1.EgressNone},
		Volumes:       kibashipv1.Volumes{MaxStorageSize: "100Gi"},
	}
	return in
}

func TestPlan(t *testing.T) {
	for name, in := range map[string]Inputs{"plain": plainInputs(), "bounded": boundedInputs()} {
		t.Run(name, func(t *testing.T) {
			objects := []any{namespace(in), operatorBinding(in), serviceAccount(in), adminRole(in), adminBinding(in), tektonBinding(in)}
			for _, o := range quotas(in) {
				objects = append(objects, o)
			}
			for _, o := range limitRanges(in) {
				objects = append(objects, o)
			}
			for _, o := range networkPolicies(in) {
				objects = append(objects, o)
			}
			var got bytes.Buffer
			for _, o := range objects {
				text, err := yaml.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				got.WriteString("---\n")
				got.Write(text)
			}
			path := "testdata/" + name + ".golden.yaml"
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("the plan differs from %s: go test -update rewrites it\n%s", path, diff)
			}
		})
	}
}

// A bounded Role holds nothing by which its bounds, or its own limits, could be taken off.
func TestABoundedRoleCannotTakeItsBoundsOff(t *testing.T) {
	writes := []string{"create", "update", "patch", "delete", "deletecollection", "*"}
	kept := map[string][]string{
		"":                          {"namespaces", "resourcequotas", "limitranges", "namespaces/finalize", "namespaces/status", "resourcequotas/status", "*"},
		"networking.k8s.io":         {"networkpolicies", "*"},
		"rbac.authorization.k8s.io": {"*"},
		"*":                         {"*"},
	}
	for _, rule := range adminRole(boundedInputs()).Rules {
		for _, verb := range []string{"bind", "escalate", "impersonate", "*"} {
			if slices.Contains(rule.Verbs, verb) {
				t.Errorf("a rule allows %s: %v", verb, rule)
			}
		}
		if !slices.ContainsFunc(writes, func(v string) bool { return slices.Contains(rule.Verbs, v) }) {
			continue
		}
		for _, group := range rule.APIGroups {
			for _, r := range kept[group] {
				if slices.Contains(rule.Resources, r) {
					t.Errorf("a rule allows to write %s of %q: %v", r, group, rule)
				}
			}
		}
	}
	if got := adminRole(plainInputs()).Rules; len(got) != 1 || got[0].Resources[0] != "*" {
		t.Errorf("a Role that is not bounded grants %v", got)
	}
}

// The kit names the annotations after the domain and the owner.
func TestTheKitsAnnotations(t *testing.T) {
	if got := OwnershipLabels.Annotation(); got != kibashipv1.AnnotationProjectUID {
		t.Errorf("the kit writes the UID to %s", got)
	}
	if got := apply.ChecksumAnnotation(OwnershipLabels.Annotation()); got != kibashipv1.AnnotationChecksum {
		t.Errorf("the kit writes the checksum to %s", got)
	}
}
