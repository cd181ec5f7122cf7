package berg

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	slim "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	"github.com/cilium/cilium/pkg/policy/api"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/berg/check"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// readyLate is after how many seconds a challenge is ready whose way is to be blocked before: time
// enough for the data plane.
const readyLate = 12

var _ = Describe("A ChallengeCheck at the way in", Label("network", "way-in"), Serial, func() {
	It("goes it as players do, and finds what stands in it", func(ctx SpecContext) {
		allowChecks(ctx)
		withSetting(ctx, "CHECK_CONCURRENCY", "4")
		stage := journey.NewStage(ctx)
		samples := map[string]*bergv1.Challenge{"web": stage.Sample(ctx, "web"), "pwn": stage.Sample(ctx, "pwn")}
		neighbour := stage.Start(ctx, stage.Instance("web"))
		neighbour.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)

		checked := func(name, sample string) *bergv1.ChallengeCheck {
			challenge := &bergv1.Challenge{ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: name}, Spec: *samples[sample].Spec.DeepCopy()}
			challenge.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = readyLate
			Expect(world.Create(ctx, challenge)).To(Succeed())
			c := &bergv1.ChallengeCheck{
				ObjectMeta: metav1.ObjectMeta{Namespace: stage.Namespace, Name: name},
				Spec: bergv1.ChallengeCheckSpec{
					ChallengeRef: bergv1.ChallengeReference{Namespace: stage.Namespace, Name: name},
					Solver: bergv1.Solver{Image: solverImage, Env: []bergv1.SolverVariable{
						{Name: "CHALLENGE", Value: sample}, {Name: "CERTIFICATE_AUTHORITY", Value: string(world.Rest.CAData)},
					}},
					Timeout: "90s",
				},
			}
			Expect(world.Create(ctx, c)).To(Succeed())
			return c
		}
		var all []*bergv1.ChallengeCheck
		DeferCleanup(func(ctx SpecContext) {
			for _, c := range all {
				Expect(client.IgnoreNotFound(world.Delete(ctx, c))).To(Succeed())
				expect.GoneWithin(ctx, c, deployed.DeleteLimit)
				Expect(world.NamespaceGone(ctx, check.NamespacePrefix+string(c.UID))).To(Succeed())
			}
		}, NodeTimeout(2*deployed.DeleteLimit))
		healthy, blocked, stolen := checked("healthy", "web"), checked("blocked", "pwn"), checked("stolen", "web")
		all = append(all, healthy, blocked, stolen)

		By("blocking the way to one with a policy")
		pods := slim.LabelSelectorRequirement{Key: "k8s:io.kubernetes.pod.namespace", Operator: slim.LabelSelectorOpExists}
		Expect(world.Create(ctx, &ciliumv2.CiliumNetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: instanceOf(ctx, blocked).Status.Namespace, Name: "blocked"},
			Spec: &api.Rule{
				EndpointSelector: api.EndpointSelector{LabelSelector: &slim.LabelSelector{}},
				IngressDeny: []api.IngressDenyRule{{IngressCommonRule: api.IngressCommonRule{
					FromEndpoints: []api.EndpointSelector{{LabelSelector: &slim.LabelSelector{MatchExpressions: []slim.LabelSelectorRequirement{pods}}}},
				}}},
			},
		})).To(Succeed())

		By("leading the players of another one to a neighbour")
		namespace := neighbour.InstanceNamespace()
		original := &gatewayv1.HTTPRoute{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "web-8080"}, original)).To(Succeed())
		thief := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "thief"}, Spec: *original.Spec.DeepCopy()}
		thief.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(endpoint(instanceOf(ctx, stolen), "web").Hostname)}
		prefix, path := gatewayv1.PathMatchPathPrefix, "/article"
		thief.Spec.Rules[0].Matches = []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: &prefix, Value: &path}}}
		Expect(world.Create(ctx, thief)).To(Succeed())

		for _, tc := range []struct {
			check *bergv1.ChallengeCheck
			want  bergv1.CheckResultType
			says  string
		}{
			{healthy, bergv1.CheckSolved, "found the flag"},
			{blocked, bergv1.CheckUnreachable, "69"},
			{stolen, bergv1.CheckWrongFlag, fmt.Sprintf("HTTPRoute %s/thief claims the host %s too", namespace, thief.Spec.Hostnames[0])},
		} {
			expectResult(ctx, tc.check, tc.want, tc.says)
		}

		By("taking the Gateway's listener away")
		gateway := &gatewayv1.Gateway{}
		Expect(world.Get(ctx, client.ObjectKey{Namespace: setting("GATEWAY_NAMESPACE"), Name: setting("GATEWAY_NAME")}, gateway)).To(Succeed())
		listeners := slices.Clone(gateway.Spec.Listeners)
		listen := func(ctx context.Context, to []gatewayv1.Listener) {
			text, err := json.Marshal(map[string]any{"spec": map[string]any{"listeners": to}})
			Expect(err).NotTo(HaveOccurred())
			Expect(world.Patch(ctx, gateway, client.RawPatch("application/merge-patch+json", text))).To(Succeed())
		}
		DeferCleanup(func(ctx SpecContext) {
			listen(ctx, listeners)
			site := endpoint(neighbour.Now(), "web")
			expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error { return visit(ctx, site, 200) })
		}, NodeTimeout(2*deployed.StartLimit))
		listen(ctx, slices.DeleteFunc(slices.Clone(listeners), func(l gatewayv1.Listener) bool {
			return string(l.Name) == setting("CHALLENGE_HTTP_LISTENER_NAME")
		}))
		closed := checked("closed", "web")
		all = append(all, closed)
		expectResult(ctx, closed, bergv1.CheckNeverStarted, "has no listener "+setting("CHALLENGE_HTTP_LISTENER_NAME"))
	}, SpecTimeout(12*deployed.StartLimit))
})

// instanceOf waits until the instance of a check has told where players will find it.
func instanceOf(ctx context.Context, c *bergv1.ChallengeCheck) *bergv1.ChallengeInstance {
	GinkgoHelper()
	i := &bergv1.ChallengeInstance{}
	expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
		if err := world.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: "check-" + string(c.UID)}, i); err != nil {
			return err
		}
		return deployed.ErrorIf(len(i.Status.Services) == 0 || i.Status.Phase != bergv1.PhaseStarting, "it does not say yet where it is: "+expect.Conditions(i))
	})
	return i
}

// expectVerdict waits for the result of a check.
func expectResult(ctx context.Context, c *bergv1.ChallengeCheck, want bergv1.CheckResultType, says string) {
	GinkgoHelper()
	got := resultOf(ctx, c)
	AddReportEntry(c.Name, fmt.Sprintf("%s: %s %s", got.Result, got.Message, got.Output))
	Expect(got.Result).To(Equal(want), "%s: %s", got.Message, got.Output)
	Expect(got.Message).To(ContainSubstring(says))
	Expect(got.Output).NotTo(ContainSubstring("flag{"), "of any instance")
}
