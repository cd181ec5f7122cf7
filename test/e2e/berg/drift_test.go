package berg

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

var _ = Describe("A running instance", Label("versions"), func() {
	It("gets back what was deleted and what was changed", func(ctx SpecContext) {
		stage := journey.NewStage(ctx)
		stage.Challenge(ctx, "ports", everyPort())
		reported := stage.Start(ctx, stage.Instance("ports"))
		reported.ExpectPhase(ctx, deployed.StartLimit, bergv1.PhaseRunning)
		namespace := reported.InstanceNamespace()
		before := reported.Now().Status

		for _, c := range []struct {
			name   string
			object client.Object
		}{
			{"box", &corev1.Service{}},
			{"box-node-port", &corev1.Service{}},
			{"box-8080", &gatewayv1.HTTPRoute{}},
			{"box-8443", &gatewayv1.TLSRoute{}},
			{"challenge-network-policy", &ciliumv2.CiliumNetworkPolicy{}},
			{"box-pdb", &policyv1.PodDisruptionBudget{}},
			{"flag-content", &corev1.ConfigMap{}},
			{"box", &appsv1.Deployment{}},
		} {
			By(fmt.Sprintf("deleting %T %s", c.object, c.name))
			key := client.ObjectKey{Namespace: namespace, Name: c.name}
			Expect(world.Get(ctx, key, c.object)).To(Succeed())
			uid := c.object.GetUID()
			Expect(world.Delete(ctx, c.object)).To(Succeed())
			expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
				if err := world.Get(ctx, key, c.object); err != nil {
					return err
				}
				return deployed.ErrorIf(c.object.GetUID() == uid, "it is still the deleted one")
			})
		}

		for _, c := range []struct {
			name   string
			object client.Object
			patch  string
			back   func(client.Object) bool
		}{
			{"box", &appsv1.Deployment{}, `{"spec":{"replicas":0}}`, func(o client.Object) bool {
				replicas := o.(*appsv1.Deployment).Spec.Replicas
				return replicas != nil && *replicas == 1
			}},
			{"box", &corev1.Service{}, `{"spec":{"selector":{"berg.norelect.ch/container":"another"}}}`, func(o client.Object) bool {
				return o.(*corev1.Service).Spec.Selector[bergv1.LabelContainer] == "box"
			}},
			{"flag-content", &corev1.ConfigMap{}, `{"binaryData":{"content":"bm8="}}`, func(o client.Object) bool {
				return string(o.(*corev1.ConfigMap).BinaryData["content"]) == reported.Flag+"\n"
			}},
			{"box-8080", &gatewayv1.HTTPRoute{}, `{"spec":{"hostnames":["elsewhere.example.com"]}}`, func(o client.Object) bool {
				return string(o.(*gatewayv1.HTTPRoute).Spec.Hostnames[0]) != "elsewhere.example.com"
			}},
		} {
			By(fmt.Sprintf("changing %T %s", c.object, c.name))
			c.object.SetNamespace(namespace)
			c.object.SetName(c.name)
			Expect(world.Patch(ctx, c.object, client.RawPatch("application/merge-patch+json", []byte(c.patch)))).To(Succeed())
			Expect(c.back(c.object)).To(BeFalse(), "the change did not take place")
			expect.Refreshed(ctx, deployed.ReactLimit, c.object, func() error {
				return deployed.ErrorIf(!c.back(c.object), "the change is still there")
			})
		}

		By("being healthy again, at the same host names, and telling the node ports of today")
		expect.Until(ctx, deployed.StartLimit, func(ctx context.Context) error {
			now := reported.Now()
			service := &corev1.Service{}
			if err := world.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "box-node-port"}, service); err != nil {
				return err
			}
			live := map[corev1.Protocol]int32{}
			for _, p := range service.Spec.Ports {
				live[p.Protocol] = p.NodePort
			}
			return errors.Join(
				journey.Unhappy(now),
				deployed.ErrorIf(now.Status.Phase != bergv1.PhaseRunning, "phase "+string(now.Status.Phase)),
				deployed.ErrorIf(endpoint(now, "echo").Port != live[corev1.ProtocolTCP], "the status tells another TCP node port"),
				deployed.ErrorIf(endpoint(now, "echo-datagrams").Port != live[corev1.ProtocolUDP], "the status tells another UDP node port"),
			)
		})
		for _, name := range []string{"web", "secure"} {
			Expect(endpoint(reported.Now(), name)).To(Equal(endpoint(&bergv1.ChallengeInstance{Status: before}, name)))
		}
		Expect(reported.Phases()).NotTo(ContainElement(bergv1.PhaseFailed))
	}, SpecTimeout(deployed.SpecLimit))
})
