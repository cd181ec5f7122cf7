package hexactf

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hexactfv1 "github.com/bergctf/berg-operator/api/hexactf/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

// expiryLimit is how late the deletion of an expired challenge may be seen: its time has a precision of one second, and a
// busy machine needs some seconds more.
var expiryLimit = limits.Scaled(6 * time.Second)

func fetch(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return io.ReadAll(response.Body)
}

// dashboard reads metrics as Prometheus does, with a token of its own.
type dashboard struct{ token string }

func newDashboard(ctx context.Context, p *platform) dashboard {
	GinkgoHelper()
	const account = "prometheus"
	token := deployed.ServiceAccount(ctx, p.namespace, account)
	deployed.BindClusterRole(ctx, deployed.MetricsReader(ctx), p.namespace, account)
	return dashboard{token}
}

// text is the whole page of the leader.
func (d dashboard) text(ctx context.Context) string {
	GinkgoHelper()
	pod, err := world.Leader(ctx)
	Expect(err).NotTo(HaveOccurred())
	// The certificate is self-signed by the operator, so no client can verify it.
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer insecure.CloseIdleConnections()
	status, body := deployed.Get(ctx, insecure, "https://"+world.Forward(client.ObjectKeyFromObject(pod), 8443)+"/metrics", d.token)
	Expect(status).To(Equal(http.StatusOK))
	return body
}

// shows returns the value of challenge_resource_status of a challenge, "" for none.
func (d dashboard) shows(ctx context.Context, c *hexactfv1.Challenge) string {
	GinkgoHelper()
	series := fmt.Sprintf("challenge_resource_status{challeng_id=%q,challenge_name=%q,namespace=%q,username=%q} ",
		c.Labels[hexactfv1.LabelChallengeID], c.Name, c.Namespace, c.Labels[hexactfv1.LabelUser])
	for line := range strings.Lines(d.text(ctx)) {
		if value, found := strings.CutPrefix(line, series); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

var _ = Describe("A challenge", func() {
	It("is reported to the platform from its first message to its last", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "web")
		c := p.request(ctx, "web")
		received := receives(ctx, c, creating, running)

		By("the endpoint in the message Running, at which a player finds the challenge")
		port := portOf(received[1])
		visits(ctx, port)
		Expect(received[0].Endpoint).To(BeEmpty(), "an endpoint before a server listens there")
		reaches(ctx, c, hexactfv1.StateRunning)
		Expect(c.Status.Endpoint).To(Equal(port))
		Expect(c.Status.ExpiresAt.Sub(c.Status.StartedAt.Time)).To(Equal(hexactfv1.DefaultDuration))

		By("with the names and labels that the platform knows")
		prefix := "chall-" + c.Labels[hexactfv1.LabelChallengeID] + "-web-" + c.Labels[hexactfv1.LabelUser]
		deployment, service := &appsv1.Deployment{}, &corev1.Service{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: prefix + "-deploy"}, deployment)).To(Succeed())
		Expect(world.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: prefix + "-svc"}, service)).To(Succeed())
		Expect(service.Spec.Selector).To(Equal(map[string]string{hexactfv1.LabelInstance: prefix}))
		Expect(service.Spec.Ports[0].NodePort).To(Equal(port))

		By("isolated, since players break into it")
		pods, err := world.Pods(ctx, p.namespace, client.MatchingLabels{hexactfv1.LabelInstance: prefix})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(1))
		Expect(*pods[0].Spec.AutomountServiceAccountToken).To(BeFalse())
		Expect(pods[0].Spec.Containers[0].VolumeMounts).To(BeEmpty(), "a token is mounted")
		var policies networkingv1.NetworkPolicyList
		Expect(world.List(ctx, &policies, client.InNamespace(p.namespace))).To(Succeed())
		Expect(policies.Items).To(HaveLen(1))

		By("counted by the metric of its dashboards")
		dashboards := newDashboard(ctx, p)
		Expect(dashboards.shows(ctx, c)).To(Equal("1"))

		By("ending when the platform deletes it")
		remove(ctx, c)
		expect.GoneWithin(ctx, c, deployed.ReactLimit)
		now, err := receivedBy(log.Messages(), c)
		Expect(err).NotTo(HaveOccurred())
		last := receives(ctx, c, creating, running, deleted)
		AddReportEntry("messages when the challenge was gone", states(now))
		Expect(last[2].Endpoint).To(BeEmpty())
		expect.GoneWithin(ctx, deployment, deployed.DeleteLimit)
		expect.GoneWithin(ctx, service, deployed.DeleteLimit)
		Expect(dashboards.shows(ctx, c)).To(Equal("2"), "for a minute, so that a scrape sees it")
	}, SpecTimeout(deployed.SpecLimit))

	It("expires on time, independent of how long it took to start", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "short", lasting(20*time.Second))
		c := p.request(ctx, "short")
		receives(ctx, c, creating, running)
		reaches(ctx, c, hexactfv1.StateRunning)
		expires := c.Status.StartedAt.Add(20 * time.Second)
		Expect(c.Status.ExpiresAt.Time).To(BeTemporally("==", expires))
		received := receives(ctx, c, creating, running, deleted)
		at, err := time.Parse(time.RFC3339Nano, received[2].Timestamp)
		Expect(err).NotTo(HaveOccurred())
		Expect(at).To(And(BeTemporally(">=", expires), BeTemporally("<=", expires.Add(expiryLimit))))
		expect.GoneWithin(ctx, c, deployed.ReactLimit)
	}, SpecTimeout(deployed.SpecLimit))

	It("does not expire when it is shared", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "lobby", shared, lasting(time.Second))
		c := p.request(ctx, "lobby")
		received := receives(ctx, c, creating, running)
		reaches(ctx, c, hexactfv1.StateRunning)
		Expect(c.Status.ExpiresAt).To(BeNil())
		Expect(c.Status.IsOne).To(BeTrue())
		Consistently(ctx, func(ctx context.Context) error {
			return world.Get(ctx, client.ObjectKeyFromObject(c), c)
		}, 5*time.Second).Should(Succeed())
		Expect(c.DeletionTimestamp).To(BeNil())
		port := portOf(received[1])
		visits(ctx, port)
	}, SpecTimeout(deployed.SpecLimit))

	It("waits for its definition, and says so", func(ctx SpecContext) {
		p := newPlatform(ctx)
		c := p.request(ctx, "later")
		receives(ctx, c, failed)
		reaches(ctx, c, hexactfv1.StateError)
		Expect(c.Status.CurrentStatus.ErrorMsg).To(ContainSubstring("later"))
		p.define(ctx, "later")
		received := receives(ctx, c, failed, creating, running)
		port := portOf(received[2])
		visits(ctx, port)
	}, SpecTimeout(deployed.SpecLimit))

	It("may have several components, of which players reach one", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.define(ctx, "pair", func(spec *hexactfv1.ChallengeDefinitionSpec) {
			back := spec.Components[0]
			back.Name = "back"
			back.Service = &hexactfv1.Service{Spec: *back.Service.Spec.DeepCopy()}
			back.Service.Spec.Type = corev1.ServiceTypeClusterIP
			spec.Components = append(spec.Components, back)
		})
		c := p.request(ctx, "pair")
		received := receives(ctx, c, creating, running)
		port := portOf(received[1])
		visits(ctx, port)
		pods, err := world.Pods(ctx, p.namespace, client.MatchingLabels{hexactfv1.LabelPartOf: c.Name})
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(2))
	}, SpecTimeout(deployed.SpecLimit))
})
