package quix

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	quixv1 "github.com/bergctf/berg-operator/api/quix/v1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/bulk"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/quixtest"
)

// CROWD is the number of environments: by default few, because Kubernetes needs half a second to delete each namespace.
// make crowd sets it to 500.
var _ = Describe("A crowd of environments", func() {
	It("is created in about the time of its writes", func(ctx context.Context) {
		crowd := bulk.Number("CROWD", 50)
		marked := map[string]string{"integration": "crowd"}
		byTheOperator := func() *quixv1.Environment {
			return &quixv1.Environment{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "crowd-", Labels: marked},
				Spec:       quixv1.EnvironmentSpec{ID: quixtest.NewID()},
			}
		}
		ready := func() int {
			GinkgoHelper()
			environments := apiserver.List[quixv1.EnvironmentList](ctx, client.MatchingLabels(marked))
			n := 0
			for i := range environments.Items {
				if environments.Items[i].Status.Phase == quixv1.PhaseReady {
					n++
				}
			}
			return n
		}
		remove := func() {
			GinkgoHelper()
			// One by one: the deletion of all in one request may exceed its timeout.
			environments := apiserver.List[quixv1.EnvironmentList](ctx, client.MatchingLabels(marked))
			bulk.Each(crowd, func(n int) { Expect(k8s.Delete(ctx, &environments.Items[n])).To(Succeed()) })
			Eventually(func(g Gomega) {
				var left quixv1.EnvironmentList
				g.Expect(k8s.List(ctx, &left, client.MatchingLabels(marked))).To(Succeed())
				g.Expect(left.Items).To(BeEmpty())
			}).WithTimeout(20 * time.Minute).Should(Succeed())
		}

		By("the operator")
		began := time.Now()
		bulk.Each(crowd, func(_ int) { Expect(k8s.Create(ctx, byTheOperator())).To(Succeed()) })
		Eventually(ready).Should(Equal(crowd))
		withOperator := time.Since(began)
		began = time.Now()
		remove()
		removal := time.Since(began)

		By("a client that does the same writes and nothing else")
		inprocess.Pause()
		bare := bare{apiserver.As(apiserver.OperatorUser)}
		began = time.Now()
		bulk.Each(crowd, func(_ int) { bare.write(ctx, byTheOperator()) })
		alone := time.Since(began)
		AddReportEntry(fmt.Sprint(crowd, " environments"), fmt.Sprintf("operator %.1fs, bare client %.1fs: ratio %.2f; removal %.1fs",
			withOperator.Seconds(), alone.Seconds(), withOperator.Seconds()/alone.Seconds(), removal.Seconds()))
		// Without an operator and its finalizer the garbage collector deletes the namespaces with their owner.
		remove()
	}, SpecTimeout(time.Hour))
})

// bare writes what the operator writes for an Environment.
type bare struct{ client.Client }

func (b bare) write(ctx context.Context, env *quixv1.Environment) {
	GinkgoHelper()
	Expect(k8s.Create(ctx, env)).To(Succeed())
	name := env.Spec.ID + "-qdep"

	before := env.DeepCopy()
	env.Annotations = map[string]string{"integration": "in place of the finalizer"}
	Expect(b.Patch(ctx, env, client.MergeFrom(before))).To(Succeed())

	status := func(phase quixv1.Phase) {
		GinkgoHelper()
		before := env.DeepCopy()
		env.Status.Phase, env.Status.Message = phase, "written by a bare client"
		env.Status.NamespaceStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: name}
		env.Status.RoleBindingStatus = &quixv1.ResourceStatus{Phase: quixv1.ResourceActive, ResourceName: env.Spec.ID + "-quix-crb"}
		for _, conditionType := range []string{quixv1.ConditionNamespaceReady, quixv1.ConditionRoleValidated, quixv1.ConditionRoleBindingReady, quixv1.ConditionReady} {
			env.Status.Conditions = append(env.Status.Conditions, metav1.Condition{
				Type: conditionType + string(phase), Status: metav1.ConditionTrue, Reason: quixv1.ReasonCreated, LastTransitionTime: metav1.Now(),
			})
		}
		Expect(b.Status().Patch(ctx, env, client.MergeFrom(before))).To(Succeed())
	}
	status(quixv1.PhaseInProgress)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{quixv1.LabelManagedBy: quixv1.ManagedBy}}}
	Expect(controllerutil.SetControllerReference(env, ns, b.Scheme())).To(Succeed())
	Expect(b.Create(ctx, ns)).To(Succeed())
	Expect(b.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: env.Spec.ID + "-quix-crb"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: platformRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "quix-environment", Name: "quix-platform-account"}},
	})).To(Succeed())
	status(quixv1.PhaseReady)
	for _, reason := range []string{quixv1.ReasonNamespaceCreated, quixv1.ReasonRoleBindingCreated, quixv1.ReasonEnvironmentReady} {
		Expect(b.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "crowd-"}, EventTime: metav1.NowMicro(),
			ReportingController: "integration", ReportingInstance: "integration", Action: "Create", Reason: reason, Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{APIVersion: "quix.io/v1", Kind: "Environment", Name: env.Name, UID: env.UID},
		})).To(Succeed())
	}
}
