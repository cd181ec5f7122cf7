package kibaship

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kibashipv1 "github.com/bergctf/berg-operator/api/kibaship/v1alpha1"
	"github.com/bergctf/berg-operator/test/lib/apiserver"
	"github.com/bergctf/berg-operator/test/lib/deployed"
)

var _ = Describe("A repository that is not all there is to clone", func() {
	It("brings its submodules, also those that name the server as ssh does", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.token(ctx, "git", site.Token)
		library := newRepository(ctx, "private/"+p.project+"-library", map[string]string{"text": "of the library"})
		host := strings.TrimPrefix(site.Git, "https://")
		newRepository(ctx, "private/"+p.project, map[string]string{
			"Dockerfile":  "FROM registry.berg.test/base:1\nCOPY library/text /text\nCMD [\"cat\",\"/text\"]\n",
			".gitmodules": fmt.Sprintf("[submodule \"library\"]\n\tpath = library\n\turl = git@%s:private/%s-library.git\n", host, p.project),
		}, func(work string) {
			git(ctx, work, "update-index", "--add", "--cacheinfo", "160000,"+library+",library")
		})
		a := p.application(ctx, "private/"+p.project, private("git"))
		d := p.deploy(ctx, a, "")
		succeeds(ctx, d)
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("of the library"))

		By("naming one that is not there")
		commit := newRepository(ctx, "private/"+p.project, map[string]string{
			"Dockerfile":  hello,
			".gitmodules": fmt.Sprintf("[submodule \"library\"]\n\tpath = library\n\turl = %s/private/none.git\n", site.Git),
		}, func(work string) {
			git(ctx, work, "update-index", "--add", "--cacheinfo", "160000,"+library+",library")
		})
		build(ctx, d, commit)
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("A submodule cannot be fetched"), Not(ContainSubstring(site.Token))))
	}, SpecTimeout(2*buildLimit))

	It("brings its files of Git LFS, and tells those that it does not get", func(ctx SpecContext) {
		p := newPlatform(ctx)
		p.token(ctx, "git", site.Token)
		const content = "a file that git does not keep"
		id := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
		files := map[string]string{
			"Dockerfile":     "FROM registry.berg.test/base:1\nCOPY model.bin /\nCMD [\"cat\",\"/model.bin\"]\n",
			".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n",
			"model.bin":      fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", id, len(content)),
		}
		name := "private/" + p.project
		d := p.deploy(ctx, p.application(ctx, name, private("git")), newRepository(ctx, name, files))
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("A file of Git LFS cannot be fetched"), Not(ContainSubstring(site.Token))))

		By("giving it to the server")
		files["another"] = "file"
		commit := newRepository(ctx, name, files)
		dir := filepath.Join(site.Repositories, name+".git", "lfs", "objects", id[:2], id[2:4])
		Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(dir, id), []byte(content), 0o644)).To(Succeed())
		build(ctx, d, commit)
		succeeds(ctx, d)
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal(content))

		By("naming a server that is away")
		files[".lfsconfig"] = "[lfs]\n\turl = " + site.Git + ":444/none\n"
		build(ctx, d, newRepository(ctx, name, files))
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(And(ContainSubstring("A file of Git LFS cannot be fetched"), ContainSubstring("refused")))
	}, SpecTimeout(3*buildLimit))
})

var _ = Describe("An image that is built upon one of a registry with a login", func() {
	It("is built with the Secret that the Application names, and not without it", func(ctx SpecContext) {
		base := newPlatform(ctx)
		newRepository(ctx, "public/"+base.project, map[string]string{"Dockerfile": hello, "text": "of the base"})
		from := base.deploy(ctx, base.application(ctx, "public/"+base.project), "")
		succeeds(ctx, from)

		p := newPlatform(ctx)
		newRepository(ctx, "public/"+p.project, map[string]string{
			"Dockerfile": "FROM " + from.Status.BuiltImage.Reference + "\nCMD [\"cat\",\"/text\"]\n",
		})
		a := p.application(ctx, "public/"+p.project)
		d := p.deploy(ctx, a, "")
		ends(ctx, d, metav1.ConditionFalse, kibashipv1.ReasonRunFailed)
		Expect(d.Status.Message).To(ContainSubstring("Step build failed"))

		apiserver.Change(ctx, a, func() { a.Spec.GitRepository.ImagePullSecretRef = &kibashipv1.LocalReference{Name: loginSecret} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(a), a)).To(Succeed())
			g.Expect(a.Status.ObservedGeneration).To(Equal(a.Generation), "the operator has not seen it")
		}).WithContext(ctx).WithTimeout(deployed.ReactLimit).Should(Succeed())
		apiserver.Change(ctx, d, func() { d.Annotations = map[string]string{kibashipv1.AnnotationRunAgain: "1"} })
		Eventually(func(g Gomega) {
			g.Expect(world.Get(ctx, client.ObjectKeyFromObject(d), d)).To(Succeed())
			g.Expect(d.Status.BuiltImage).NotTo(BeNil(), d.Status.Message)
		}).WithContext(ctx).WithTimeout(buildLimit).Should(Succeed())
		Expect(p.run(ctx, d.Status.BuiltImage.Reference)).To(Equal("of the base"))
	}, SpecTimeout(4*buildLimit))
})

var _ = Describe("A build with a cache", Serial, func() {
	It("takes the layers that an earlier build left there, until the command changes", func(ctx SpecContext) {
		setOperator(ctx, map[string]string{"BUILD_CACHE_REGISTRY": site.Registry + "/cache", "BUILD_PULL_SECRET": loginSecret})
		DeferCleanup(func(ctx SpecContext) {
			setOperator(ctx, map[string]string{"BUILD_CACHE_REGISTRY": "", "BUILD_PULL_SECRET": ""})
		}, NodeTimeout(deployed.StartLimit))
		p := newPlatform(ctx)
		// No two runs of this command print the same.
		const once = "cat /proc/sys/kernel/random/uuid >/once"
		source := func(command, text string) string {
			return newRepository(ctx, "public/"+p.project, map[string]string{
				"Dockerfile": "FROM registry.berg.test/base:1\nRUN " + command + "\nCOPY text /\nCMD [\"cat\",\"/once\",\"/text\"]\n", "text": text,
			})
		}
		built := func(d *kibashipv1.Deployment) (ran, text string) {
			GinkgoHelper()
			succeeds(ctx, d)
			ran, text, _ = strings.Cut(p.run(ctx, d.Status.BuiltImage.Reference), "\n")
			return ran, text
		}
		d := p.deploy(ctx, p.application(ctx, "public/"+p.project), source(once, "first"))
		first, text := built(d)
		Expect(first).To(HaveLen(36))
		Expect(text).To(Equal("first"))

		build(ctx, d, source(once, "second"))
		ran, text := built(d)
		Expect(text).To(Equal("second"))
		Expect(ran).To(Equal(first), "the command ran again")

		build(ctx, d, source(once+" && true", "second"))
		ran, _ = built(d)
		Expect(ran).NotTo(Equal(first), "the command did not run again")
	}, SpecTimeout(4*buildLimit))
})

// build has a Deployment build a commit.
func build(ctx SpecContext, d *kibashipv1.Deployment, commit string) {
	GinkgoHelper()
	apiserver.Change(ctx, d, func() { d.Spec.GitRepository = &kibashipv1.DeploymentSource{CommitSHA: commit} })
}
