package deployed

import (
	"context"
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/test/lib/limits"
)

const (
	// PlatformNamespace is that of the Challenges and instances of platforms.
	PlatformNamespace = "berg"
	// PlatformAPI is the name of the platform API's objects.
	PlatformAPI = "berg-api"
	// platformFolder is seen from a suite below test/e2e.
	platformFolder = "../../../config/berg/api"
)

// InstallPlatformAPI installs the platform API with some tokens as docs/platform-api.md says, until the spec or the suite ends. It
// returns its pods, which are ready.
func (c *Cluster) InstallPlatformAPI(ctx context.Context, tokens map[string]string) []corev1.Pod {
	GinkgoHelper()
	stage := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: PlatformNamespace, Labels: map[string]string{StageLabel: "api"}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Operator.Namespace, Name: "berg-api-tokens"}, StringData: tokens}
	for _, object := range []client.Object{stage, secret} {
		err := c.Create(ctx, object)
		if object == stage && apierrors.IsAlreadyExists(err) {
			continue // that of the samples
		}
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, object)).To(Succeed()) }, NodeTimeout(limits.Scaled(time.Minute)))
	}
	kubectl := func(ctx context.Context, args ...string) {
		GinkgoHelper()
		output, err := exec.CommandContext(ctx, "kubectl", append(args, "-k", platformFolder)...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "--ignore-not-found") }, NodeTimeout(limits.Scaled(2*time.Minute)))
	kubectl(ctx, "apply", "--server-side")
	Eventually(func(g Gomega) {
		deployment := &appsv1.Deployment{}
		g.Expect(c.Get(ctx, client.ObjectKey{Namespace: c.Operator.Namespace, Name: PlatformAPI}, deployment)).To(Succeed())
		g.Expect(deployment.Status.ReadyReplicas).To(Equal(*deployment.Spec.Replicas))
	}).WithContext(ctx).WithTimeout(limits.Scaled(3 * time.Minute)).Should(Succeed())
	pods, err := c.Pods(ctx, c.Operator.Namespace, client.MatchingLabels{"app.kubernetes.io/name": PlatformAPI})
	Expect(err).NotTo(HaveOccurred())
	return pods
}
