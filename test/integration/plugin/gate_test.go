package plugin

import (
	"context"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/launch"
)

// gate is a connection to the API server that can be interrupted.
type gate struct {
	*launch.Gate
	kubeconfig string
}

func newGate(context.Context) *gate {
	GinkgoHelper()
	g, err := launch.NewGate(apiserver.Config)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(g.Close)
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(launch.WriteKubeconfig(file, g.Config())).To(Succeed())
	return &gate{g, file}
}

func (g *gate) cut()  { g.SetShut(true) }
func (g *gate) mend() { g.SetShut(false) }

// bindViewer lets a user read the instances of a namespace, and nothing else.
func bindViewer(ctx context.Context, namespace string) string {
	GinkgoHelper()
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "viewer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"berg.norelect.ch"}, Resources: []string{"challengeinstances"}, Verbs: []string{"get", "list", "watch"}}},
	}
	Expect(apiserver.Client.Create(ctx, role)).To(Succeed())
	Expect(apiserver.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer"}},
	})).To(Succeed())
	// The API server applies a new binding a moment after it has stored it.
	Eventually(apiserver.May).WithArguments(ctx, "viewer", authorizationv1.ResourceAttributes{
		Namespace: namespace, Group: "berg.norelect.ch", Resource: "challengeinstances", Verb: "list",
	}).Should(BeTrue())
	return "viewer"
}
