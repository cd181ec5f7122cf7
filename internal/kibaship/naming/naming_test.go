package naming

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesOfTheContract(t *testing.T) {
	for got, want := range map[string]string{
		Namespace("mystore"):      "project-mystore-ns-kibaship-com",
		ServiceAccount("mystore"): "project-mystore-sa-kibaship-com",
		AdminRole("mystore"):      "project-mystore-admin-role-kibaship-com",
		AdminBinding("mystore"):   "project-mystore-admin-binding-kibaship-com",
		TektonBinding("mystore"):  "project-mystore-tekton-binding-kibaship-com",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	maxProject := strings.Repeat("a", MaxProject)
	if MaxProject != 39 || len(validation.IsDNS1123Label(Namespace(maxProject))) > 0 || len(validation.IsDNS1123Label(Namespace(maxProject+"a"))) == 0 {
		t.Errorf("the maximum length of a Project's name is %d characters", MaxProject)
	}
}

func TestProjectOfANamespace(t *testing.T) {
	for namespace, want := range map[string]string{
		"project-mystore-ns-kibaship-com":                   "mystore",
		"project-project-x-ns-kibaship-com-ns-kibaship-com": "project-x-ns-kibaship-com",
		"project-mystore-kibaship-com":                      "",
		"mystore-ns-kibaship-com":                           "",
		"default":                                           "",
	} {
		if got, ok := ParseNamespace(namespace); ok != (want != "") || ok && got != want {
			t.Errorf("%s is of %q (%v), want %q", namespace, got, ok, want)
		}
	}
}

// Slugs that hold the words between them are read by what they refer to.
func TestSlugs(t *testing.T) {
	for _, tc := range []struct {
		name, of, slug string
		ok             bool
	}{
		{"project-mystore-app-frontend-kibaship-com", "mystore", "frontend", true},
		{"project-my-app-store-app-x-kibaship-com", "my-app-store", "x", true},
		{"project-my-app-store-app-x-kibaship-com", "my", "store-app-x", true},
		{"project-mystore-app-kibaship-com-kibaship-com", "mystore", "kibaship-com", true},
		{"project-mystore-app-frontend-kibaship-com", "other", "", false},
		{"project-mystore-app--kibaship-com", "mystore", "", false},
		{"project-mystore-app-x-", "mystore", "", false},
		{"project-mystore-app-X-kibaship-com", "mystore", "", false},
	} {
		if slug, ok := Application(tc.name, tc.of); ok != tc.ok || ok && slug != tc.slug {
			t.Errorf("Application %s of %s: %q, %v", tc.name, tc.of, slug, ok)
		}
	}
	const app = "project-mystore-app-deployment-x-kibaship-com"
	for _, tc := range []struct {
		name, of, slug string
		ok             bool
	}{
		{"project-mystore-app-deployment-x-deployment-staging-kibaship-com", app, "staging", true},
		{"project-mystore-app-deployment-x-deployment-a-deployment-b-kibaship-com", app, "a-deployment-b", true},
		{"project-mystore-app-other-deployment-staging-kibaship-com", app, "", false},
		{"project-mystore-app-deployment-x-kibaship-com", app, "", false},
		{"project-mystore-app-x-deployment-staging-kibaship-com", "web", "", false},
	} {
		if slug, ok := Deployment(tc.name, tc.of); ok != tc.ok || ok && slug != tc.slug {
			t.Errorf("Deployment %s of %s: %q, %v", tc.name, tc.of, slug, ok)
		}
	}
}
