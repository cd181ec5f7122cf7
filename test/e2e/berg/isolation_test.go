package berg

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/isolation"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/journey"
)

// Where policies are enforced the check must find that, and where they are not it
// must raise the alarm: both are clusters that this suite may run on.
var _ = Describe("The check of isolation", Label("isolation", "attack"), Serial, func() {
	It("tells whether this cluster enforces network policies", func(ctx SpecContext) {
		status, reason, sample := corev1.ConditionFalse, isolation.ReasonIgnored, "berg_isolation_verified 0"
		if runsCilium(ctx) {
			status, reason, sample = corev1.ConditionTrue, isolation.ReasonEnforced, "berg_isolation_verified 1"
		}
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "ISOLATION_CHECK", "startup") }, NodeTimeout(2*deployed.StartLimit))
		deployed.SetVariable(ctx, "ISOLATION_CHECK", "interval")

		var leader *corev1.Pod
		var found *corev1.PodCondition
		expect.Until(ctx, 2*deployed.StartLimit, func(ctx context.Context) (err error) {
			leader, found, err = isolationVerified(ctx)
			return err
		})
		Expect(found.Reason).To(Equal(reason), found.Message)
		Expect(found.Status).To(Equal(status))

		Expect(deployed.Metrics(ctx, journey.NewStage(ctx).Namespace, leader)).To(ContainSubstring(sample))

		if status != corev1.ConditionTrue {
			expect.Until(ctx, deployed.ReactLimit, func(ctx context.Context) error {
				var events corev1.EventList
				if err := world.List(ctx, &events, client.InNamespace(leader.Namespace)); err != nil {
					return err
				}
				warned := slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
					return e.InvolvedObject.UID == leader.UID && e.Reason == reason && e.Type == corev1.EventTypeWarning
				})
				return deployed.ErrorIf(!warned, "there is no Warning about the operator's pod")
			})
		}
		expect.Until(ctx, deployed.DeleteLimit, func(ctx context.Context) error {
			var namespaces corev1.NamespaceList
			if err := world.List(ctx, &namespaces); err != nil {
				return err
			}
			for _, ns := range namespaces.Items {
				if strings.HasPrefix(ns.Name, "berg-isolation-check-") {
					return fmt.Errorf("the check left %s", ns.Name)
				}
			}
			return nil
		})
	}, SpecTimeout(deployed.SpecLimit))
})

// runsCilium tells whether Cilium's agent is at work: it alone makes these.
func runsCilium(ctx context.Context) bool {
	GinkgoHelper()
	nodes := &unstructured.UnstructuredList{}
	nodes.SetAPIVersion("cilium.io/v2")
	nodes.SetKind("CiliumNodeList")
	err := world.List(ctx, nodes)
	if meta.IsNoMatchError(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return len(nodes.Items) > 0
}

// isolationVerified finds the operator's pod that has come to a verdict.
func isolationVerified(ctx context.Context) (*corev1.Pod, *corev1.PodCondition, error) {
	pods, err := world.OperatorPods(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range pods {
		for _, condition := range pods[i].Status.Conditions {
			if condition.Type == isolation.ConditionType {
				return &pods[i], &condition, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("none of the operator's %d pods has the condition %s", len(pods), isolation.ConditionType)
}
