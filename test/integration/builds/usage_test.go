package builds

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// began writes that Tekton has started a run some seconds ago.
func (w world) began(ctx context.Context, d *kibashipv1.Deployment, run *unstructured.Unstructured, ago time.Duration) {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
	run.Object["status"] = map[string]any{
		"startTime":  metav1.NewTime(time.Now().Add(-ago)).UTC().Format(time.RFC3339),
		"conditions": []any{map[string]any{"type": "Succeeded", "status": "Unknown", "reason": "Running"}},
	}
	Expect(k8s.Status().Update(ctx, run)).To(Succeed())
	expect.Becomes(ctx, d, func(g Gomega) { g.Expect(d.Status.CurrentPipelineRun.StartTime).NotTo(BeNil()) })
}

// total adds up the builds of a Project.
func (w world) total(ctx context.Context) (sum kibashipv1.BuildDay) {
	GinkgoHelper()
	for _, day := range apiserver.Get[kibashipv1.Project](ctx, client.ObjectKey{Name: w.project}).Status.Usage.Builds {
		sum.Succeeded, sum.Failed, sum.Seconds, sum.ImageBytes = sum.Succeeded+day.Succeeded, sum.Failed+day.Failed, sum.Seconds+day.Seconds, sum.ImageBytes+day.ImageBytes
	}
	return sum
}

var _ = Describe("The usage of a Project", func() {
	It("has each build once, also after restarts, a deleted run and a deleted Deployment", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		push := step("push", 0, map[string]string{"digest": digest(1), "size": "1048576"})
		w.ends(ctx, run, "True", "Succeeded", succeeded(step("clone", 0, map[string]string{"commit": sha(1)}), push))
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(d.Status.RunHistory[0].ImageBytes).To(BeNumerically("==", 1<<20))
		Expect(w.total(ctx)).To(Equal(kibashipv1.BuildDay{Succeeded: 1, ImageBytes: 1 << 20}), "it is counted before its end is recorded")
		inprocess.Restart(nil, nil)
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{"another": "client"} })
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		Expect(w.total(ctx).Succeeded).To(BeNumerically("==", 1), "after a restart")

		By("deleting a run that has run for a minute: it is started again, and that minute counts")
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(2) })
		run = w.running(ctx, d)
		w.began(ctx, d, run, time.Minute)
		Expect(k8s.Delete(ctx, run)).To(Succeed())
		Eventually(func() kibashipv1.BuildDay { return w.total(ctx) }).Should(And(
			HaveField("Failed", BeNumerically("==", 1)), HaveField("Seconds", BeNumerically("~", 60, 30))))

		By("losing the status of the Deployment: what is in the usage is not counted again")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
		before := w.total(ctx)
		d.Status = kibashipv1.DeploymentStatus{}
		Expect(k8s.Status().Update(ctx, d)).To(Succeed())
		expect.Observed(ctx, d)
		Consistently(func() kibashipv1.BuildDay { return w.total(ctx) }, 2*time.Second).Should(Equal(before))

		By("deleting the Deployment while its build runs")
		run = w.running(ctx, d)
		w.began(ctx, d, run, 2*time.Minute)
		expect.Deleted(ctx, d)
		Expect(w.total(ctx)).To(And(HaveField("Failed", BeNumerically("==", 2)), HaveField("Seconds", BeNumerically("~", 180, 60))))
	})

	It("has what Applications ask for, and a second look writes nothing", func(ctx SpecContext) {
		spec := git()
		spec.Limits = kibashipv1.Limits{CPU: "1.5", Memory: "512Mi"}
		w := newWorld(ctx, spec)
		owner := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: w.project}}
		expect.Becomes(ctx, owner, func(g Gomega) {
			u := owner.Status.Usage
			g.Expect(u.Asked.Cpu().String() + " " + u.Asked.Memory().String()).To(Equal("1500m 512Mi"))
			g.Expect(u.Days).To(HaveLen(1))
			g.Expect(u.Days[0].Applications).To(BeNumerically("==", 1))
			g.Expect(u.CountedUntil).NotTo(BeNil())
		})
		version := owner.ResourceVersion
		inprocess.Restart(nil, nil)
		Consistently(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(owner), owner)).To(Succeed())
			return owner.ResourceVersion
		}, 3*time.Second).Should(Equal(version))

		By("asking for more: the time until now counts by the old amount")
		since := owner.Status.Usage.CountedUntil.Time
		apiserver.Change(ctx, w.app, func() { w.app.Spec.Limits.CPU = "3" })
		expect.Becomes(ctx, owner, func(g Gomega) {
			u := owner.Status.Usage
			g.Expect(u.Asked.Cpu().String()).To(Equal("3"))
			seconds := u.CountedUntil.Time.Sub(since).Seconds()
			g.Expect(seconds).To(BeNumerically(">", 0))
			var counted float64
			for _, day := range u.Days {
				counted += day.AskedSeconds.Cpu().AsApproximateFloat64()
			}
			g.Expect(counted).To(BeNumerically("==", 1.5*seconds))
		})
	})
})

var _ = Describe("The class of a Project", func() {
	It("limits how many builds run at the same time, and others do not wait for them", func(ctx SpecContext) {
		class := &kibashipv1.ProjectClass{ObjectMeta: metav1.ObjectMeta{Name: "one-build"}, Spec: kibashipv1.ProjectClassSpec{ConcurrentBuilds: 1}}
		apiserver.Create(ctx, class)
		w := newWorld(ctx, git())
		owner := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: w.project}}
		apiserver.Change(ctx, owner, func() { owner.Spec.Class = class.Name })
		expect.Becomes(ctx, owner, func(g Gomega) { g.Expect(owner.Status.ObservedGeneration).To(Equal(owner.Generation)) })
		first := w.deploy(ctx, sha(1))
		run := w.running(ctx, first)
		second := first.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: strings.Replace(first.Name, "-live-", "-staging-", 1)}
		second.Spec.GitRepository.CommitSHA = sha(2)
		apiserver.Create(ctx, second)
		expect.Shows(ctx, second, kibashipv1.ConditionSucceeded, metav1.ConditionUnknown, kibashipv1.ReasonQueued)
		Expect(second.Status.Message).To(ContainSubstring("ProjectClass one-build allows 1"))
		other, _, _ := newBuild(ctx, sha(1))
		Expect(other.project).NotTo(Equal(w.project))

		w.succeeds(ctx, run, 1)
		w.running(ctx, second)

		By("raising the class")
		third := second.DeepCopy()
		third.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: strings.Replace(first.Name, "-live-", "-test-", 1)}
		third.Spec.GitRepository.CommitSHA = sha(3)
		apiserver.Create(ctx, third)
		expect.Shows(ctx, third, kibashipv1.ConditionSucceeded, metav1.ConditionUnknown, kibashipv1.ReasonQueued)
		apiserver.Change(ctx, class, func() { class.Spec.ConcurrentBuilds = 2 })
		w.running(ctx, third)
	})
})

var _ = Describe("A commit that another Deployment of the Application has built", func() {
	It("is not built again, unless a client asks for it", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		w.succeeds(ctx, run, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		staging := d.DeepCopy()
		staging.ObjectMeta = metav1.ObjectMeta{Namespace: w.namespace, Name: strings.Replace(d.Name, "-live-", "-staging-", 1)}
		apiserver.Create(ctx, staging)
		expect.Shows(ctx, staging, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
		Expect(staging.Status.BuiltImage.Reference).To(Equal(d.Status.BuiltImage.Reference))
		Expect(w.runs(ctx)).To(HaveLen(1))
		Expect(w.total(ctx).Succeeded).To(BeNumerically("==", 1))

		By("deleting the Deployment that built it")
		expect.Deleted(ctx, d)
		apiserver.Change(ctx, staging, func() { staging.Annotations = map[string]string{"another": "client"} })
		Consistently(func() []string { return w.runs(ctx) }, 2*time.Second).ShouldNot(ContainElement(ContainSubstring("staging")))
		apiserver.Change(ctx, staging, func() { staging.Annotations[kibashipv1.AnnotationRunAgain] = "1" })
		Expect(w.running(ctx, staging).GetName()).To(ContainSubstring("staging"))
	})
})
