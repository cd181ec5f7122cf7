package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/isolation"
)

// Where policies are enforced the check must find that, and where they are not it
// must raise the alarm: both are clusters that this suite may run on.
var _ = Describe("The check of isolation", Label("isolation"), Serial, func() {
	It("tells whether this cluster enforces network policies", func(ctx SpecContext) {
		status, reason, sample := corev1.ConditionFalse, isolation.ReasonIgnored, "berg_isolation_verified 0"
		if world.runsCilium(ctx) {
			status, reason, sample = corev1.ConditionTrue, isolation.ReasonEnforced, "berg_isolation_verified 1"
		}
		DeferCleanup(func(ctx SpecContext) { setVariable(ctx, "ISOLATION_CHECK", "off") }, NodeTimeout(2*startLimit))
		setVariable(ctx, "ISOLATION_CHECK", "startup")

		var leader *corev1.Pod
		var found *corev1.PodCondition
		until(ctx, 2*startLimit, func(ctx context.Context) (err error) {
			leader, found, err = world.isolationVerified(ctx)
			return err
		})
		Expect(found.Reason).To(Equal(reason), found.Message)
		Expect(found.Status).To(Equal(status))

		Expect(newStage(ctx).metrics(ctx, leader)).To(ContainSubstring(sample))

		if status != corev1.ConditionTrue {
			until(ctx, reactLimit, func(ctx context.Context) error {
				var events corev1.EventList
				if err := world.List(ctx, &events, client.InNamespace(leader.Namespace)); err != nil {
					return err
				}
				warned := slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
					return e.InvolvedObject.UID == leader.UID && e.Reason == reason && e.Type == corev1.EventTypeWarning
				})
				return not(!warned, "there is no Warning about the operator's pod")
			})
		}
		until(ctx, deleteLimit, func(ctx context.Context) error {
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
	}, SpecTimeout(specLimit))
})

// runsCilium tells whether Cilium's agent is at work: it alone makes these.
func (c *cluster) runsCilium(ctx context.Context) bool {
	GinkgoHelper()
	nodes := &unstructured.UnstructuredList{}
	nodes.SetAPIVersion("cilium.io/v2")
	nodes.SetKind("CiliumNodeList")
	err := c.List(ctx, nodes)
	if meta.IsNoMatchError(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	return len(nodes.Items) > 0
}

// isolationVerified finds the operator's pod that has come to a verdict.
func (c *cluster) isolationVerified(ctx context.Context) (*corev1.Pod, *corev1.PodCondition, error) {
	pods, err := c.operatorPods(ctx)
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

// setVariable changes the operator's environment and waits until every pod has
// the new one.
func setVariable(ctx context.Context, name, value string) {
	GinkgoHelper()
	changeManager(ctx, fmt.Sprintf(`"env":[{"name":%q,"value":%q}]`, name, value))
}

// changeManager changes fields of the operator's container and waits until every pod
// has them.
func changeManager(ctx context.Context, fields string) {
	GinkgoHelper()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: world.operator.Namespace, Name: world.operator.Name}}
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"manager",` + fields + `}]}}}}`
	Expect(world.Patch(ctx, deployment, client.RawPatch("application/strategic-merge-patch+json", []byte(patch)))).To(Succeed())
	until(ctx, startLimit, func(ctx context.Context) error {
		if err := world.Get(ctx, world.operator, deployment); err != nil {
			return err
		}
		s := deployment.Status
		rolledOut := s.ObservedGeneration >= deployment.Generation && s.UpdatedReplicas == *deployment.Spec.Replicas &&
			s.Replicas == s.UpdatedReplicas && s.AvailableReplicas == s.Replicas
		return not(!rolledOut, fmt.Sprintf("the operator is not rolled out: %+v", s))
	})
	until(ctx, startLimit, expectLease)
}
