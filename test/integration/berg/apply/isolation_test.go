package apply

import (
	"context"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bergctf/berg-operator/internal/berg/isolation"
	"github.com/bergctf/berg-operator/internal/config"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("ISOLATION_CHECK", func() {
	It("says so when a policy makes the difference, and leaves nothing", func(ctx context.Context) {
		checker, recorder := newChecker(ctx)
		stop := enforcePolicies(checkNamespace(ctx, checker))
		defer stop()
		Expect(checker.Start(ctx)).To(Succeed())
		condition := isolationCondition(ctx, checker)
		Expect(condition.Reason).To(Equal(isolation.ReasonEnforced), condition.Message)
		Expect(condition.Status).To(Equal(corev1.ConditionTrue))
		Expect(recorder.Events).To(BeEmpty())
		Expect(checker.Latest.Enforced()).To(Equal(metav1.ConditionTrue))
		expectNoCheck(ctx, checker)
	})

	It("warns when the cluster ignores policies; a later check is not confused by what this one left", func(ctx context.Context) {
		checker, recorder := newChecker(ctx)
		checker.Settle = 2 * time.Second
		for range 2 {
			Expect(checker.Start(ctx)).To(Succeed())
			condition := isolationCondition(ctx, checker)
			Expect(condition.Reason).To(Equal(isolation.ReasonIgnored), condition.Message)
			Expect(condition.Status).To(Equal(corev1.ConditionFalse))
			Expect(<-recorder.Events).To(HavePrefix("Warning " + isolation.ReasonIgnored))
		}
		Expect(checker.Latest.Enforced()).To(Equal(metav1.ConditionFalse))
		expectNoCheck(ctx, checker)
	})

	It("does not touch a namespace of another owner, and reports that it could not check", func(ctx context.Context) {
		checker, recorder := newChecker(ctx)
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: checkNamespace(ctx, checker)}}
		apiserver.Create(ctx, foreign)
		Expect(checker.Start(ctx)).To(Succeed())
		condition := isolationCondition(ctx, checker)
		Expect(condition.Status).To(Equal(corev1.ConditionUnknown))
		Expect(condition.Message).To(ContainSubstring("was not made by this operator"))
		Expect(<-recorder.Events).To(HavePrefix("Warning " + isolation.ReasonInconclusive))
		live := apiserver.Get[corev1.Namespace](ctx, client.ObjectKeyFromObject(foreign))
		Expect(live.DeletionTimestamp).To(BeNil())
	})

	It("removes its namespace when it is stopped half-way", func(ctx context.Context) {
		checker, _ := newChecker(ctx)
		half, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			defer GinkgoRecover()
			name := checkNamespace(ctx, checker)
			Eventually(ctx, func() error {
				return k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})
			}).Should(Succeed())
			stop()
		}()
		checker.Settle = limits.Wait
		Expect(checker.Start(half)).To(Succeed())
		expectNoCheck(ctx, checker)
	})
})

// newChecker returns a checker of an operator that seems to run.
func newChecker(ctx context.Context) (*isolation.Checker, *events.FakeRecorder) {
	GinkgoHelper()
	own := bergtest.Namespace(ctx)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: own},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "operator:test"}}},
	}
	// The ServiceAccount of a new namespace comes a moment later.
	Eventually(ctx, func() error { return k8s.Create(ctx, pod) }).Should(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.PodIP).NotTo(BeEmpty())
	}).Should(Succeed())
	recorder := events.NewFakeRecorder(10)
	return &isolation.Checker{
		Client: k8s, Events: recorder, Clock: clock.RealClock{}, Settle: time.Minute,
		Policies: func(context.Context) config.NetworkPolicy { return config.NetworkPolicyCilium }, Latest: isolation.NewLatest(),
		Pod: client.ObjectKeyFromObject(pod), Address: ":8081", Program: "/manager",
		Config: bergtest.Settings(map[string]string{"ISOLATION_CHECK": "startup"}),
	}, recorder
}

func checkNamespace(ctx context.Context, c *isolation.Checker) string {
	GinkgoHelper()
	own := apiserver.Get[corev1.Namespace](ctx, client.ObjectKey{Name: c.Pod.Namespace})
	return "berg-isolation-check-" + string(own.UID)
}

func isolationCondition(ctx context.Context, c *isolation.Checker) corev1.PodCondition {
	GinkgoHelper()
	pod := apiserver.Get[corev1.Pod](ctx, c.Pod)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == isolation.ConditionType {
			return condition
		}
	}
	Fail("the operator's pod has no such condition")
	return corev1.PodCondition{}
}

func expectNoCheck(ctx context.Context, c *isolation.Checker) {
	GinkgoHelper()
	name := checkNamespace(ctx, c)
	Eventually(ctx, func() bool {
		return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
	}).Should(BeTrue())
}

// enforcePolicies plays a network plugin: while a policy stands in the namespace,
// its pods reach nothing.
func enforcePolicies(namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			var policies ciliumv2.CiliumNetworkPolicyList
			var pods corev1.PodList
			in := client.InNamespace(namespace)
			if k8s.List(ctx, &policies, in) == nil && k8s.List(ctx, &pods, in) == nil {
				behaviour := "ready"
				if len(policies.Items) > 0 {
					behaviour = "not-ready"
				}
				for _, pod := range pods.Items {
					if pod.Labels["berg.test/behaviour"] == behaviour {
						continue
					}
					before := pod.DeepCopy()
					pod.Labels["berg.test/behaviour"] = behaviour
					// Gone, or changed: the next round sees.
					_ = k8s.Patch(ctx, &pod, client.MergeFrom(before))
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(apiserver.PollInterval):
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
