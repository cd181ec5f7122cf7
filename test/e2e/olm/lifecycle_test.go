package olm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/internal/kit/settings"
	hold "github.com/bergctf/berg-operator/internal/operator/upgradeable"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/limits"
	"github.com/bergctf/berg-operator/test/lib/residue"
)

// One installation, from its first day to its last.
var _ = Describe("The operator", Ordered, func() {
	// before is the cluster's objects without a namespace without the operator.
	var before sets.Set[string]

	BeforeAll(func(ctx SpecContext) {
		var err error
		before, err = residue.Objects(ctx)
		Expect(err).NotTo(HaveOccurred())
		subscribe(ctx, "first", map[string]string{"CHALLENGE_DOMAIN": "first.example.test"})
	}, NodeTimeout(limits.Scaled(time.Minute)))

	AfterEach(func(ctx SpecContext) {
		if CurrentSpecReport().Failed() {
			report(ctx)
		}
	}, NodeTimeout(limits.Scaled(time.Minute)))

	It("is installed from the catalog and takes its settings from the Subscription", func(ctx SpecContext) {
		expectInstalled(ctx, first, map[string]string{"CHALLENGE_DOMAIN": "first.example.test"})
		createChallenges(ctx)
		Expect(run(ctx).Status.Services).To(HaveEach(HaveField("Hostname", "first.example.test")))
	}, SpecTimeout(2*installLimit))

	It("works with new settings when the Subscription changes", func(ctx SpecContext) {
		settings := map[string]string{"CHALLENGE_DOMAIN": "second.example.test", "UPGRADE_HOLD_MAX": "20s"}
		configure(ctx, settings)
		expectInstalled(ctx, first, settings)
		Expect(run(ctx).Status.Services).To(HaveEach(HaveField("Hostname", "second.example.test")))
	}, SpecTimeout(2*installLimit))

	It("takes a setting from the ConfigMap where the Subscription has none, without a new pod", func(ctx SpecContext) {
		configure(ctx, map[string]string{"CHALLENGE_DOMAIN": ""})
		expectInstalled(ctx, first, map[string]string{"UPGRADE_HOLD_MAX": "20s"})
		pods, err := world.readyPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		shared := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: settings.ConfigMap}, Data: map[string]string{"CHALLENGE_DOMAIN": "map.example.test"}}
		Expect(world.Create(ctx, shared)).To(Succeed())
		Eventually(func() string { return run(ctx).Status.Services[0].Hostname }).WithTimeout(instanceLimit).Should(Equal("map.example.test"))
		still, err := world.readyPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(still).To(Equal(pods))

		By("returning to the Subscription")
		Expect(world.Delete(ctx, shared)).To(Succeed())
		configure(ctx, map[string]string{"CHALLENGE_DOMAIN": "second.example.test"})
		expectInstalled(ctx, first, map[string]string{"CHALLENGE_DOMAIN": "second.example.test"})
	}, SpecTimeout(4*installLimit))

	It("brings the platform API, which a role and a setting turn on", func(ctx SpecContext) {
		By("finding it off, without a right")
		expectPlatformAPI(ctx, first, http.StatusServiceUnavailable)

		By("granting its rights, and setting PLATFORM_API")
		grantPlatformAPI(ctx)
		configure(ctx, map[string]string{"PLATFORM_API": "true"})
		expectInstalled(ctx, first, map[string]string{"PLATFORM_API": "true"})
		expectPlatformAPI(ctx, first, http.StatusOK)

		By("registering a challenge")
		status, body, err := callPlatformAPI(ctx, http.MethodPost, "/api/v1/challenge", map[string]any{"id": "1", "scenario": quick})
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(BeElementOf(http.StatusOK, http.StatusCreated), body)
	}, SpecTimeout(4*installLimit))

	It("brings the gate, which its rights and a setting turn on", func(ctx SpecContext) {
		By("finding it off")
		expectGate(ctx, first, false)

		By("granting its rights, and setting GATE_ENABLED")
		accessOfGate(ctx, "apply", "--server-side")
		configure(ctx, map[string]string{"GATE_ENABLED": "true"})
		expectInstalled(ctx, first, map[string]string{"GATE_ENABLED": "true"})
		expectGate(ctx, first, true)
	}, SpecTimeout(4*installLimit))

	It("continues with the old settings while the new ones are wrong, says what is wrong, and recovers", func(ctx SpecContext) {
		working, err := world.readyPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(working).NotTo(BeEmpty())
		unhurt := follow(ctx, run(ctx))

		By("setting a port that is none")
		configure(ctx, map[string]string{"CHALLENGE_HTTP_PORT": "http"})
		expect.Until(ctx, installLimit, func(ctx context.Context) error {
			return reportedInPod(ctx, "CHALLENGE_HTTP_PORT")
		})
		expect.Until(ctx, installLimit, func(ctx context.Context) error {
			csv, err := world.csv(ctx, first)
			if err == nil && csv.Status.Phase == operatorsv1alpha1.CSVPhaseSucceeded {
				err = errors.New("OLM calls it a success")
			}
			return err
		})
		still, err := world.readyPods(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(still).To(Equal(working))
		Expect(run(ctx).Status.Services).To(HaveEach(HaveField("Hostname", "second.example.test")))
		deployment, err := world.deployment(ctx)
		Expect(err).NotTo(HaveOccurred())
		// Past the deadline OLM would call it a failure that nothing can fix, and
		// never look at the Subscription again.
		Expect(deployment.Spec.ProgressDeadlineSeconds).To(HaveValue(BeEquivalentTo(math.MaxInt32)))

		By("taking it back")
		configure(ctx, map[string]string{"CHALLENGE_HTTP_PORT": ""})
		letOLMTimeOut(ctx, first)
		settings := map[string]string{"CHALLENGE_DOMAIN": "second.example.test", "CHALLENGE_HTTP_PORT": "80"}
		expectInstalled(ctx, first, settings)
		Expect(run(ctx).Status.Services).To(HaveEach(HaveField("Hostname", "second.example.test")))
		unhurt.expectUnaffected(ctx)
	}, SpecTimeout(3*installLimit))

	It("is upgraded while instances come and go, and no player notices", func(ctx SpecContext) {
		unhurt := follow(ctx, run(ctx), run(ctx))
		crowd := bustle(ctx, 2)
		Eventually(crowd.finished).WithContext(ctx).WithTimeout(2 * instanceLimit).Should(BeNumerically(">=", 2))

		offer(ctx, "second")
		expectInstalled(ctx, second, map[string]string{"CHALLENGE_DOMAIN": "second.example.test"})
		expectPlatformAPI(ctx, second, http.StatusOK)
		served := crowd.finished()
		Eventually(crowd.finished).WithContext(ctx).WithTimeout(2 * instanceLimit).Should(BeNumerically(">=", served+2))
		crowd.expectServed()
		unhurt.expectUnaffected(ctx)
	}, SpecTimeout(3*installLimit))

	It("holds an upgrade up while an instance is being started, lets it proceed, and skips a version, while operators are killed", func(ctx SpecContext) {
		configure(ctx, map[string]string{"UPGRADE_HOLD_MAX": "10m"})
		expectInstalled(ctx, second, map[string]string{"UPGRADE_HOLD_MAX": "10m"})
		unhurt := follow(ctx, run(ctx))

		By("waiting for a pause")
		// Before, the bustle of the former journey has used up what it may hold up.
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			return upgradeable(ctx, second, metav1.ConditionTrue, hold.ReasonIdle)
		})

		By("starting an instance whose image is missing")
		busy, err := start(ctx, absent)
		Expect(err).NotTo(HaveOccurred())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			return upgradeable(ctx, second, metav1.ConditionFalse, hold.ReasonBusy)
		})

		By("offering a new version")
		offer(ctx, "third")
		expect.Until(ctx, installLimit, func(ctx context.Context) error {
			csv, err := world.csv(ctx, head)
			if err == nil && csv.Status.Reason != operatorsv1alpha1.CSVReasonOperatorConditionNotUpgradeable {
				err = errors.New(describe([]operatorsv1alpha1.ClusterServiceVersion{*csv}))
			}
			return err
		})
		Consistently(ctx, stillHeld).WithTimeout(settled).Should(Succeed())

		By("deleting that instance")
		end(ctx, busy)

		By("killing the operators, the old one and the new one, in the middle of the upgrade")
		expect.Until(ctx, installLimit, func(ctx context.Context) error { return runsVersion(ctx, head) })
		late, err := start(ctx, quick)
		Expect(err).NotTo(HaveOccurred())
		killOperator(ctx)

		expectInstalled(ctx, head, map[string]string{"CHALLENGE_DOMAIN": "second.example.test"})
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			return inPhase(ctx, late, &bergv1.ChallengeInstance{}, bergv1.PhaseRunning)
		})
		unhurt.expectUnaffected(ctx)
		expectPlatformAPI(ctx, head, http.StatusOK)
		expectGate(ctx, head, true)
	}, SpecTimeout(4*installLimit))

	It("leaves nothing but its definitions when it is removed, and nothing at all without them", func(ctx SpecContext) {
		By("deleting all instances")
		var instances bergv1.ChallengeInstanceList
		Expect(world.List(ctx, &instances)).To(Succeed())
		Expect(world.DeleteAllOf(ctx, &bergv1.ChallengeInstance{}, client.InNamespace(stage))).To(Succeed())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			for _, instance := range instances.Items {
				if err := endedWithNamespace(ctx, client.ObjectKeyFromObject(&instance)); err != nil {
					return err
				}
			}
			return nil
		})

		By("removing the rights of the platform API and of the gate")
		revokePlatformAPI(ctx)
		accessOfGate(ctx, "delete")

		By("removing Subscription, version and namespaces")
		Expect(world.Delete(ctx, &operatorsv1alpha1.Subscription{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: packageName}})).To(Succeed())
		Expect(world.DeleteAllOf(ctx, &operatorsv1alpha1.ClusterServiceVersion{}, client.InNamespace(operatorNamespace))).To(Succeed())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			pods, err := world.operatorPods(ctx)
			if err == nil && len(pods) > 0 {
				err = fmt.Errorf("%d pods of the operator are left", len(pods))
			}
			return err
		})
		Expect(world.DeleteAllOf(ctx, &operatorsv1.OperatorGroup{}, client.InNamespace(operatorNamespace))).To(Succeed())
		// OLM does not own these objects of a bundle.
		for _, kind := range []client.Object{&rbacv1.ClusterRole{}, &schedulingv1.PriorityClass{}} {
			Expect(world.DeleteAllOf(ctx, kind, client.MatchingLabels{"app.kubernetes.io/name": packageName})).To(Succeed())
		}
		for _, name := range []string{operatorNamespace, stage} {
			Expect(world.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
		}

		By("looking for what is left")
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error { return residue.LeftBehind(ctx, before, promised) })

		By("removing that too")
		Expect(world.DeleteAllOf(ctx, &apiextensionsv1.CustomResourceDefinition{}, client.MatchingLabels{"app.kubernetes.io/name": packageName})).To(Succeed())
		ofGroup := client.MatchingLabels{"olm.owner.kind": "OperatorGroup", "olm.owner.namespace": operatorNamespace}
		Expect(world.DeleteAllOf(ctx, &rbacv1.ClusterRole{}, ofGroup)).To(Succeed())
		expect.Until(ctx, instanceLimit, func(ctx context.Context) error {
			// OLM writes its record again while there is anything in it.
			record := &operatorsv1.Operator{ObjectMeta: metav1.ObjectMeta{Name: packageName + "." + operatorNamespace}}
			if err := client.IgnoreNotFound(world.Delete(ctx, record)); err != nil {
				return err
			}
			return residue.LeftBehind(ctx, before, residue.Nothing)
		})
		Consistently(ctx, func(ctx context.Context) error {
			return residue.LeftBehind(ctx, before, residue.Nothing)
		}).WithTimeout(settled).Should(Succeed())
	}, SpecTimeout(3*installLimit))
})

// reportedInPod is nil when a pod of the operator that does not start says why, with
// this word, where kubectl describe shows it.
func reportedInPod(ctx context.Context, word string) error {
	pods, err := world.operatorPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if ended := c.LastTerminationState.Terminated; ended != nil && strings.Contains(ended.Message, word) {
				return nil
			}
		}
	}
	return fmt.Errorf("none of %d pods says what is wrong with %s", len(pods), word)
}

// letOLMTimeOut has OLM believe that it has waited for five minutes. Only then it
// gives an installation up that does not become ready, and begins again with what
// the Subscription says now.
func letOLMTimeOut(ctx context.Context, version string) {
	GinkgoHelper()
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		csv, err := world.csv(ctx, version)
		if err != nil {
			return err
		}
		past := metav1.NewTime(time.Now().Add(-6 * time.Minute))
		csv.Status.LastTransitionTime = &past
		return world.Status().Update(ctx, csv)
	})).To(Succeed())
}

// stillHeld is nil while all pods of the operator are of the version before. OLM replaces them by
// others of the same version where a busy node let a probe wait too long: that is no upgrade.
func stillHeld(ctx context.Context) error {
	pods, err := world.operatorPods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if !ofVersion(pod.Spec.Containers[0], second) {
			if err := upgradeable(ctx, second, metav1.ConditionFalse, hold.ReasonBusy); err != nil {
				return fmt.Errorf("%s is not of version %s, and OLM reads no hold: %w", pod.Name, second, err)
			}
			return fmt.Errorf("%s is not of version %s, though OLM reads a hold", pod.Name, second)
		}
	}
	return nil
}

// upgradeable is nil when OLM has taken notice of whether the operator may be
// upgraded, and why.
func upgradeable(ctx context.Context, version string, want metav1.ConditionStatus, reason string) error {
	condition := &operatorsv2.OperatorCondition{}
	if err := world.Get(ctx, inOperatorNamespace(csvName(version)), condition); err != nil {
		return err
	}
	have := meta.FindStatusCondition(condition.Status.Conditions, operatorsv2.Upgradeable)
	if have == nil || have.Status != want || have.Reason != reason {
		return fmt.Errorf("Upgradeable is %+v, want %s, %s", have, want, reason)
	}
	return nil
}
