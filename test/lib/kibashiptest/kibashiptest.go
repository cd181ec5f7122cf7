// Package kibashiptest makes KibaShip projects, applications and deployments for the specs of
// every suite. What waits for them is in expect.
package kibashiptest

import (
	"context"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// NewName returns a name for a Project that no other spec uses.
func NewName() string { return "it-" + uuid.NewString()[:8] }

// Namespace returns the name of a Project's namespace, as the contract has it.
func Namespace(project string) string { return "project-" + project + "-ns-kibaship-com" }

// ApplicationName returns the name of an Application, as the contract has it.
func ApplicationName(project, app string) string {
	return "project-" + project + "-app-" + app + "-kibaship-com"
}

// Admin creates the ClusterRole by which the operator works in namespaces of Projects, as an
// administrator does.
func Admin(ctx context.Context) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kibashipv1.ProjectAdmin},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	Expect(client.IgnoreAlreadyExists(apiserver.Client.Create(ctx, role))).To(Succeed())
}

// NewProject returns a Project that is good and not created yet.
func NewProject(name string, modify ...func(*kibashipv1.Project)) *kibashipv1.Project {
	p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()},
	}}
	for _, m := range modify {
		m(p)
	}
	return p
}

// Project creates a Project. At the end of the spec it is deleted; the suite ends by waiting
// until all of them are gone.
func Project(ctx context.Context, name string, modify ...func(*kibashipv1.Project)) *kibashipv1.Project {
	GinkgoHelper()
	p := NewProject(name, modify...)
	Expect(apiserver.Client.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(apiserver.Client.Delete(ctx, p.DeepCopy()))).To(Succeed())
	})
	return p
}

// Ready creates a Project with a name of its own, and waits until it is Ready.
func Ready(ctx context.Context, modify ...func(*kibashipv1.Project)) *kibashipv1.Project {
	GinkgoHelper()
	p := Project(ctx, NewName(), modify...)
	expect.Settles(ctx, p, kibashipv1.ProjectReady)
	return p
}

// NewApplication returns an Application of type DockerImage in the namespace of its Project,
// good and not created yet.
func NewApplication(project, app string, modify ...func(*kibashipv1.Application)) *kibashipv1.Application {
	a := &kibashipv1.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace(project), Name: ApplicationName(project, app)},
		Spec: kibashipv1.ApplicationSpec{
			ProjectRef:  kibashipv1.LocalReference{Name: project},
			Type:        kibashipv1.TypeDockerImage,
			DockerImage: &kibashipv1.DockerImage{Image: "registry.example.org/team/app:1.2"},
		},
	}
	for _, m := range modify {
		m(a)
	}
	return a
}

// Application creates an Application. It goes with its Project.
func Application(ctx context.Context, project, app string, modify ...func(*kibashipv1.Application)) *kibashipv1.Application {
	GinkgoHelper()
	a := NewApplication(project, app, modify...)
	Expect(apiserver.Client.Create(ctx, a)).To(Succeed())
	return a
}

// ReadyApplication creates an Application, and waits until it is Ready.
func ReadyApplication(ctx context.Context, project, app string, modify ...func(*kibashipv1.Application)) *kibashipv1.Application {
	GinkgoHelper()
	a := Application(ctx, project, app, modify...)
	expect.Settles(ctx, a, kibashipv1.ApplicationReady)
	return a
}

// Private makes an Application one of a private repository, whose token is in a Secret.
func Private(secret string) func(*kibashipv1.Application) {
	return func(a *kibashipv1.Application) {
		a.Spec.Type, a.Spec.DockerImage = kibashipv1.TypeGitRepository, nil
		a.Spec.GitRepository = &kibashipv1.GitRepository{
			Provider: kibashipv1.GitHub, Repository: "org/app", SecretRef: &kibashipv1.LocalReference{Name: secret},
		}
	}
}

// Public makes an Application one of a public repository.
func Public(a *kibashipv1.Application) {
	a.Spec.Type, a.Spec.DockerImage = kibashipv1.TypeGitRepository, nil
	a.Spec.GitRepository = &kibashipv1.GitRepository{Provider: kibashipv1.GitHub, Repository: "org/app", PublicAccess: true}
}

// NewDeployment returns a Deployment of an Application, good and not created yet.
func NewDeployment(project, app, deployment string) *kibashipv1.Deployment {
	return &kibashipv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace(project), Name: "project-" + project + "-app-" + app + "-deployment-" + deployment + "-kibaship-com",
		},
		Spec: kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: ApplicationName(project, app)}},
	}
}

// NoneLeft waits until there is no Project in the cluster: at the end of a suite.
func NoneLeft(ctx context.Context) {
	GinkgoHelper()
	expect.None(ctx, &kibashipv1.ProjectList{})
}
