// Package naming holds all names of KibaShip: the names of objects that belong to a Project, and
// the names of Applications and Deployments, which contain the name of their Project.
package naming

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	kitnaming "github.com/bergctf/berg-operator/internal/kit/naming"
)

const (
	prefix     = "project-"
	suffix     = "-kibaship-com"
	app        = "-app-"
	deployment = "-deployment-"
)

// MaxProject is how long the name of a Project may be: its namespace's has 63 characters.
const MaxProject = 63 - len(prefix) - len("-ns"+suffix)

// TektonNamespace is where Tekton is installed, TasksReader the Role there that all Projects
// share.
const (
	TektonNamespace = "tekton-pipelines"
	TasksReader     = "tekton-tasks-reader"
)

// Slug is the form of a name's parts.
var Slug = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// The patterns of names, as messages show them.
const (
	ApplicationPattern = `^project-[a-z0-9]([a-z0-9-]*[a-z0-9])?-app-[a-z0-9]([a-z0-9-]*[a-z0-9])?-kibaship-com$`
	DeploymentPattern  = `^project-[a-z0-9]([a-z0-9-]*[a-z0-9])?-app-[a-z0-9]([a-z0-9-]*[a-z0-9])?-deployment-[a-z0-9]([a-z0-9-]*[a-z0-9])?-kibaship-com$`
)

var (
	applicationName = regexp.MustCompile(ApplicationPattern)
	deploymentName  = regexp.MustCompile(DeploymentPattern)
)

// Namespace returns the name of a Project's namespace.
func Namespace(project string) string { return prefix + project + "-ns" + suffix }

// ServiceAccount returns the name of a Project's ServiceAccount.
func ServiceAccount(project string) string { return prefix + project + "-sa" + suffix }

// AdminRole returns the name of the Role of that ServiceAccount in the namespace.
func AdminRole(project string) string { return prefix + project + "-admin-role" + suffix }

// AdminBinding returns the name of the RoleBinding of that Role.
func AdminBinding(project string) string { return prefix + project + "-admin-binding" + suffix }

// OperatorBinding returns the name of the RoleBinding by which the operator itself may work in
// the namespace.
func OperatorBinding(project string) string { return prefix + project + "-operator-binding" + suffix }

// TektonBinding returns the name of a Project's RoleBinding in the namespace of Tekton.
func TektonBinding(project string) string { return prefix + project + "-tekton-binding" + suffix }

// Limits returns the name of a Project's ResourceQuota, LimitRange and NetworkPolicy.
func Limits(project string) string { return prefix + project + "-limits" + suffix }

// WebhookSecret returns the name of the Secret of an Application's webhook.
func WebhookSecret(application string) string {
	return kitnaming.Within(strings.TrimSuffix(application, suffix)+"-webhook"+suffix, validation.DNS1123SubdomainMaxLength)
}

// PushedBranch returns the name of the Deployment that builds a branch after pushes. A branch whose name is no part of a name gets a
// hash, so that two branches never have the same Deployment. The same branch always has the same name, so each push to it changes
// one Deployment.
func PushedBranch(application, branch string) string {
	slug := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(branch)), "-")
	if slug != branch || len(slug) > maxBranch {
		slug = strings.TrimLeft(kitnaming.Hashed(slug, branch, maxBranch), "-")
	}
	return strings.TrimSuffix(application, suffix) + deployment + "push-" + slug + suffix
}

// maxBranch is how many characters of the name of a Deployment stand for a branch.
const maxBranch = 40

// PushedTag returns the name of the Deployment that builds tags after pushes. All tags share one Deployment, whose spec names the
// latest.
func PushedTag(application string) string {
	return strings.TrimSuffix(application, suffix) + deployment + "pushed-tag" + suffix
}

// ParseNamespace returns the name of the Project whose namespace this is, by its name alone. The namespace may still belong to
// another owner: the status of the Project says whether it has it.
func ParseNamespace(namespace string) (project string, ok bool) {
	rest, ok := strings.CutPrefix(namespace, prefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "-ns"+suffix)
}

// IsApplication reports whether a name has the pattern of an Application's.
func IsApplication(name string) bool { return applicationName.MatchString(name) }

// IsDeployment reports whether a name has the pattern of a Deployment's.
func IsDeployment(name string) bool { return deploymentName.MatchString(name) }

// Application returns the slug of an Application by the Project that it refers to: a slug may
// itself contain "-app-", so the name alone does not show where the slug begins.
func Application(name, project string) (slug string, ok bool) {
	return between(name, prefix+project+app)
}

// Deployment returns the slug of a Deployment by the Application that it refers to.
func Deployment(name, application string) (slug string, ok bool) {
	stem, ok := strings.CutSuffix(application, suffix)
	if !ok || !IsApplication(application) {
		return "", false
	}
	return between(name, stem+deployment)
}

func between(name, begin string) (slug string, ok bool) {
	rest, ok := strings.CutPrefix(name, begin)
	if !ok {
		return "", false
	}
	slug, ok = strings.CutSuffix(rest, suffix)
	return slug, ok && Slug.MatchString(slug)
}
