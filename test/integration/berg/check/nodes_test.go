package check

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/cmd/berg-operator/families"
	"github.com/bergctf/berg-operator/internal/operator"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bergtest"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/installed"
)

// Simulated nodes say nothing of their runtimes: none supports user namespaces until a spec says so.
var _ = Describe("Nodes that support user namespaces", Label("nodes"), func() {
	var ns string
	BeforeEach(func(ctx context.Context) {
		allowNodes(ctx)
		ns = bergtest.Namespace(ctx)
	})

	It("decide whether a Challenge that is a jail is accepted", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_NESTED_SECCOMP_PROFILE": "berg-nested.json"}, nil)
		c := bergtest.Challenge(ctx, ns, "jail", `{containers: [{hostname: jail, image: "example.com/jail:1", sandbox: nested, ports: [{port: 1337, type: publicPort}]}]}`)
		expect.Shows(ctx, c, bergv1.ChallengeConditionAccepted, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode)
		Expect(meta.FindStatusCondition(c.Status.Conditions, bergv1.ChallengeConditionAccepted).Message).To(ContainSubstring("spec.containers[0].sandbox: nested needs user namespaces, and no node supports them"))
		expect.Event(ctx, c, corev1.EventTypeWarning, bergv1.ReasonNoSuitableNode)
		other := bergtest.Challenge(ctx, ns, "web", `{containers: [{hostname: web, image: "example.com/web:1", ports: [{port: 80, type: publicPort}]}]}`)
		expect.Shows(ctx, other, bergv1.ChallengeConditionAccepted, metav1.ConditionTrue, bergv1.ChallengeAccepted)
		i := bergtest.Instance(ctx, ns, "jail")
		expect.Shows(ctx, i, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode)
		Expect(i.Status.Cause).To(Equal(bergv1.CauseRefused))
		Expect(i.Status.InstanceID).To(BeEmpty())

		By("writing nothing more while nothing changes")
		versions := []string{c.ResourceVersion, i.ResourceVersion}
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(c), c)).To(Succeed())
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
			g.Expect([]string{c.ResourceVersion, i.ResourceVersion}).To(Equal(versions))
		}).WithTimeout(3 * time.Second).Should(Succeed())

		By("starting it when a node comes that can")
		node := bergtest.CapableNode(ctx)
		expect.Shows(ctx, c, bergv1.ChallengeConditionAccepted, metav1.ConditionTrue, bergv1.ChallengeAccepted)
		expect.Event(ctx, c, corev1.EventTypeNormal, bergv1.ChallengeAccepted)
		expect.Reaches(ctx, i, bergv1.PhaseRunning)
		Expect(deploymentOf(ctx, i, "jail").Spec.Template.Spec.HostUsers).To(HaveValue(BeFalse()))

		By("refusing the next one when that node goes, and leaving what runs")
		Expect(k8s.Delete(ctx, node)).To(Succeed())
		expect.Shows(ctx, c, bergv1.ChallengeConditionAccepted, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode)
		late := bergtest.Instance(ctx, ns, "jail")
		expect.Shows(ctx, late, bergv1.ConditionChallengeFound, metav1.ConditionFalse, bergv1.ReasonNoSuitableNode)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
		Expect(i.Status.Phase).To(Equal(bergv1.PhaseRunning))
	})

	It("decide with CHALLENGE_USER_NAMESPACES=auto whether pods are in one", func(ctx context.Context) {
		inprocess.Restart(map[string]string{"CHALLENGE_USER_NAMESPACES": "auto"}, nil)
		bergtest.Challenge(ctx, ns, "web", `{containers: [{hostname: web, image: "example.com/web:1", ports: [{port: 80, type: publicPort}]}]}`)
		before := bergtest.Running(ctx, ns, "web")
		Expect(deploymentOf(ctx, before, "web").Spec.Template.Spec.HostUsers).To(BeNil())

		By("using them when every node supports them")
		all := apiserver.List[corev1.NodeList](ctx)
		for n := range all.Items {
			bergtest.SupportUserNamespaces(ctx, &all.Items[n], true)
			DeferCleanup(func(ctx context.Context) { bergtest.SupportUserNamespaces(ctx, &all.Items[n], false) })
		}
		expect.Shows(ctx, before, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonConfigurationChanged)
		Expect(deploymentOf(ctx, before, "web").Spec.Template.Spec.HostUsers).To(BeNil(), "a running instance was changed")
		after := bergtest.Running(ctx, ns, "web")
		Expect(deploymentOf(ctx, after, "web").Spec.Template.Spec.HostUsers).To(HaveValue(BeFalse()))

		By("using them no longer when one does not")
		bergtest.SupportUserNamespaces(ctx, &all.Items[0], false)
		expect.Shows(ctx, before, bergv1.ConditionUpToDate, metav1.ConditionTrue, bergv1.ReasonUpToDate)
		expect.Shows(ctx, after, bergv1.ConditionUpToDate, metav1.ConditionFalse, bergv1.ReasonConfigurationChanged)
	})

	It("must be seen: without the right to, an operator that needs it does not start", func(ctx context.Context) {
		// The operator of this suite has the right for tunnels, too.
		const account = "system:serviceaccount:default:without-rights"
		Expect(apiserver.May(ctx, account, may("watch", "", "nodes"))).To(BeFalse())
		rc := rest.CopyConfig(restConfig)
		rc.Impersonate = rest.ImpersonationConfig{UserName: account}
		starts := func(setting map[string]string) error {
			p, enabled := inprocess.Load(inprocess.With(setting), families.All()...)
			_, err := operator.New(ctx, rc, p, enabled, operator.Options{SkipNameValidation: true, Clock: clock.RealClock{}})
			return err
		}
		Expect(starts(map[string]string{"CHALLENGE_NESTED_SECCOMP_PROFILE": "Unconfined"})).To(MatchError(ContainSubstring("config/berg/nodes")))
		By("CHALLENGE_USER_NAMESPACES=auto, the default, which needs it not")
		Expect(starts(map[string]string{"CHALLENGE_USER_NAMESPACES": "auto"})).To(Succeed())
	})
})

const nodesBinding = "berg-operator-berg-nodes"

// allowNodes gives the operator the right of config/berg/nodes until the spec ends.
func allowNodes(ctx context.Context) {
	GinkgoHelper()
	Expect(installed.Folder(ctx, k8s, "config/berg/nodes", "integration")).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: nodesBinding}}))).To(Succeed())
	})
	Eventually(func() bool { return apiserver.May(ctx, apiserver.OperatorUser, may("watch", "", "nodes")) }).Should(BeTrue())
}

func deploymentOf(ctx context.Context, i *bergv1.ChallengeInstance, hostname string) *appsv1.Deployment {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(i), i)).To(Succeed())
	d := apiserver.Get[appsv1.Deployment](ctx, client.ObjectKey{Namespace: i.Status.Namespace, Name: hostname})
	return d
}
