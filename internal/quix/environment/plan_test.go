package environment

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/internal/kit/apply"
	"github.com/bergctf/berg-operator/internal/kit/settings"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func testConfig(t testing.TB, overrides map[string]string) config.Quix {
	t.Helper()
	var cfg config.Quix
	_, err := settings.Load("", []settings.Section{cfg.Section()}, nil, func(name string) string { return overrides[name] }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func testInputs(t testing.TB) Inputs {
	env := &quixv1.Environment{
		ObjectMeta: metav1.ObjectMeta{UID: "7c0ffee0-1111-4222-8333-444455556666", Name: "team-a"},
		Spec: quixv1.EnvironmentSpec{
			ID:          "alpha",
			Labels:      map[string]string{"quix.io/team": "streaming"},
			Annotations: map[string]string{"quix.io/contact": "someone"},
		},
		Status: quixv1.EnvironmentStatus{
			NamespaceStatus:   &quixv1.ResourceStatus{ResourceName: "alpha-qdep"},
			RoleBindingStatus: &quixv1.ResourceStatus{ResourceName: "alpha-quix-crb"},
		},
	}
	return Inputs{Environment: env, Config: testConfig(t, nil)}
}

func TestPlan(t *testing.T) {
	var got bytes.Buffer
	in := testInputs(t)
	for _, object := range []any{namespace(in), roleBinding(in)} {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(text)
	}
	const path = "testdata/plan.golden.yaml"
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
}

func TestPodSecurityIsThatOfTheSetting(t *testing.T) {
	for level, want := range map[string]string{"": "baseline", "baseline": "baseline", "restricted": "restricted", "privileged": "privileged"} {
		in := testInputs(t)
		in.Config = testConfig(t, map[string]string{"ENVIRONMENT_POD_SECURITY": level})
		for _, mode := range []string{"enforce", "warn", "audit"} {
			if got := namespace(in).Labels["pod-security.kubernetes.io/"+mode]; got != want {
				t.Errorf("%q: %s is %q", level, mode, got)
			}
		}
	}
}

func TestMetadataIsGuarded(t *testing.T) {
	in := testInputs(t)
	in.Environment.Spec.Labels = map[string]string{
		"quix.io/ok": "1", "quix.io/": "bare", "other.io/x": "1", "plain": "1",
		quixv1.LabelManagedBy: "mine", quixv1.LabelEnvironmentID: "mine", quixv1.LabelEnvironmentName: "mine",
		quixv1.LabelPlatform: "mine", "kubernetes.io/metadata.name": "mine", "control-plane": "mine",
		"pod-security.kubernetes.io/enforce": "privileged",
	}
	in.Environment.Spec.Annotations = map[string]string{
		"quix.io/ok": "1", "quix.io/": "bare", "other.io/x": "1",
		quixv1.AnnotationCreatedBy: "mine", quixv1.AnnotationResourceName: "mine",
		quixv1.AnnotationUID: "mine", quixv1.AnnotationApplied: "mine", quixv1.AnnotationChecksum: "mine",
	}
	ns := namespace(in)
	if diff := cmp.Diff(map[string]string{
		"quix.io/ok":                "1",
		quixv1.LabelManagedBy:       "quix-environment-operator",
		quixv1.LabelEnvironmentID:   "alpha",
		quixv1.LabelEnvironmentName: "team-a",
		"ManagedBy":                 "Quix",

		"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/warn": "baseline", "pod-security.kubernetes.io/audit": "baseline",
	}, ns.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"quix.io/ok":                  "1",
		quixv1.AnnotationCreatedBy:    "quix-environment-operator",
		quixv1.AnnotationResourceName: "team-a",
	}, ns.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}

// Package ownership builds the annotations from the domain and the owner.
func TestOwnershipAnnotationsAreProtected(t *testing.T) {
	if got := ownershipLabels.Annotation(); got != quixv1.AnnotationUID {
		t.Errorf("the kit writes the UID to %s", got)
	}
	if got := apply.ChecksumAnnotation(ownershipLabels.Annotation()); got != quixv1.AnnotationChecksum {
		t.Errorf("the kit writes the checksum to %s", got)
	}
}

func TestLongNamesFitIntoLabels(t *testing.T) {
	in := testInputs(t)
	in.Environment.Name = strings.Repeat("long.", 50)
	for _, value := range namespace(in).Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("%q: %v", value, problems)
		}
	}
}

func TestSubjectsOfABinding(t *testing.T) {
	expected := rbacv1.Subject{Kind: "ServiceAccount", Name: "quix-platform-account", Namespace: "quix-environment"}
	other := rbacv1.Subject{Kind: "User", APIGroup: "rbac.authorization.k8s.io", Name: "auditor"}
	ref := roleBinding(testInputs(t)).RoleRef
	elsewhere := ref
	elsewhere.Name = "another"
	for name, tc := range map[string]struct {
		bound *rbacv1.RoleBinding
		want  []rbacv1.Subject
		off   []rbacv1.Subject
	}{
		"none yet":           {nil, []rbacv1.Subject{expected}, nil},
		"no subjects":        {&rbacv1.RoleBinding{RoleRef: ref}, []rbacv1.Subject{expected}, nil},
		"others too":         {&rbacv1.RoleBinding{RoleRef: ref, Subjects: []rbacv1.Subject{other, expected}}, []rbacv1.Subject{other, expected}, nil},
		"others instead":     {&rbacv1.RoleBinding{RoleRef: ref, Subjects: []rbacv1.Subject{other}}, []rbacv1.Subject{expected}, []rbacv1.Subject{other}},
		"another role bound": {&rbacv1.RoleBinding{RoleRef: elsewhere, Subjects: []rbacv1.Subject{other, expected}}, []rbacv1.Subject{expected}, []rbacv1.Subject{other}},
	} {
		in := testInputs(t)
		in.Bound = tc.bound
		binding := roleBinding(in)
		if diff := cmp.Diff(tc.want, binding.Subjects); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(tc.off, removedSubjects(in, binding), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: removed: %s", name, diff)
		}
	}
}
