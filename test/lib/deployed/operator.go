package deployed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

// ExpectLease is an error unless one of the operator's pods holds a fresh lease.
func ExpectLease(ctx context.Context) error {
	if _, err := World.Leader(ctx); err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	if err := World.Get(ctx, client.ObjectKey{Namespace: World.Operator.Namespace, Name: config.DefaultLeaseName}, lease); err != nil {
		return err
	}
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if age := time.Since(lease.Spec.RenewTime.Time); age > duration {
		return fmt.Errorf("the lease was renewed %s ago and holds for %s", age, duration)
	}
	return nil
}

// SetVariable changes the operator's environment and waits until every pod has
// the new one.
func SetVariable(ctx context.Context, name, value string) {
	GinkgoHelper()
	ChangeManager(ctx, fmt.Sprintf(`"env":[{"name":%q,"value":%q}]`, name, value))
}

// ChangeManager changes fields of the operator's container and waits until every pod
// has them.
func ChangeManager(ctx context.Context, fields string) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: World.Operator.Namespace, Name: World.Operator.Name}}
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"manager",` + fields + `}]}}}}`
	Expect(World.Patch(ctx, deployment, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))).To(Succeed())
	expect.Until(ctx, StartLimit, func(ctx context.Context) error {
		if err := World.Get(ctx, World.Operator, deployment); err != nil {
			return err
		}
		s := deployment.Status
		rolledOut := s.ObservedGeneration >= deployment.Generation && s.UpdatedReplicas == *deployment.Spec.Replicas &&
			s.Replicas == s.UpdatedReplicas && s.AvailableReplicas == s.Replicas
		return ErrorIf(!rolledOut, fmt.Sprintf("the operator is not rolled out: %+v", s))
	})
	expect.Until(ctx, StartLimit, ExpectLease)
}

// Metrics reads the metrics of a pod of the operator, as a ServiceAccount of a namespace with the
// right to read them.
func Metrics(ctx context.Context, namespace string, pod *corev1.Pod) string {
	GinkgoHelper()
	token := ServiceAccount(ctx, namespace, "prometheus")
	BindClusterRole(ctx, MetricsReader(ctx), namespace, "prometheus")
	// The certificate is the operator's own; no client can know it in advance.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	DeferCleanup(insecure.CloseIdleConnections)
	status, body := Get(ctx, insecure, "https://"+World.Forward(client.ObjectKeyFromObject(pod), 8443)+"/metrics", token)
	Expect(status).To(Equal(http.StatusOK))
	return body
}

// MetricsReader creates a ClusterRole that may read metrics, and returns its name.
func MetricsReader(ctx context.Context) string {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	Expect(World.Create(ctx, role)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(World.Delete(ctx, role)).To(Succeed()) }, NodeTimeout(ReactLimit))
	return role.Name
}

// ServiceAccount creates a ServiceAccount and returns a token of it.
func ServiceAccount(ctx context.Context, namespace, name string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	Expect(World.Create(ctx, account)).To(Succeed())
	return apiserver.Token(ctx, namespace, name)
}

// BindClusterRole binds a ClusterRole to a ServiceAccount in the whole cluster until the spec
// ends.
func BindClusterRole(ctx context.Context, role, namespace, account string) {
	GinkgoHelper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
	Expect(World.Create(ctx, binding)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(World.Delete(ctx, binding)).To(Succeed()) }, NodeTimeout(ReactLimit))
}

// Get returns status and body of an answer.
func Get(ctx context.Context, with *http.Client, url, token string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := with.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
