package builds

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/internal/kibaship/registry"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/expect"
	"github.com/bergctf/berg-operator/test/lib/inprocess"
	"github.com/bergctf/berg-operator/test/lib/limits"
)

var _ = Describe("A Deployment of a Git repository", func() {
	It("builds, tells the image, and then waits for its next change", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, "")
		Expect(run.GetName()).To(Equal("project-" + w.project + "-app-web-deployment-live-run-1"))
		Expect(metav1.IsControlledBy(run, d)).To(BeTrue())
		Expect(d.Labels).To(HaveKeyWithValue(kibashipv1.LabelApplication, w.app.Name))
		expect.Event(ctx, d, corev1.EventTypeNormal, kibashipv1.ReasonRunStarted)
		w.succeeds(ctx, run, 7)

		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		reference := registryURL + "/" + w.project + "/web@" + digest(7)
		Expect(d.Status.BuiltImage.Reference).To(Equal(reference))
		Expect(d.Status.BuiltImage.Digest).To(Equal(digest(7)))
		Expect(d.Status.BuiltImage.Tag).To(Equal(sha(7)))
		Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(7)))
		Expect(d.Status.BuiltImage.BuiltAt).NotTo(BeNil())
		Expect(d.Status.LastSuccessfulRun.Name).To(Equal(run.GetName()))
		expect.Shows(ctx, d, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
		expect.Event(ctx, d, corev1.EventTypeNormal, kibashipv1.ReasonSucceeded)

		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		Expect(time.Since(d.Status.CurrentPipelineRun.CompletionTime.Time)).To(BeNumerically(">=", resultTime))
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
	})

	It("gives a build no token, no login and no time without end", func(ctx SpecContext) {
		spec := git()
		spec.GitRepository.PublicAccess, spec.GitRepository.SecretRef = false, &kibashipv1.LocalReference{Name: "git"}
		spec.GitRepository.Path, spec.GitRepository.RootDirectory = "services", "./web"
		w := newWorld(ctx, spec, "git")
		d := w.deploy(ctx, sha(1))
		run := w.running(ctx, d)
		text, err := json.Marshal(run.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring(`"automountServiceAccountToken":false`))
		Expect(string(text)).To(ContainSubstring(`"timeouts":{"pipeline":"30m0s"}`))
		pipeline := kind("Pipeline")
		pipelineName, _, err := unstructured.NestedString(run.Object, "spec", "pipelineRef", "name")
		Expect(err).NotTo(HaveOccurred())
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: pipelineName}, pipeline)).To(Succeed())
		for _, s := range stepsOf(pipeline) {
			mounts, err := json.Marshal(s["workspaces"])
			Expect(err).NotTo(HaveOccurred())
			token, login := strings.Contains(string(mounts), "git-token"), strings.Contains(string(mounts), "registry-login")
			Expect(token).To(Equal(s["name"] == "clone"), "step %s and the token of the git server", s["name"])
			Expect(login).To(Equal(s["name"] == "push"), "step %s and the login of the registry", s["name"])
			args, err := json.Marshal(s["args"])
			Expect(err).NotTo(HaveOccurred())
			if s["name"] == "prepare" {
				Expect(string(args)).To(ContainSubstring("--dockerfile=services/web/Dockerfile"))
			}
			if s["name"] == "build" {
				Expect(string(args)).To(ContainSubstring("/repository/services/web\""))
				Expect(string(args)).To(ContainSubstring("--no-push"))
			}
		}
	})

	DescribeTable("tells why a run failed", func(ctx SpecContext, status, taskReason, message string, steps []any, reason, reported string) {
		w, d, run := newBuild(ctx, sha(1))
		w.ends(ctx, run, "False", status, failed(taskReason, message, steps...))
		expect.Reaches(ctx, d, kibashipv1.DeploymentFailed)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, reason)
		Expect(d.Status.Message).To(ContainSubstring(reported))
		Expect(d.Status.RunHistory).To(HaveLen(1))
		Expect(d.Status.RunHistory[0].Phase).To(Equal(kibashipv1.DeploymentFailed))
		Expect(d.Status.BuiltImage).To(BeNil())
		expect.Event(ctx, d, corev1.EventTypeWarning, reason)
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		Expect(d.Status.Message).To(ContainSubstring(reported), "what it waits with")
	},
		Entry("cancelled", "Cancelled", "TaskRunCancelled", "x", nil, kibashipv1.ReasonRunCancelled, "Tasks Completed"),
		Entry("timed out", "PipelineRunTimeout", "TaskRunTimeout", "x", nil, kibashipv1.ReasonRunTimedOut, "Tasks Completed"),
		Entry("its pod refused", "Failed", "PodAdmissionFailed", `violates PodSecurity "restricted:latest"`, nil, kibashipv1.ReasonPodRefused, `violates PodSecurity`),
		Entry("an image missing", "Failed", "TaskRunImagePullFailed", `the step "build" failed to pull the image`, nil, kibashipv1.ReasonImagePullFailed, "failed to pull"),
		Entry("a clone that fails", "Failed", "StepFailed", "x", []any{step("clone", 128, map[string]string{"problem": "Authentication failed"})}, kibashipv1.ReasonRunFailed, "Authentication failed"),
		Entry("a pod that is deleted", "Failed", "StepFailed", "x", []any{step("clone", 0, nil), step("build", 255, nil)}, kibashipv1.ReasonRunFailed, "was deleted, and its log with it"),
		Entry("a clone that takes too long", "Failed", "StepFailed", "x", []any{timedOut("clone")}, kibashipv1.ReasonRunTimedOut, "The git server does not answer"),
		Entry("a Dockerfile that the builder does not do", "Failed", "StepFailed", "x", []any{step("clone", 0, nil), step("prepare", 1, map[string]string{"problem": "Dockerfile: line 2: no"})}, kibashipv1.ReasonRunFailed, "Step prepare failed: Dockerfile: line 2: no"),
	)

	It("says where the log of a failed RUN is, also when the pod is deleted later", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		pod := w.pod(ctx, "pod", time.Now())
		w.ends(ctx, run, "False", "Failed", failed("StepFailed", "x", step("clone", 0, nil), step("build", 7, nil)))
		expect.Reaches(ctx, d, kibashipv1.DeploymentFailed)
		const text = "exit code 7: kubectl logs -n "
		Expect(d.Status.Message).To(ContainSubstring(text))
		Expect(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		expect.GoneWithin(ctx, pod, time.Minute)
		apiserver.Change(ctx, d, func() { d.Labels["another"] = "label" })
		Consistently(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			return d.Status.Message
		}, time.Second).Should(ContainSubstring(text))
	})

	It("says that Tekton does not continue a run whose pod has ended", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		w.pod(ctx, "pod", time.Now().Add(-2*time.Minute))
		w.ends(ctx, run, "Unknown", "Running", map[string]any{
			"podName": "pod", "conditions": []any{map[string]any{"type": "Succeeded", "status": "Unknown", "reason": "Running", "message": "x"}},
		})
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionUnknown, kibashipv1.ReasonTektonNotResponding)
		Expect(d.Status.Message).To(And(ContainSubstring("has not continued PipelineRun "+run.GetName()), ContainSubstring("controller")))
		w.succeeds(ctx, run, 1)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
	})

	It("says that an image was built without the cache", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		const warning = "Built without the cache of BUILD_CACHE_REGISTRY: it is away"
		w.ends(ctx, run, "True", "Succeeded", succeeded(
			step("clone", 0, map[string]string{"commit": sha(1)}), step("prepare", 0, map[string]string{"warning": warning}),
			step("push", 0, map[string]string{"digest": digest(1)})))
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(d.Status.Message).To(HaveSuffix(". " + warning))
		Expect(d.Status.RunHistory[0].Message).To(Equal(warning))
	})

	It("puts the UUIDs of its Project on all that costs", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: w.project}}
		workspace := uuid.NewString()
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		apiserver.Change(ctx, p, func() { p.Labels[kibashipv1.LabelWorkspaceUUID] = workspace })
		expect.Becomes(ctx, w.app, func(g Gomega) {
			g.Expect(w.app.Labels).To(HaveKeyWithValue(kibashipv1.LabelWorkspaceUUID, workspace))
		})
		inprocess.Restart(map[string]string{"BUILD_WORKSPACE": "volume"}, nil)
		class := &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: w.project, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
			Provisioner: "none",
		}
		apiserver.Create(ctx, class)
		d := w.deploy(ctx, sha(1))
		run := w.running(ctx, d)
		name, _, err := unstructured.NestedString(run.Object, "spec", "pipelineRef", "name")
		Expect(err).NotTo(HaveOccurred())
		pipeline := kind("Pipeline")
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, pipeline)).To(Succeed())
		for _, o := range []client.Object{d, pipeline, run} {
			Expect(o.GetLabels()).To(And(
				HaveKeyWithValue(kibashipv1.LabelUUID, p.Labels[kibashipv1.LabelUUID]), HaveKeyWithValue(kibashipv1.LabelWorkspaceUUID, workspace)), "%T %s", o, o.GetName())
		}
		spec, err := json.Marshal(run.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(spec)).To(ContainSubstring(`"volumeClaimTemplate":{"metadata":{"labels":{"platform.kibaship.com/uuid":"` + p.Labels[kibashipv1.LabelUUID]))

		By("changing them, and keeping a uuid that the platform has set itself")
		apiserver.Change(ctx, d, func() {
			d.Labels[kibashipv1.LabelProjectUUID], d.Labels[kibashipv1.LabelWorkspaceUUID], d.Labels[kibashipv1.LabelUUID] = uuid.NewString(), uuid.NewString(), workspace
		})
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Labels).To(And(HaveKeyWithValue(kibashipv1.LabelProjectUUID, p.Labels[kibashipv1.LabelUUID]),
				HaveKeyWithValue(kibashipv1.LabelWorkspaceUUID, workspace), HaveKeyWithValue(kibashipv1.LabelUUID, workspace)))
		})
	})

	It("believes of a run only the steps that no RUN can write for", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, "")
		forged := succeeded(
			step("clone", 0, map[string]string{"commit": sha(1)}),
			step("build", 0, map[string]string{"commit": sha(666), "digest": digest(666)}),
			step("push", 0, map[string]string{"digest": digest(1)}))
		forged["results"] = []any{map[string]any{"name": "commit", "type": "string", "value": sha(666)}}
		w.ends(ctx, run, "True", "Succeeded", forged)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(1)))
		Expect(d.Status.BuiltImage.Digest).To(Equal(digest(1)))
	})

	It("starts a run for each change, cancels the one before, and keeps five", func(ctx SpecContext) {
		w, d, first := newBuild(ctx, sha(1))
		volume := w.volume(ctx, first)
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(2) })
		w.running(ctx, d)
		Eventually(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
			status, _, _ := unstructured.NestedString(first.Object, "spec", "status")
			return status
		}).Should(Equal("Cancelled"))
		w.ends(ctx, first, "False", "Cancelled", failed("TaskRunCancelled", "x"))
		for n := 3; n <= 7; n++ {
			run := w.running(ctx, d)
			w.succeeds(ctx, run, n-1)
			expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
			apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(n) })
		}
		w.running(ctx, d)
		Eventually(func() []string { return w.runs(ctx) }).Should(HaveLen(kibashipv1.HistoryLimit))
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.RunHistory).To(HaveLen(kibashipv1.HistoryLimit))
			g.Expect(d.Status.RunHistory[0].Name).To(HaveSuffix("-run-7"))
			g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(6)))
		})
		expect.GoneWithin(ctx, volume, time.Minute)
	})

	It("follows the source of its Application, unless its own spec names it", func(ctx SpecContext) {
		w, d, first := newBuild(ctx, "")
		w.succeeds(ctx, first, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)

		By("changing the branch of the Application")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.Branch = "next" })
		var second *unstructured.Unstructured
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.CurrentPipelineRun.Name).NotTo(Equal(first.GetName()))
		})
		second = w.running(ctx, d)
		Expect(paramOf(second, "git-branch")).To(Equal("next"))
		w.succeeds(ctx, second, 2)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(2)))

		By("changing it back")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.Branch = "main" })
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(1)))
			g.Expect(d.Status.CurrentPipelineRun.Name).To(Equal(first.GetName()))
		})

		By("naming a tag, and a branch without a commit")
		for _, source := range []*kibashipv1.DeploymentSource{{Tag: "v1.0"}, {Branch: "stable"}} {
			apiserver.Change(ctx, d, func() { d.Spec.GitRepository = source })
			run := w.running(ctx, d)
			Expect(paramOf(run, "git-commit")).To(BeEmpty())
			Expect(paramOf(run, "git-tag")).To(Equal(source.Tag))
			if source.Branch != "" {
				Expect(paramOf(run, "git-branch")).To(Equal(source.Branch))
			}
		}
	})

	It("goes back to a commit that it has built without another run, unless one is asked for", func(ctx SpecContext) {
		w, d, first := newBuild(ctx, sha(1))
		w.succeeds(ctx, first, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(2) })
		w.succeeds(ctx, w.running(ctx, d), 2)
		expect.Becomes(ctx, d, func(g Gomega) { g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(2))) })

		By("going back")
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(1) })
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
			g.Expect(d.Status.BuiltImage.Digest).To(Equal(digest(1)))
			g.Expect(d.Status.CurrentPipelineRun.Name).To(Equal(first.GetName()))
		})
		expect.Shows(ctx, d, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
		Consistently(func() []string { return w.runs(ctx) }, time.Second).Should(HaveLen(2))

		By("asking for another run")
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "now"} })
		again := w.running(ctx, d)
		Expect(again.GetName()).NotTo(Equal(first.GetName()))
		w.succeeds(ctx, again, 1)
		expect.Becomes(ctx, d, func(g Gomega) { g.Expect(d.Status.CurrentPipelineRun.Name).To(Equal(again.GetName())) })

		By("changing what is built of the commit")
		apiserver.Change(ctx, w.app, func() { w.app.Spec.GitRepository.BuildCommand = "make" })
		expect.Becomes(ctx, d, func(g Gomega) { g.Expect(d.Status.CurrentPipelineRun.Name).NotTo(Equal(again.GetName())) })
	})

	It("refuses a source that names nothing, or two commits", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.deploy(ctx, "")
		for _, source := range []*kibashipv1.DeploymentSource{{}, {Tag: "v1", Branch: "main"}, {Tag: "v1", CommitSHA: sha(1)}} {
			changed := d.DeepCopy()
			changed.ResourceVersion, changed.Name = "", strings.Replace(d.Name, "-live-", "-other-", 1)
			changed.Spec.GitRepository = source
			Expect(k8s.Create(ctx, changed)).To(MatchError(ContainSubstring("spec.gitRepository")))
		}
	})

	It("waits in the queue while as many builds run as may, and says at which place", func(ctx SpecContext) {
		first, second, third := newWorld(ctx, git()), newWorld(ctx, git()), newWorld(ctx, git())
		inprocess.Restart(map[string]string{"BUILD_CONCURRENCY": "1"}, nil)
		d := first.deploy(ctx, sha(1))
		run := first.running(ctx, d)
		next := second.deploy(ctx, sha(1))
		expect.Shows(ctx, next, kibashipv1.ConditionSucceeded, metav1.ConditionUnknown, kibashipv1.ReasonQueued)
		Expect(next.Status.Message).To(ContainSubstring("number 1 in the queue"))
		// A condition knows seconds: of two that began to wait in the same one, the name decides.
		since := meta.FindStatusCondition(next.Status.Conditions, kibashipv1.ConditionSucceeded).LastTransitionTime
		Eventually(time.Now).Should(BeTemporally(">", since.Add(time.Second)))
		last := third.deploy(ctx, sha(1))
		expect.Shows(ctx, last, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonQueued)
		Expect(last.Status.Message).To(ContainSubstring("number 2 in the queue"))
		Expect(third.runs(ctx)).To(BeEmpty())

		By("ending the build")
		first.succeeds(ctx, run, 1)
		second.running(ctx, next)
		expect.Becomes(ctx, last, func(g Gomega) {
			g.Expect(last.Status.Message).To(ContainSubstring("number 1 in the queue"))
		})

		By("deleting the Deployment that builds")
		Expect(k8s.Delete(ctx, next)).To(Succeed())
		third.running(ctx, last)
	})

	It("says its place as others come before it and are deleted", func(ctx SpecContext) {
		first, second, third := newWorld(ctx, git()), newWorld(ctx, git()), newWorld(ctx, git())
		inprocess.Restart(map[string]string{"BUILD_CONCURRENCY": "1"}, nil)
		first.running(ctx, first.deploy(ctx, sha(1)))
		place := func(d *kibashipv1.Deployment, number int) {
			GinkgoHelper()
			expect.Becomes(ctx, d, func(g Gomega) {
				g.Expect(d.Status.Message).To(ContainSubstring("number %d in the queue", number))
			})
		}
		// A condition knows seconds: of two that began to wait in the same one, the name decides.
		later := func(d *kibashipv1.Deployment) {
			GinkgoHelper()
			since := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded).LastTransitionTime
			Eventually(time.Now).Should(BeTemporally(">", since.Add(time.Second)))
		}
		a := second.deploy(ctx, sha(1))
		place(a, 1)
		later(a)
		b := a.DeepCopy()
		b.ObjectMeta = metav1.ObjectMeta{Namespace: a.Namespace, Name: strings.Replace(a.Name, "-live-", "-other-", 1)}
		Expect(k8s.Create(ctx, b)).To(Succeed())
		place(b, 2)
		later(b)

		By("adding one of a Project that has none in the queue")
		c := third.deploy(ctx, sha(1))
		place(c, 2)
		place(b, 3)
		place(a, 1)

		By("deleting the first, whose Project has its turn for the next one then")
		Expect(k8s.Delete(ctx, a)).To(Succeed())
		place(b, 1)
		place(c, 2)

		By("deleting that one too")
		Expect(k8s.Delete(ctx, b)).To(Succeed())
		place(c, 1)
		Expect(third.runs(ctx)).To(BeEmpty())
	})

	It("says within a minute or so that Tekton does not take up its run, and continues when it does", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			c := meta.FindStatusCondition(d.Status.Conditions, kibashipv1.ConditionSucceeded)
			g.Expect(c).To(HaveField("Reason", kibashipv1.ReasonTektonNotResponding))
			g.Expect(c.Message).To(ContainSubstring(run.GetName()))
		}).WithTimeout(limits.Scaled(3 * time.Minute)).Should(Succeed())
		w.succeeds(ctx, run, 1)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionTrue, kibashipv1.ReasonSucceeded)
	})

	It("runs again where the annotation asks for it, and where an unfinished run is deleted", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		old := run.GetUID()
		Expect(k8s.Delete(ctx, run)).To(Succeed())
		expect.Becomes(ctx, run, func(g Gomega) {
			g.Expect(run.GetUID()).NotTo(Equal(old))
		})
		w.succeeds(ctx, run, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(k8s.Delete(ctx, run)).To(Succeed())
		Consistently(func() []string { return w.runs(ctx) }, time.Second).Should(BeEmpty(), "a run that was over is made again")
		Expect(d.Status.RunHistory).To(HaveLen(1), "its history is gone with it")
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "now"} })
		again := w.running(ctx, d)
		Expect(again.GetName()).NotTo(Equal(run.GetName()))
	})

	It("keeps what the annotation asked for when it is taken off", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		w.succeeds(ctx, w.running(ctx, d), 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "now"} })
		again := w.running(ctx, d)
		w.ends(ctx, again, "True", "Succeeded", succeeded(step("clone", 0, map[string]string{"commit": sha(1)}), step("push", 0, map[string]string{"digest": digest(2)})))
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		apiserver.Change(ctx, d, func() { d.Annotations = nil })
		Consistently(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.CurrentPipelineRun.Name).To(Equal(again.GetName()))
			g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(sha(1)))
			g.Expect(d.Status.BuiltImage.Digest).To(Equal(digest(2)))
		}, time.Second).Should(Succeed())
		Expect(w.runs(ctx)).To(HaveLen(2))
	})

	It("leaves what its Application was before behind, with the run that is under way", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		w.ends(ctx, w.running(ctx, d), "False", "Failed", failed("StepFailed", "x", step("clone", 128, nil)))
		expect.Reaches(ctx, d, kibashipv1.DeploymentFailed)
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(2) })
		run := w.running(ctx, d)
		apiserver.Change(ctx, w.app, func() {
			w.app.Spec.Type, w.app.Spec.Postgres = kibashipv1.TypePostgres, &kibashipv1.Database{}
		})
		expect.Shows(ctx, d, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonNothingToBuild)
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		Expect(d.Status.Message).To(ContainSubstring("Postgres"))
		Eventually(func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
			status, _, _ := unstructured.NestedString(run.Object, "spec", "status")
			return status
		}).Should(Equal("Cancelled"))
	})

	It("tells the image where it was pushed, also when the registry is another one by then", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		inprocess.Restart(map[string]string{"BUILD_REGISTRY": "other.example.org"}, nil)
		w.succeeds(ctx, run, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentSucceeded)
		Expect(d.Status.BuiltImage.Reference).To(Equal(registryURL + "/" + w.project + "/web@" + digest(1)))
	})

	It("tells what was built while its Application is not Ready", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		apiserver.Change(ctx, w.app, func() {
			g := w.app.Spec.GitRepository
			g.PublicAccess, g.SecretRef = false, &kibashipv1.LocalReference{Name: "missing"}
		})
		expect.Shows(ctx, w.app, kibashipv1.ConditionReady, metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound)
		w.succeeds(ctx, run, 1)
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.BuiltImage).NotTo(BeNil(), d.Status.Message)
			g.Expect(d.Status.BuiltImage.Reference).To(HaveSuffix("/web@" + digest(1)))
			g.Expect(d.Status.LastSuccessfulRun.Image).To(Equal(d.Status.BuiltImage.Reference))
		})
	})

	It("remembers a run that was deleted before its end as one that failed", func(ctx SpecContext) {
		w, d, lost := newBuild(ctx, sha(1))
		resume := inprocess.Pause()
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository.CommitSHA = sha(2) })
		Expect(k8s.Delete(ctx, lost)).To(Succeed())
		resume()
		w.running(ctx, d)
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.RunHistory).To(HaveLen(2))
			for _, entry := range d.Status.RunHistory {
				if entry.Name == lost.GetName() {
					g.Expect(entry.Phase).To(Equal(kibashipv1.DeploymentFailed))
					g.Expect(entry.Message).To(ContainSubstring("deleted before its end"))
					g.Expect(entry.CompletionTime).NotTo(BeNil())
				}
			}
		})
	})

	It("says that a volume is not bound, also when the time of the run is over", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		const unbound = `pod status "PodScheduled":"False"; message: "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."`
		task := func(status, reason, message string) map[string]any {
			return map[string]any{"podName": "pod", "conditions": []any{map[string]any{"type": "Succeeded", "status": status, "reason": reason, "message": message}}}
		}
		w.ends(ctx, run, "Unknown", "Running", task("Unknown", "Pending", unbound))
		expect.Becomes(ctx, d, func(g Gomega) {
			g.Expect(d.Status.Phase).To(Equal(kibashipv1.DeploymentRunning))
			g.Expect(d.Status.Message).To(ContainSubstring("unbound immediate PersistentVolumeClaims"))
		})
		w.ends(ctx, run, "False", "PipelineRunTimeout", task("False", "TaskRunTimeout", "too late"))
		expect.Reaches(ctx, d, kibashipv1.DeploymentFailed)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonRunTimedOut)
		Expect(d.Status.Message).To(And(ContainSubstring("BUILD_TIMEOUT"), ContainSubstring("unbound immediate PersistentVolumeClaims")))
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		Expect(d.Status.Message).To(ContainSubstring("unbound immediate PersistentVolumeClaims"), "what it waits with")
	})

	It("waits for the Secrets that a run needs, and says for which", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.create(ctx, sha(1))
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonSecretNotFound)
		Expect(d.Status.Message).To(And(ContainSubstring(registrySecret), ContainSubstring("BUILD_REGISTRY_SECRET")))
		Expect(w.runs(ctx)).To(BeEmpty())
		w.secret(ctx, registrySecret)
		w.running(ctx, d)
	})

	It("waits for the StorageClass of its volume, and says for which", func(ctx SpecContext) {
		inprocess.Restart(map[string]string{"BUILD_WORKSPACE": "volume", "BUILD_STORAGE_CLASS": "no-such"}, nil)
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonStorageClassNotFound)
		Expect(d.Status.Message).To(ContainSubstring("no-such"))

		inprocess.Restart(map[string]string{"BUILD_WORKSPACE": "volume"}, nil)
		Eventually(ctx, func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.Message).To(ContainSubstring("No StorageClass is the default"))
		}).Should(Succeed())
		inprocess.Restart(map[string]string{"BUILD_WORKSPACE": "emptyDir"}, nil)
		w.running(ctx, d)
	})

	It("waits for Tekton, and builds when it is there", func(ctx SpecContext) {
		removeTekton(ctx)
		inprocess.Restart(nil, nil) // one that starts without
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		expect.Shows(ctx, d, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable)
		installTekton(ctx)
		w.running(ctx, d)

		removeTekton(ctx)
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentWaiting, time.Minute)
		expect.Shows(ctx, d, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable)
		installTekton(ctx)
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentRunning, 2*time.Minute)
		Expect(w.runs(ctx)).To(HaveLen(1))
	}, SpecTimeout(limits.Scaled(5*time.Minute)))

	It("puts its Pipeline back, and leaves a foreign one alone", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		w.running(ctx, d)
		pipeline := kind("Pipeline")
		pipeline.SetNamespace(w.namespace)
		names := apiserver.Names(ctx, pipelines(), client.InNamespace(w.namespace))
		Expect(names).To(HaveLen(1))
		pipeline.SetName(names[0])
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(pipeline), pipeline)).To(Succeed())
		made := pipeline.DeepCopy().Object["spec"]
		Expect(stepsOf(pipeline)).NotTo(BeEmpty())
		apiserver.Change(ctx, pipeline, func() { pipeline.Object["spec"] = map[string]any{"tasks": []any{}} })
		expect.Becomes(ctx, pipeline, func(g Gomega) {
			g.Expect(pipeline.Object["spec"]).To(Equal(made))
		})

		By("taking the name before a Deployment of the same name comes again")
		expect.Deleted(ctx, d)
		expect.GoneWithin(ctx, pipeline, time.Minute)
		foreign := kind("Pipeline")
		foreign.SetNamespace(w.namespace)
		foreign.SetName(names[0])
		foreign.Object["spec"] = map[string]any{"description": "mine"}
		Expect(k8s.Create(ctx, foreign)).To(Succeed())
		theirs := w.create(ctx, sha(1))
		expect.Shows(ctx, theirs, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonOwnershipConflict)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		Expect(foreign.Object["spec"]).To(HaveKeyWithValue("description", "mine"))
	})

	It("writes nothing when nothing has changed", func(ctx SpecContext) {
		w, d, run := newBuild(ctx, sha(1))
		w.succeeds(ctx, run, 1)
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		versions := func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
			pipeline := pipelines()
			Expect(k8s.List(ctx, pipeline, client.InNamespace(w.namespace))).To(Succeed())
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			return fmt.Sprint(d.ResourceVersion, run.GetResourceVersion(), pipeline.Items[0].GetResourceVersion())
		}
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{"another": "client"} })
		before := versions()
		Consistently(versions, time.Second).Should(Equal(before))
		inprocess.Restart(nil, nil)
		Consistently(versions, 2*time.Second).Should(Equal(before), "after a restart")
	})

	It("starts no run while a TaskRun or a pod of an earlier one of its name is left, which Tekton would take for its own", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		of := map[string]string{"tekton.dev/pipelineRun": "project-" + w.project + "-app-web-deployment-live-run-1"}
		task := kind("TaskRun")
		task.SetNamespace(w.namespace)
		task.SetName("left-build")
		task.SetLabels(of)
		Expect(k8s.Create(ctx, task)).To(Succeed())
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "left-build-pod", Labels: of},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"no": "node"}, Containers: []corev1.Container{{Name: "step-build", Image: "example.org/x:1"}},
			},
		}
		Expect(k8s.Create(ctx, pod)).To(Succeed())
		d := w.deploy(ctx, sha(1))
		for _, left := range []client.Object{task, pod} {
			expect.Says(ctx, d, left.GetName()+" of an earlier run of this name is being deleted")
			Consistently(func() []string { return w.runs(ctx) }, time.Second).Should(BeEmpty())
			Expect(k8s.Delete(ctx, left, client.GracePeriodSeconds(0))).To(Succeed())
		}
		w.running(ctx, d)
	})

	It("takes its runs with it", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		d := w.deploy(ctx, sha(1))
		w.running(ctx, d)
		By("also where the system before has left its finalizer")
		apiserver.Change(ctx, d, func() { d.Finalizers = []string{kibashipv1.DeploymentFinalizer} })
		expect.Deleted(ctx, d)
		Eventually(func() []string { return w.runs(ctx) }, time.Minute).Should(BeEmpty())
		w.create(ctx, sha(1))
		Eventually(func() []string { return w.runs(ctx) }, time.Minute).Should(HaveLen(1), "a new one of that name")
	})
})

var _ = Describe("A Deployment of an image", func() {
	It("resolves the tag with the pull secret", func(ctx SpecContext) {
		const user, password = "puller", "let-me-in-please"
		store := ggcr.New()
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if u, p, _ := r.BasicAuth(); u != user || p != password {
				rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				rw.WriteHeader(http.StatusUnauthorized)
				return
			}
			store.ServeHTTP(rw, r)
		}))
		DeferCleanup(server.Close)
		DeferCleanup(registry.Exempt(loopback))
		host := strings.TrimPrefix(server.URL, "http://")
		tag, err := name.NewTag(host + "/team/app:1.2")
		Expect(err).NotTo(HaveOccurred())
		image, err := random.Image(64, 1)
		Expect(err).NotTo(HaveOccurred())
		Expect(remote.Write(tag, image, remote.WithAuth(&authn.Basic{Username: user, Password: password}))).To(Succeed())
		want, err := image.Digest()
		Expect(err).NotTo(HaveOccurred())

		w := newWorld(ctx, kibashipv1.ApplicationSpec{Type: kibashipv1.TypeDockerImage, DockerImage: &kibashipv1.DockerImage{
			Image: host + "/team/app", Tag: "1.2", ImagePullSecretRef: &kibashipv1.LocalReference{Name: "pull"},
		}}, "pull")
		pull := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pull"}}
		apiserver.Change(ctx, pull, func() {
			pull.Data = map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user+":wrong")))}
		})
		d := w.create(ctx, "")
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonImageNotResolved)
		Expect(d.Status.Message).To(And(ContainSubstring("401"), Not(ContainSubstring("wrong")), Not(ContainSubstring(password))))
		apiserver.Change(ctx, pull, func() {
			pull.Data = map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"username":%q,"password":%q}}}`, host, user, password)}
		})
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentSucceeded, time.Minute)
		Expect(d.Status.BuiltImage.Reference).To(Equal(host + "/team/app@" + want.String()))
		Expect(d.Status.BuiltImage.Tag).To(Equal("1.2"))
		expect.Shows(ctx, d, kibashipv1.ConditionPipelineAvailable, metav1.ConditionTrue, kibashipv1.ReasonPipelineNotNeeded)
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
	}, SpecTimeout(limits.Scaled(3*time.Minute)))
})

// loopback is where registries of specs are, which the operator reaches for no other tenant.
var loopback = netip.MustParsePrefix("127.0.0.0/8")

var _ = Describe("A Deployment of an image whose tag moves", func() {
	It("keeps the image until it is asked again, and asks no address of the operator's own", func(ctx SpecContext) {
		var asked atomic.Int32
		store := ggcr.New(ggcr.Logger(log.New(GinkgoWriter, "", 0)))
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/manifests/1.2") && r.Method != http.MethodPut {
				asked.Add(1)
			}
			store.ServeHTTP(rw, r)
		}))
		DeferCleanup(server.Close)
		host := strings.TrimPrefix(server.URL, "http://")
		tag, err := name.NewTag(host + "/team/app:1.2")
		Expect(err).NotTo(HaveOccurred())
		push := func() string {
			image, err := random.Image(64, 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(remote.Write(tag, image)).To(Succeed())
			sum, err := image.Digest()
			Expect(err).NotTo(HaveOccurred())
			asked.Store(0)
			return host + "/team/app@" + sum.String()
		}
		first := push()
		w := newWorld(ctx, kibashipv1.ApplicationSpec{Type: kibashipv1.TypeDockerImage, DockerImage: &kibashipv1.DockerImage{Image: host + "/team/app", Tag: "1.2"}})
		d := w.create(ctx, "")
		expect.Shows(ctx, d, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonImageNotResolved)
		Expect(d.Status.Message).To(ContainSubstring("to which the operator does not go"))
		Expect(asked.Load()).To(BeZero())

		DeferCleanup(registry.Exempt(loopback))
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentSucceeded, time.Minute)
		Expect(d.Status.BuiltImage.Reference).To(Equal(first))
		reference := func() string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			return d.Status.BuiltImage.Reference
		}
		second := push()
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{"another": "client"} })
		Consistently(reference, time.Second).Should(Equal(first))
		Expect(asked.Load()).To(BeZero())
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "now"} })
		Eventually(reference).Should(Equal(second))

		By("taking the annotation off, which asks for nothing")
		third := push()
		apiserver.Change(ctx, d, func() { d.Annotations = nil })
		Consistently(reference, time.Second).Should(Equal(second))
		Expect(asked.Load()).To(BeZero())
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "later"} })
		Eventually(reference).Should(Equal(third))
	}, SpecTimeout(limits.Scaled(3*time.Minute)))
})

var _ = Describe("A Deployment of an image, where IMAGE_REGISTRIES lists registries", func() {
	It("has that of a listed one, and no other is connected to", func(ctx SpecContext) {
		DeferCleanup(registry.Exempt(loopback))
		var connections [2]atomic.Int32
		var hosts [2]string
		for n := range hosts {
			server := httptest.NewUnstartedServer(ggcr.New(ggcr.Logger(log.New(GinkgoWriter, "", 0))))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					connections[n].Add(1)
				}
			}
			server.Start()
			DeferCleanup(server.Close)
			hosts[n] = strings.TrimPrefix(server.URL, "http://")
			tag, err := name.NewTag(hosts[n] + "/team/app:1.2")
			Expect(err).NotTo(HaveOccurred())
			image, err := random.Image(64, 1)
			Expect(err).NotTo(HaveOccurred())
			Expect(remote.Write(tag, image)).To(Succeed())
			connections[n].Store(0)
		}
		inprocess.Restart(map[string]string{"IMAGE_REGISTRIES": hosts[0]}, nil)
		deploy := func(host string) *kibashipv1.Deployment {
			w := newWorld(ctx, kibashipv1.ApplicationSpec{Type: kibashipv1.TypeDockerImage, DockerImage: &kibashipv1.DockerImage{Image: host + "/team/app", Tag: "1.2"}})
			return w.create(ctx, "")
		}
		listed, other := deploy(hosts[0]), deploy(hosts[1])
		expect.ReachesWithin(ctx, listed, kibashipv1.DeploymentSucceeded, time.Minute)
		Expect(connections[0].Load()).NotTo(BeZero())
		expect.Shows(ctx, other, kibashipv1.ConditionSucceeded, metav1.ConditionFalse, kibashipv1.ReasonImageNotResolved)
		Expect(other.Status.Message).To(And(ContainSubstring("IMAGE_REGISTRIES"), ContainSubstring(hosts[1]), ContainSubstring(hosts[0])))
		Expect(connections[1].Load()).To(BeZero(), "a registry that is not listed was connected to")

		By("listing the other one")
		inprocess.Restart(map[string]string{"IMAGE_REGISTRIES": hosts[0] + "," + hosts[1]}, nil)
		expect.ReachesWithin(ctx, other, kibashipv1.DeploymentSucceeded, time.Minute)
		Expect(connections[1].Load()).NotTo(BeZero())
	}, SpecTimeout(limits.Scaled(3*time.Minute)))
})

var _ = Describe("A Deployment whose label is refused", func() {
	It("says so, and continues when it is not", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		w.secret(ctx, registrySecret)
		// Writes of another Deployment show when the API server enforces the policy: a finalizer from before would stay.
		other := "project-" + w.project + "-app-none"
		probe := &kibashipv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: other + "-deployment-probe-kibaship-com"},
			Spec:       kibashipv1.DeploymentSpec{ApplicationRef: kibashipv1.LocalReference{Name: other + "-kibaship-com"}},
		}
		Expect(k8s.Create(ctx, probe)).To(Succeed())
		expect.Observed(ctx, probe)
		lift := apiserver.Deny(ctx, apiserver.Denial{
			Name: "no-label-" + w.project, Group: kibashipv1.GroupVersion.Group, Resources: []string{"deployments"}, Operation: "UPDATE",
			Labels: map[string]string{"kubernetes.io/metadata.name": w.namespace}, Conditions: []string{apiserver.ByOperator},
		}, func() error {
			return apiserver.As(apiserver.OperatorUser).Patch(ctx, probe.DeepCopy(), apiserver.RawPatch(`{"metadata":{"labels":{"probe":"1"}}}`), client.DryRunAll)
		})
		d := w.create(ctx, sha(1))
		expect.Observed(ctx, d)
		Expect(d.Labels).NotTo(HaveKey(kibashipv1.LabelApplication))
		expect.Shows(ctx, d, kibashipv1.ConditionApplicationReady, metav1.ConditionFalse, kibashipv1.ReasonRefused)
		Expect(d.Status.Message).To(ContainSubstring(apiserver.Refusal))
		lift()
		Eventually(func(g Gomega) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Labels).To(HaveKeyWithValue(kibashipv1.LabelApplication, w.app.Name))
			g.Expect(d.Status.Phase).To(Equal(kibashipv1.DeploymentRunning), d.Status.Message)
		}).WithContext(ctx).WithTimeout(limits.Scaled(2 * time.Minute)).Should(Succeed())
	}, SpecTimeout(limits.Scaled(5*time.Minute)))
})

var _ = Describe("A Deployment of a database", func() {
	It("has nothing to build, and says so", func(ctx SpecContext) {
		w := newWorld(ctx, kibashipv1.ApplicationSpec{Type: kibashipv1.TypePostgres, Postgres: &kibashipv1.Database{}})
		d := w.create(ctx, "")
		expect.Reaches(ctx, d, kibashipv1.DeploymentWaiting)
		expect.Shows(ctx, d, kibashipv1.ConditionReady, metav1.ConditionTrue, kibashipv1.ReasonNothingToBuild)
		Expect(w.runs(ctx)).To(BeEmpty())
	})
})

var _ = Describe("A Deployment whose Application is not there", func() {
	It("waits for it by name", func(ctx SpecContext) {
		w := newWorld(ctx, git())
		w.secret(ctx, registrySecret)
		Expect(k8s.Delete(ctx, w.app)).To(Succeed())
		expect.Gone(ctx, w.app)
		d := w.create(ctx, sha(1))
		expect.Reaches(ctx, d, kibashipv1.DeploymentInitializing)
		expect.Shows(ctx, d, kibashipv1.ConditionApplicationReady, metav1.ConditionFalse, kibashipv1.ReasonApplicationNotFound)
		w.app.ResourceVersion, w.app.UID = "", ""
		Expect(k8s.Create(ctx, w.app)).To(Succeed())
		ready(ctx, w.app)
		w.running(ctx, d)
	})
})

// paramOf is what a run was given.
func paramOf(run *unstructured.Unstructured, name string) string {
	GinkgoHelper()
	all, _, err := unstructured.NestedSlice(run.Object, "spec", "params")
	Expect(err).NotTo(HaveOccurred())
	for _, param := range all {
		if param.(map[string]any)["name"] == name {
			return param.(map[string]any)["value"].(string)
		}
	}
	Fail("the run has no parameter " + name)
	return ""
}

func pipelines() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind("PipelineList").GroupVersionKind())
	return list
}

// stepsOf are those of the only Task of a Pipeline.
func stepsOf(pipeline *unstructured.Unstructured) []map[string]any {
	tasks, _, _ := unstructured.NestedSlice(pipeline.Object, "spec", "tasks")
	var all []map[string]any
	for _, task := range tasks {
		steps, _, _ := unstructured.NestedSlice(task.(map[string]any), "taskSpec", "steps")
		for _, s := range steps {
			all = append(all, s.(map[string]any))
		}
	}
	return all
}
