package hexactf

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kit/cache"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
)

// The operator keeps no content of large objects in memory, and compares them all the same.
var _ = Describe("A challenge with more content than the cache keeps", func() {
	It("runs, is left as it is, is repaired, and is deleted", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "large", hexactftest.OneComponent, func(s *hexactfv1.ChallengeDefinitionSpec) {
			c := &s.Components[0].Deployment.Spec.Template.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "LARGE", Value: strings.Repeat("x", 2*cache.MaxContent)})
		})
		c := running(ctx, ns, "large")
		deployments := apiserver.List[appsv1.DeploymentList](ctx, client.InNamespace(ns))
		Expect(deployments.Items).To(HaveLen(1))
		d := &deployments.Items[0]

		By("another reconciliation, after which nothing is written")
		written := d.Generation
		before := c.DeepCopy()
		c.Annotations = map[string]string{"example.com/look": "again"}
		Expect(k8s.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Generation).To(Equal(written))
		}).Should(Succeed())

		By("a change of another client, which is undone")
		changed := d.DeepCopy()
		changed.Spec.Replicas = ptr.To[int32](3)
		Expect(k8s.Patch(ctx, changed, client.MergeFrom(d))).To(Succeed())
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(*d.Spec.Replicas).To(Equal(int32(1)))
		})
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(c.Status.CurrentStatus.State).To(Equal(hexactfv1.StateRunning))

		hexactftest.Delete(ctx, c)
		expect.Gone(ctx, c)
		expect.Gone(ctx, d)
	})
})
