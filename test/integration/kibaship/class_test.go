package kibaship

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/kibashiptest"
)

// newClass creates a ProjectClass until the spec ends.
func newClass(ctx context.Context, quota map[corev1.ResourceName]string) *kibashipv1.ProjectClass {
	GinkgoHelper()
	class := &kibashipv1.ProjectClass{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.NewName()}, Spec: kibashipv1.ProjectClassSpec{Quota: corev1.ResourceList{}}}
	for name, amount := range quota {
		class.Spec.Quota[name] = resource.MustParse(amount)
	}
	apiserver.Create(ctx, class)
	return class
}

var _ = Describe("A class of Projects", Serial, func() {
	It("gives its limits to the Projects that name it, and changes them", func(ctx context.Context) {
		const count = "count/applications.platform.operator.kibaship.com"
		class := newClass(ctx, map[corev1.ResourceName]string{corev1.ResourceRequestsCPU: "2", count: "1"})
		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { p.Spec.Class = class.Name })
		key := client.ObjectKey{Namespace: kibashiptest.Namespace(p.Name), Name: "project-" + p.Name + "-limits-kibaship-com"}
		hard := func(name corev1.ResourceName) func() string {
			return func() string {
				amount := apiserver.Get[corev1.ResourceQuota](ctx, key).Spec.Hard[name]
				return amount.String()
			}
		}
		Expect(hard(corev1.ResourceRequestsCPU)()).To(Equal("2"))
		kibashiptest.ReadyApplication(ctx, p.Name, "one")
		Eventually(func() error { // the quota counts what it has seen
			return k8s.Create(ctx, kibashiptest.NewApplication(p.Name, "two"), client.DryRunAll)
		}).Should(MatchError(ContainSubstring("exceeded quota")))
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.Usage.Asked).To(HaveKey(corev1.ResourceName("quota." + count)))
		}).WithTimeout(time.Minute).Should(Succeed())

		apiserver.Change(ctx, class, func() { class.Spec.Quota[corev1.ResourceRequestsCPU] = resource.MustParse("4") })
		Eventually(hard(corev1.ResourceRequestsCPU)).Should(Equal("4"))
		apiserver.Change(ctx, p, func() { p.Spec.Quota = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("1")} })
		Eventually(hard(corev1.ResourceRequestsCPU)).Should(Equal("1"), "what the Project sets itself")
	})

	It("that does not exist is refused by its name, and one that is deleted leaves the limits", func(ctx context.Context) {
		class := newClass(ctx, map[corev1.ResourceName]string{corev1.ResourcePods: "5"})
		asked(ctx)
		missing := kibashiptest.NewProject(kibashiptest.NewName(), func(p *kibashipv1.Project) { p.Spec.Class = "no-such-class" })
		Expect(k8s.Create(ctx, missing)).To(MatchError(And(ContainSubstring("spec.class"), ContainSubstring(`"no-such-class"`), ContainSubstring(class.Name))))
		bad := kibashiptest.NewProject(kibashiptest.NewName(), func(p *kibashipv1.Project) { p.Spec.Class = "No Class" })
		Expect(k8s.Create(ctx, bad)).To(MatchError(ContainSubstring("class must be the name of a ProjectClass")))

		p := kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { p.Spec.Class = class.Name })
		Expect(k8s.Delete(ctx, class)).To(Succeed())
		expect.Settles(ctx, p, kibashipv1.ProjectFailed)
		expect.Shows(ctx, p, kibashipv1.ConditionAccepted, metav1.ConditionFalse, kibashipv1.ReasonClassNotFound)
		Expect(p.Status.Message).To(ContainSubstring(class.Name))
		quota := apiserver.Get[corev1.ResourceQuota](ctx, client.ObjectKey{Namespace: kibashiptest.Namespace(p.Name), Name: "project-" + p.Name + "-limits-kibaship-com"})
		Expect(quota.Spec.Hard.Pods().String()).To(Equal("5"))
		again := &kibashipv1.ProjectClass{ObjectMeta: metav1.ObjectMeta{Name: class.Name}, Spec: class.Spec}
		apiserver.Create(ctx, again)
		expect.Settles(ctx, p, kibashipv1.ProjectReady)
	})

	It("cannot be changed or chosen by the account of a Project, with or without a class", func(ctx context.Context) {
		class := newClass(ctx, map[corev1.ResourceName]string{corev1.ResourcePods: "5"})
		for _, p := range []*kibashipv1.Project{
			kibashiptest.Ready(ctx, func(p *kibashipv1.Project) { p.Spec.Class = class.Name }),
			kibashiptest.Ready(ctx),
		} {
			account := apiserver.As(accountOf(p.Name))
			for title, attempt := range map[string]func() error{
				"create a class": func() error {
					return account.Create(ctx, &kibashipv1.ProjectClass{ObjectMeta: metav1.ObjectMeta{Name: kibashiptest.NewName()}})
				},
				"change a class": func() error {
					return account.Patch(ctx, class.DeepCopy(), apiserver.RawPatch(`{"spec":{"quota":{"pods":"500"}}}`))
				},
				"delete a class": func() error { return account.Delete(ctx, class.DeepCopy()) },
				"name another class": func() error {
					return account.Patch(ctx, p.DeepCopy(), apiserver.RawPatch(`{"spec":{"class":""}}`))
				},
				"change the usage": func() error {
					return account.Status().Patch(ctx, p.DeepCopy(), apiserver.RawPatch(`{"status":{"usage":{"builds":[]}}}`))
				},
				"change the quota": func() error {
					return account.Patch(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
						Namespace: kibashiptest.Namespace(p.Name), Name: "project-" + p.Name + "-limits-kibaship-com",
					}}, apiserver.RawPatch(`{"spec":{"hard":{"pods":"500"}}}`))
				},
			} {
				Expect(attempt()).To(MatchError(ContainSubstring("forbidden")), title)
			}
			for _, resource := range []string{"projects", "projectclasses", "projects/status"} {
				for _, verb := range []string{"create", "update", "patch", "delete"} {
					Expect(apiserver.May(ctx, accountOf(p.Name), authorizationv1.ResourceAttributes{Group: kibashipv1.GroupVersion.Group, Resource: resource, Verb: verb})).
						To(BeFalse(), fmt.Sprintf("%s %s", verb, resource))
				}
			}
		}
	})
})
