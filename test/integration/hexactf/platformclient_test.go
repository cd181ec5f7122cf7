package hexactf

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/hexactftest"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// platformClient starts challenges as the API server of the platform does.
type platformClient struct{ challenges dynamic.ResourceInterface }

func newPlatformClient(namespace string) platformClient {
	GinkgoHelper()
	c, err := dynamic.NewForConfig(apiserver.Config)
	Expect(err).NotTo(HaveOccurred())
	return platformClient{c.Resource(hexactfv1.GroupVersion.WithResource("challenges")).Namespace(namespace)}
}

// start creates a challenge and returns its node port, 0 if the client gives up. The client reads the answer to its POST.
// Only if that has no status does it look again: after three seconds, until eight have passed.
func (p platformClient) start(ctx context.Context, c *hexactfv1.Challenge) (port int64) {
	GinkgoHelper()
	const lookAgain, giveUp = 3 * time.Second, 8 * time.Second
	answer, err := p.challenges.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hexactfv1.GroupVersion.String(), "kind": "Challenge",
		"metadata": map[string]any{"name": c.Name, "labels": map[string]any{
			hexactfv1.LabelChallengeID: c.Labels[hexactfv1.LabelChallengeID], hexactfv1.LabelUser: c.Labels[hexactfv1.LabelUser],
		}},
		"spec": map[string]any{"definition": c.Spec.Definition, "namespace": c.Namespace},
	}}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	if status, found := answer.Object["status"]; found {
		AddReportEntry("the answer to the POST has a status", fmt.Sprint(status))
		port, _, err = unstructured.NestedInt64(answer.Object, "status", "endpoint")
		Expect(err).NotTo(HaveOccurred())
		return port
	}
	created := time.Now()
	for at := lookAgain; at <= limits.Scaled(giveUp); at += time.Second {
		<-time.After(time.Until(created.Add(at)))
		live, err := p.challenges.Get(ctx, c.Name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		if port, _, err = unstructured.NestedInt64(live.Object, "status", "endpoint"); port != 0 {
			return port
		}
		Expect(err).NotTo(HaveOccurred())
	}
	return 0
}

// lateDefinition is a web server whose pod is not ready before readyNow.
func lateDefinition(ctx context.Context, namespace string) {
	GinkgoHelper()
	hexactftest.Definition(ctx, namespace, "late", hexactftest.OneComponent, func(s *hexactfv1.ChallengeDefinitionSpec) {
		container := &s.Components[0].Deployment.Spec.Template.Spec.Containers[0]
		container.Image = "berg.test/behaviour/not-ready"
		container.ReadinessProbe = &corev1.Probe{
			InitialDelaySeconds: 12,
			ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	})
}

// readyNow makes the pods of a challenge ready.
func readyNow(ctx context.Context, c *hexactfv1.Challenge) {
	GinkgoHelper()
	pods := apiserver.List[corev1.PodList](ctx, client.InNamespace(c.Namespace), client.MatchingLabels{hexactfv1.LabelPartOf: c.Name})
	Expect(pods.Items).NotTo(BeEmpty())
	for i := range pods.Items {
		Expect(k8s.Patch(ctx, &pods.Items[i], apiserver.RawPatch(`{"metadata":{"labels":{"berg.test/behaviour":"ready"}}}`))).To(Succeed())
	}
}

var _ = Describe("The API server of the platform", func() {
	It("gets the port of a challenge whose probe takes longer than it waits", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		lateDefinition(ctx, ns)
		c := hexactftest.New(ns, "late")
		port := newPlatformClient(ns).start(ctx, c)
		Expect(port).NotTo(BeZero(), "the client gave up: Failed to get NodePort")

		By("what it and an operator see before the challenge runs")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
		Expect(int64(get(ctx, ns, prefix(c, "web")+"-svc", &corev1.Service{}).Spec.Ports[0].NodePort)).To(Equal(port))
		Expect(c.Status.CurrentStatus).To(Equal(hexactfv1.CurrentStatus{State: hexactfv1.StateCreating}))
		expect.Shows(ctx, c, hexactfv1.ConditionResourcesCreated, metav1.ConditionTrue, hexactfv1.ReasonResourcesCreated)
		expect.Shows(ctx, c, hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStarting)
		platform.Receives(c, hexactfv1.StateCreating)

		By("that the challenge then runs at the same port")
		readyNow(ctx, c)
		hexactftest.Reaches(ctx, c, hexactfv1.StateRunning)
		Expect(int64(c.Status.Endpoint)).To(Equal(port))
		platform.Receives(c, hexactfv1.StateCreating, hexactfv1.StateRunning)
		Expect(platform.About(c)[0].Endpoint).To(BeEmpty())
		Expect(platform.About(c)[1].Endpoint).To(Equal(fmt.Sprint(port)))
	})

	It("gets the port of a challenge whose image must be pulled", func(ctx context.Context) {
		ns := hexactftest.Namespace(ctx)
		hexactftest.Definition(ctx, ns, "pulled", hexactftest.OneComponent, func(s *hexactfv1.ChallengeDefinitionSpec) {
			s.Components[0].Deployment.Spec.Template.Spec.Containers[0].Image = "berg.test/behaviour/image-pull"
		})
		c := hexactftest.New(ns, "pulled")
		Expect(newPlatformClient(ns).start(ctx, c)).NotTo(BeZero())
		expect.Shows(ctx, c, hexactfv1.ConditionAvailable, metav1.ConditionFalse, hexactfv1.ReasonStarting)
	})
})
