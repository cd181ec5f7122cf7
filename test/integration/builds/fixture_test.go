package builds

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

// admin creates the ClusterRole that an administrator has to create.
func admin(ctx context.Context) {
	GinkgoHelper()
	everything := []string{rbacv1.ResourceAll}
	err := k8s.Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: kibashipv1.ProjectAdmin},
		Rules:      []rbacv1.PolicyRule{{APIGroups: everything, Resources: everything, Verbs: everything}},
	})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
}

// project creates a Project, and returns its namespace.
func project(ctx context.Context, name string) string {
	GinkgoHelper()
	p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}}}
	apiserver.Create(ctx, p)
	expect.Reaches(ctx, p, kibashipv1.ProjectReady)
	return p.Status.NamespaceName
}

// ready waits until an Application is.
func ready(ctx context.Context, app *kibashipv1.Application) {
	GinkgoHelper()
	expect.Reaches(ctx, app, kibashipv1.ApplicationReady)
}
