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

func TestDeploymentsOfPushesHaveNamesOfTheirOwn(t *testing.T) {
	const app = "project-shop-app-web-kibaship-com"
	seen := map[string]string{PushedTag(app): "the tag"}
	for _, branch := range []string{
		"main", "Main", "feature/login", "feature-login", "feature_login", "a", "---", "_", "1.0", "a-", strings.Repeat("x", 255), strings.Repeat("x", 254) + "y", "d\u00e9j\u00e0",
	} {
		name := PushedBranch(app, branch)
		if _, ok := Deployment(name, app); !ok || !IsDeployment(name) || len(name) > 120 {
			t.Errorf("%q: %s is no name of a Deployment", branch, name)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%q and %q are both %s", branch, other, name)
		}
		seen[name] = branch
	}
	if got := PushedBranch(app, "main"); got != "project-shop-app-web-deployment-push-main-kibaship-com" {
		t.Error(got)
	}
	if got := WebhookSecret(app); got != "project-shop-app-web-webhook-kibaship-com" {
		t.Error(got)
	}
}
