package apply

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

var _ = Describe("The guard rails of a pod", func() {
	It("bound its disk and its system calls, at the Pod Security level baseline", func(ctx context.Context) {
		i := bergtest.StartRunning(ctx, "bounded", bergtest.OneContainer)
		Expect(securityLevel(ctx, i)).To(Equal("baseline"))
		pod := onlyPod(ctx, i)
		Expect(disk(pod)).To(Equal("64Mi of 1Gi"))
		Expect(pod.SecurityContext.SeccompProfile).To(HaveValue(Equal(corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault})))
		Expect(pod.HostUsers).To(BeNil())
	})

	It("are those of the configuration", func(ctx context.Context) {
		inprocess.Restart(map[string]string{
			"CHALLENGE_EPHEMERAL_STORAGE_LIMIT": "2Gi", "CHALLENGE_EPHEMERAL_STORAGE_REQUEST": "0",
			"CHALLENGE_SECCOMP_PROFILE": "Unconfined", "CHALLENGE_USER_NAMESPACES": "true",
		}, nil)
		ns := bergtest.Publish(ctx, "configured", bergtest.OneContainer)
		i := bergtest.Instance(ctx, ns, "configured")
		// The API server refuses pods without a profile at the level baseline.
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(securityLevel(ctx, i)).To(Equal("privileged"))
		pod := onlyPod(ctx, i)
		Expect(disk(pod)).To(Equal("0 of 2Gi"))
		Expect(pod.SecurityContext.SeccompProfile).To(HaveValue(Equal(corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined})))
		Expect(pod.HostUsers).To(HaveValue(BeFalse()))
	})

	It("open for a sandbox in the container that asks for one, where the administrator allows it", func(ctx context.Context) {
		const jail = `
flag: flag{a}
containers:
- {hostname: jail, image: "example.com/jail:1", sandbox: nested, ports: [{name: pwn, port: 5000, type: publicPort}]}
`
		ns := bergtest.Namespace(ctx)
		refused := bergtest.Challenge(ctx, ns, "jail", jail)
		accepted := func() *metav1.Condition {
			var c bergv1.Challenge
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(refused), &c)).To(Succeed())
			return meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted)
		}
		Eventually(accepted).Should(HaveValue(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Message", And(ContainSubstring("containers[0].sandbox"), ContainSubstring("CHALLENGE_NESTED_SECCOMP_PROFILE"))))))

		bergtest.CapableNode(ctx)
		inprocess.Restart(map[string]string{"CHALLENGE_NESTED_SECCOMP_PROFILE": "berg-nested.json"}, nil)
		Eventually(accepted).Should(HaveValue(HaveField("Status", metav1.ConditionTrue)))
		i := bergtest.Running(ctx, ns, "jail")
		Expect(securityLevel(ctx, i)).To(Equal("privileged")) // the API server refuses an unmasked /proc at the level baseline
		pod := onlyPod(ctx, i)
		Expect(pod.HostUsers).To(HaveValue(BeFalse()))
		security := pod.Containers[0].SecurityContext
		Expect(security.ProcMount).To(HaveValue(Equal(corev1.UnmaskedProcMount)))
		Expect(security.SeccompProfile).To(HaveValue(Equal(corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr.To("berg-nested.json")})))
		Expect(security.Privileged).To(HaveValue(BeFalse()))
		Expect(security.Capabilities.Add).To(BeEmpty())
	})
})

// onlyPod returns the spec of the pod of an instance that has one.
func onlyPod(ctx context.Context, i *bergv1.ChallengeInstance) corev1.PodSpec {
	GinkgoHelper()
	var live []corev1.Pod
	Eventually(func(g Gomega) {
		var list corev1.PodList
		g.Expect(k8s.List(ctx, &list, client.InNamespace(i.Status.Namespace))).To(Succeed())
		live = nil
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil {
				live = append(live, p)
			}
		}
		g.Expect(live).To(HaveLen(1))
	}).Should(Succeed())
	return live[0].Spec
}

// disk returns the ephemeral storage of a pod's container: what is set aside, and the limit.
func disk(pod corev1.PodSpec) string {
	r := pod.Containers[0].Resources
	return ptr.To(r.Requests[corev1.ResourceEphemeralStorage]).String() + " of " + ptr.To(r.Limits[corev1.ResourceEphemeralStorage]).String()
}

func securityLevel(ctx context.Context, i *bergv1.ChallengeInstance) string {
	GinkgoHelper()
	var namespace corev1.Namespace
	Expect(k8s.Get(ctx, client.ObjectKey{Name: i.Status.Namespace}, &namespace)).To(Succeed())
	return namespace.Labels["pod-security.kubernetes.io/enforce"]
}
