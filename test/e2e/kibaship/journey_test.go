package kibaship

import (
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
	"github.com/bergctf/berg-operator/test/lib/expect"
)

const hello = "FROM registry.berg.test/base:1\nCOPY text /text\nRUN cat /text >/built && chown 65532 /built\nUSER 65532\nCMD [\"cat\",\"/built\"]\n"

var _ = Describe("From a Project to an image that runs", func() {
	It("builds a public repository, and again for another commit", func(ctx SpecContext) {
		p := newPlatform(ctx)
		commit := newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "first"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		succeeds(ctx, d)
		Expect(d.Status.BuiltImage.CommitSHA).To(Equal(commit))
		Expect(d.Status.BuiltImage.Tag).To(Equal(commit))
		Expect(d.Status.BuiltImage.Reference).To(Equal(site.Registry + "/kibaship/" + p.project + "/web@" + d.Status.BuiltImage.Digest))
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("first"))
		first := d.Status.CurrentPipelineRun

		commit = newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "second"})
		apiserver.Change(ctx, d, func() { d.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: commit} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage.CommitSHA).To(Equal(commit), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("second"))
		Expect(d.Status.RunHistory).To(HaveLen(2))
		Expect(d.Status.RunHistory[1].Name).To(Equal(first.Name))
	}, SpecTimeout(2*buildLimit))

	It("has the same digest for each build of a commit, and a tag for each", func(ctx SpecContext) {
		p := newPlatform(ctx)
		commit := newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "the same"})
		live := p.deploy(ctx, p.application(ctx, "public/"+p.project), commit)
		succeeds(ctx, live)
		staging := live.DeepCopy()
		staging.ObjectMeta = metav1.ObjectMeta{Namespace: live.Namespace, Name: strings.Replace(live.Name, "-live-", "-staging-", 1)}
		staging.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} // otherwise it has the image of the first one
		Expect(world.Create(ctx, staging)).To(Succeed())
		succeeds(ctx, staging)
		Expect(staging.Status.BuiltImage.Digest).To(Equal(live.Status.BuiltImage.Digest))
		for _, d := range []*kibashipv1.Deployment{live, staging} {
			Expect(p.run(ctx, site.Registry+"/kibaship/"+p.project+"/web:"+d.Status.CurrentPipelineRun.Name)).To(Equal("the same"))
		}
	}, SpecTimeout(2*buildLimit))

	It("builds a private repository with its token, and tells a wrong one", func(ctx SpecContext) {
		p := newPlatform(ctx)
		commit := newRepository(ctx, "private/"+p.project, map[string]string{"app/Dockerfile": hello, "app/text": "private"})
		p.token(ctx, "git", "wrong-"+site.Token)
		a := p.application(ctx, "private/"+p.project, private("git"), func(g *kibashipv1.GitRepository) { g.RootDirectory = "./app" })
		d := p.deploy(ctx, a, commit)
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("clone"), ContainSubstring("Authentication failed"), Not(ContainSubstring(site.Token))))

		p.token(ctx, "git", site.Token)
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage).NotTo(BeNil(), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("private"))
	}, SpecTimeout(2*buildLimit))

	It("makes a Dockerfile of the commands where there is none", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"text": "made"})
		a := p.application(ctx, "public/"+p.project, func(g *kibashipv1.GitRepository) {
			// Tekton replaces what looks like this, where it finds it.
			g.BuildCommand, g.StartCommand = `cp text "/it's" && echo '$(params.git-branch) $(params.none) $HOME' >>"/it's"`, `cat "/it's"`
		})
		d := p.deploy(ctx, a, "")
		succeeds(ctx, d)
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("made$(params.git-branch) $(params.none) $HOME\n"))
	}, SpecTimeout(2*buildLimit))

	It("takes another Dockerfile below a rooted path, with arguments of the build", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			"Dockerfile":         "FROM registry.berg.test/base:1\nRUN exit 7\n",
			"backend/docker/web": "FROM registry.berg.test/base:1\nARG WORD=none\nRUN echo \"$WORD\" >/said\nCMD [\"cat\",\"/said\"]\n",
		})
		const word = `a word, it's $HOME`
		a := p.application(ctx, "public/"+p.project, func(g *kibashipv1.GitRepository) {
			g.Path, g.DockerfilePath, g.BuildArgs = "/backend", "docker/web", []kibashipv1.BuildArg{{Name: "WORD", Value: word}}
		})
		d := p.deploy(ctx, a, "")
		succeeds(ctx, d)
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal(word + "\n"))
	}, SpecTimeout(2*buildLimit))

	It("tells a broken build, and a push that is refused", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": "FROM registry.berg.test/base:1\nRUN exit 7\n"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("Step build failed"), ContainSubstring("kubectl logs")))

		p.login(ctx, "builder:not-"+site.Login)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "x"})
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.Message).To(And(ContainSubstring("the push was refused"), ContainSubstring("401")))
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
		_, password, _ := strings.Cut(site.Login, ":")
		Expect(d.Status.Message).NotTo(ContainSubstring(password))
	}, SpecTimeout(3*buildLimit))

	It("tells that the Project's Pod Security refuses the pod", func(ctx SpecContext) {
		p := newPlatform(ctx, func(p *kibashipv1.Project) { p.Spec.PodSecurity = kibashipv1.PodSecurityRestricted })
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "x"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonPodRefused)
		Expect(d.Status.Message).To(ContainSubstring("PodSecurity"))
	}, SpecTimeout(2*buildLimit))

	It("tells that it was cancelled, and that a branch does not exist", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": "FROM registry.berg.test/base:1\nRUN sleep 600\n"})
		a := p.application(ctx, "public/"+p.project)
		d := p.deploy(ctx, a, "")
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentRunning, deployed.ReactLimit)
		run := &unstructured.Unstructured{}
		run.SetGroupVersionKind(schema.GroupVersionKind{Group: "tekton.dev", Version: "v1", Kind: "PipelineRun"})
		run.SetNamespace(p.namespace)
		run.SetName(d.Status.CurrentPipelineRun.Name)
		Expect(world.Patch(ctx, run, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"status":"Cancelled"}}`)))).To(Succeed())
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunCancelled)

		apiserver.Change(ctx, a, func() { a.Spec.GitRepository.Branch = "no-such" })
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.Message).To(ContainSubstring("no-such"))
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
	}, SpecTimeout(3*buildLimit))
})

var _ = Describe("What breaks a rule", func() {
	It("is refused by the webhook as it is shipped, with the rule", func(ctx SpecContext) {
		for reported, modify := range map[string]func(*kibashipv1.Project){
			"platform.kibaship.com/uuid]: is required": func(p *kibashipv1.Project) { p.Labels = nil },
			"in lower case":     func(p *kibashipv1.Project) { p.Labels[kibashipv1.LabelUUID] = "0F0E0D0C-0B0A-4908-8706-050403020100" },
			"no longer than 39": func(p *kibashipv1.Project) { p.Name = "p" + strings.Repeat("x", 39) },
		} {
			p := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: "p" + uuid.NewString()[:6], Labels: map[string]string{kibashipv1.LabelUUID: uuid.NewString()}}}
			modify(p)
			err := world.Create(ctx, p)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(ContainSubstring(reported)))
		}
	}, SpecTimeout(deployed.ReactLimit))
})

var _ = Describe("A build that cannot come to its end", Serial, func() {
	It("is ended after BUILD_TIMEOUT, and says so", func(ctx SpecContext) {
		deployed.SetVariable(ctx, "BUILD_TIMEOUT", "45s")
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "BUILD_TIMEOUT", "30m") }, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": "FROM registry.berg.test/base:1\nRUN sleep 600\n"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunTimedOut)
		Expect(d.Status.Phase).To(Equal(kibashipv1.DeploymentFailed))
		Expect(d.Status.Message).To(ContainSubstring("BUILD_TIMEOUT"))
		Expect(d.Status.CurrentPipelineRun.CompletionTime.Sub(d.Status.CurrentPipelineRun.StartTime.Time)).To(BeNumerically("<", 2*time.Minute))
	}, SpecTimeout(2*buildLimit))

	It("tells that the image of a step is not there, and builds when it is", func(ctx SpecContext) {
		const usual = "registry.berg.test/kaniko:1"
		deployed.SetVariable(ctx, "BUILD_IMAGE", "registry.berg.test/no-such-builder:1")
		DeferCleanup(func(ctx SpecContext) { deployed.SetVariable(ctx, "BUILD_IMAGE", usual) }, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "x"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonImagePullFailed)
		Expect(d.Status.Message).To(ContainSubstring("no-such-builder"))

		deployed.SetVariable(ctx, "BUILD_IMAGE", usual)
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage).NotTo(BeNil(), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
	}, SpecTimeout(3*buildLimit))
})

var _ = Describe("A cluster without Tekton", Serial, func() {
	It("builds when Tekton is installed, and again after it was removed and reinstalled", func(ctx SpecContext) {
		definitions := tektonDefinitions(ctx)
		remove := func() {
			for _, d := range definitions {
				Expect(client.IgnoreNotFound(world.Delete(ctx, d.DeepCopy()))).To(Succeed())
				expect.GoneWithin(ctx, d.DeepCopy(), deployed.DeleteLimit)
			}
		}
		install := func(ctx SpecContext) {
			for _, d := range definitions {
				fresh := d.DeepCopy()
				fresh.SetResourceVersion("")
				fresh.SetUID("")
				delete(fresh.Object, "status")
				Expect(client.IgnoreAlreadyExists(world.Create(ctx, fresh))).To(Succeed())
			}
		}
		DeferCleanup(install, NodeTimeout(deployed.StartLimit))
		remove()
		deployed.SetVariable(ctx, "BUILD_TIMEOUT", "20m") // the operator starts again, without Tekton
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "late"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		expect.ReachesWithin(ctx, d, kibashipv1.DeploymentWaiting, deployed.ReactLimit)
		expect.Shows(ctx, d, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable)
		install(ctx)
		succeeds(ctx, d)
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("late"))

		remove()
		expect.Shows(ctx, d, kibashipv1.ConditionPipelineAvailable, metav1.ConditionFalse, kibashipv1.ReasonPipelineUnavailable)
		Expect(d.Status.BuiltImage).NotTo(BeNil(), "what was built is forgotten")
		install(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "later"})
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		before := d.Status.BuiltImage.Digest
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage.Digest).NotTo(Equal(before), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
	}, SpecTimeout(4*buildLimit))
})

// tektonDefinitions are those of Tekton's API as they are in the cluster.
func tektonDefinitions(ctx SpecContext) []*unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinitionList"})
	Expect(world.List(ctx, list)).To(Succeed())
	var all []*unstructured.Unstructured
	for i := range list.Items {
		if strings.HasSuffix(list.Items[i].GetName(), ".tekton.dev") {
			all = append(all, &list.Items[i])
		}
	}
	Expect(all).NotTo(BeEmpty())
	return all
}

// It is not a build's business how long its pods are kept: they go with the Project.
var _ = Describe("The end of a Project", func() {
	It("takes runs and pods with it", func(ctx SpecContext) {
		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{"Dockerfile": hello, "text": "x"})
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), "")
		succeeds(ctx, d)
		project := &kibashipv1.Project{ObjectMeta: metav1.ObjectMeta{Name: p.project}}
		Expect(world.Delete(ctx, project)).To(Succeed())
		expect.GoneWithin(ctx, project, 2*time.Minute)
		expect.GoneWithin(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, time.Minute)
	}, SpecTimeout(2*buildLimit))
})
